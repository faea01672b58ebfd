// SPDX-License-Identifier: Apache-2.0

package problems

import "github.com/calico-go/calico/pkg/model"

// Unknown shows the objects in etcd with unknown fields, which are ignored, and the unknown keys below the prefixes that only Calico uses.
// A newer version may have written them, so the objects are used all the same; but what a mistyped field asks for has no effect.
type Unknown struct {
	host     string
	problems *Ledger
	shown    map[string]bool // by path
}

// NewUnknown returns an Unknown that reports to a ledger, leaving out the objects of hosts other than host.
func NewUnknown(host string, p *Ledger) *Unknown {
	return &Unknown{host: host, problems: p, shown: map[string]bool{}}
}

// Update processes one update of the watch.
func (f *Unknown) Update(u model.Update) {
	now := map[string]error{}
	if u.Resync {
		for path := range f.shown {
			now[path] = nil
		}
	}
	for _, e := range u.Entries {
		if err := f.of(e); err != nil || f.shown[e.Path] {
			now[e.Path] = err
		}
	}
	lines, unsaid := 0, 0
	for path, err := range now {
		before, after := f.problems.Note(Notice, path, err)
		if f.shown[path] = true; err == nil {
			delete(f.shown, path)
		}
		if before == after {
			continue
		}
		_, bad := model.ParseKey(path)
		switch lines++; {
		case lines > MostSaid:
			unsaid++
		case bad != nil && after == "":
			f.problems.log.Info("unknown key in etcd is gone", "key", path)
		case bad != nil:
			f.problems.log.Warn("unknown key in etcd is passed over", "key", path, "reason", after)
		case after == "":
			f.problems.log.Info("object in etcd has no unknown fields any more", "key", path)
		default:
			f.problems.log.Warn("object in etcd has unknown fields, which are passed over", "key", path, "fields", after)
		}
	}
	if unsaid > 0 {
		f.problems.log.Warn("unknown fields and keys in etcd: more changed than is logged, see /debug/invalid", "more", unsaid)
	}
}

// of returns what is unknown about an entry, nil = nothing that this agent reports.
func (f *Unknown) of(e model.Entry) error {
	if e.Key == nil && e.Exists() {
		host, err := model.UnknownKey(e.Path)
		if host != "" && host != f.host {
			return nil
		}
		return err
	}
	if !f.concerns(e.Key) {
		return nil
	}
	return e.Unknown
}

// concerns reports whether this agent reports on an object: not if it is another host's.
func (f *Unknown) concerns(key model.Key) bool {
	switch key := key.(type) {
	case model.HostEndpointKey:
		return key.Host == f.host
	case model.BGPPeerKey:
		return key.Host == "" || key.Host == f.host
	}
	return true
}
