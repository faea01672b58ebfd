// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

// etcdState is what is kept of etcd besides what each reconciler keeps.
type etcdState struct {
	host   string
	source string // health.Monitor.Source
	synced bool   // a whole snapshot has been folded
	ready  bool   // ReadyKey is there and true
	// revision is the latest that has been folded: what was written up to it
	// below the watched prefixes is known.
	revision     int64
	disconnected bool // from etcd, which may be another when it is back, restored from a backup
	objects      map[string]object
	successors   kubepolicy.Successors
	settings     params.Stored
}

// object is what is kept of every key.
type object struct {
	key     model.Key
	invalid error
	older   bool // a policy as older controllers made them
}

// changes are what an update changed.
type changes struct {
	entries  []model.Entry       // all, those included that a snapshot lacks
	objects  map[string]struct{} // those that this agent reports on, by path, without settings
	settings bool
}

func newEtcdState(host, source string) *etcdState {
	return &etcdState{host: host, source: source, objects: map[string]object{}, successors: kubepolicy.Successors{}, settings: params.Stored{Global: map[string]string{}, Local: map[string]string{}}}
}

// watched are the prefixes that the agent and its parts understand. Endpoints of other hosts
// are members of the sets that rules refer to. What address management's settings say is for
// plugins, which end before anybody asks them what is wrong; nor would anybody say what is misspelt.
func watched() []string {
	return append(router.OnlyRouterPrefixes(), model.ObjectPrefix(), model.IPAMConfigKey{}.Path(), model.SubnetPrefix())
}

// concerns says whether an object is this agent's to report on: not another host's.
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
	return true // a host's bird_ip is where all others send
}

// fold takes in one update. A snapshot is taken in whole, whatever the revisions: that of an
// etcd which was restored from a backup may have other content at the same ones.
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

// take folds one key that is new, changed or gone.
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
	if !params.IsSetting(e.Key) { // that is reported when it is taken into use
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

// unreadSettings are the settings in etcd that cannot be read, by path.
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

// left reports whether older controllers left a policy, in whose place there is another.
func (s *etcdState) left(key model.PolicyKey) bool {
	_, superseded := s.successors.Of(key)
	return superseded && s.objects[key.Path()].older
}
