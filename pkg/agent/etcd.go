// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

// etcdState is the loop's own copy of what etcd holds, besides what each reconciler keeps.
type etcdState struct {
	host   string
	source string // health.Monitor.Source
	synced bool   // a whole snapshot has been folded
	ready  bool   // ReadyKey exists and is true
	// revision is the latest folded one: everything written up to it below the watched prefixes is known.
	revision     int64
	disconnected bool // from etcd, which may come back as another one, restored from a backup
	objects      map[string]object
	successors   kubepolicy.Successors
	settings     params.Stored
}

// object is kept for every key.
type object struct {
	key     model.Key
	invalid error
	older   bool // a policy in the form that older controllers wrote
}

// changes are the effects of one update.
type changes struct {
	entries  []model.Entry       // all, including deletions of what a snapshot lacks
	objects  map[string]struct{} // those that this agent reports on, by path, without settings
	settings bool
}

func newEtcdState(host, source string) *etcdState {
	return &etcdState{host: host, source: source, objects: map[string]object{}, successors: kubepolicy.Successors{}, settings: params.Stored{Global: map[string]string{}, Local: map[string]string{}}}
}

// watched returns the prefixes that the agent and its parts understand. Endpoints of other hosts are members of the sets that rules refer
// to. The settings of address management, and reservations, concern the plugins, but a plugin ends before it can report a bad or misspelt
// one: the agent does.
func watched() []string {
	return append(router.OnlyRouterPrefixes(), model.ObjectPrefix(), model.IPAMConfigKey{}.Path(), model.ReservationPrefix(), model.SubnetPrefix())
}

// concerns reports whether this agent reports on an object: another host's objects are that host's.
func (s *etcdState) concerns(key model.Key) bool {
	switch key := key.(type) {
	case model.WorkloadEndpointKey:
		return key.Host == s.host
	case model.HostEndpointKey:
		return key.Host == s.host
	case model.HostConfigKey:
		return key.Host == s.host
	case model.HostMetadataKey:
		return key.Host == s.host
	}
	return true // all hosts send to a host's bird_ip
}

// fold takes in one update. It takes a snapshot whole, whatever the revisions: an etcd restored from a backup may have other content at the
// same ones.
func (s *etcdState) fold(u model.Update) changes {
	c := changes{objects: map[string]struct{}{}}
	if u.Resync {
		there := make(map[string]struct{}, len(u.Entries))
		for _, e := range u.Entries {
			there[e.Path] = struct{}{}
		}
		for path, o := range s.objects {
			if _, ok := there[path]; !ok {
				c.entries = append(c.entries, model.Entry{Path: path, Key: o.key})
			}
		}
		s.synced = true
	}
	c.entries = append(c.entries, u.Entries...)
	for _, e := range c.entries {
		s.take(e, &c)
	}
	s.revision = u.Revision
	return c
}

// take folds one key that is new, changed or deleted.
func (s *etcdState) take(e model.Entry, c *changes) {
	o := object{key: e.Key, invalid: e.Err}
	if key, is := e.Key.(model.PolicyKey); is {
		p, readable := e.Value.(model.Policy)
		o.older = readable && e.Err == nil && kubepolicy.Older(key, p)
		s.successors.Set(key, e.Exists())
	}
	if e.Exists() {
		s.objects[e.Path] = o
	} else {
		delete(s.objects, e.Path)
	}
	if !s.concerns(e.Key) {
		return
	}
	if !params.IsSetting(e.Key) { // settings are reported when they take effect
		c.objects[e.Path] = struct{}{}
	}
	switch key := e.Key.(type) {
	case model.ReadyKey:
		ready, ok := e.Value.(model.Ready)
		s.ready = ok && bool(ready)
	case model.GlobalConfigKey:
		c.settings = true
		params.Take(s.settings.Global, key.Name, e)
	case model.HostConfigKey:
		c.settings = true
		params.Take(s.settings.Local, key.Name, e)
	}
}

// waitsFor says what must be known before anything is done; "" = nothing.
func (s *etcdState) waitsFor() string { return health.WaitsFor(s.source, s.synced, s.ready) }

// unreadSettings returns the settings in etcd that cannot be read, by path.
func (s *etcdState) unreadSettings() map[string]params.Unread {
	unread := map[string]params.Unread{}
	for path, o := range s.objects {
		if !params.IsSetting(o.key) || !s.concerns(o.key) {
			continue
		}
		if u, bad := params.UnreadOf(o.key, path, o.invalid); bad {
			unread[path] = u
		}
	}
	return unread
}

// left reports whether older controllers left a policy that another one has replaced.
func (s *etcdState) left(key model.PolicyKey) bool {
	_, superseded := s.successors.Of(key)
	return superseded && s.objects[key.Path()].older
}
