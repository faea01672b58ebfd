// SPDX-License-Identifier: Apache-2.0

package problems

import (
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// Unknown shows the objects of etcd of which fields were passed over because nothing
// is known of them. A newer version may have written them, so the object is acted upon all
// the same; but if somebody mistyped one, what they asked for doesn't hold.
type Unknown struct {
	host     string
	problems *Ledger
	shown    map[string]struct{} // by path
}

// NewUnknown shows them in a ledger; host is whose objects count.
func NewUnknown(host string, p *Ledger) *Unknown {
	return &Unknown{host: host, problems: p, shown: map[string]struct{}{}}
}

// Hear takes in one update of the watch.
func (f *Unknown) Hear(u store.Update) {
	now := map[string]error{}
	if u.Resync {
		for path := range f.shown {
			now[path] = nil
		}
	}
	for _, e := range u.Entries {
		if _, shown := f.shown[e.Path]; shown || e.Unknown != nil && f.concerns(e.Key) {
			now[e.Path] = e.Unknown
		}
	}
	lines, unsaid := 0, 0
	for path, err := range now {
		before, after := f.problems.Note(Notice, path, err)
		if f.shown[path] = struct{}{}; err == nil {
			delete(f.shown, path)
		}
		if before == after {
			continue
		}
		switch lines++; {
		case lines > MostSaid:
			unsaid++
		case after == "":
			f.problems.log.Info("object in etcd has no unknown fields any more", "key", path)
		default:
			f.problems.log.Warn("object in etcd has unknown fields, which are passed over", "key", path, "fields", after)
		}
	}
	if unsaid > 0 {
		f.problems.log.Warn("unknown fields of objects in etcd: more changed than is logged, see /debug/invalid", "more", unsaid)
	}
}

// concerns says whether an object is this agent's to report on: not another host's.
func (f *Unknown) concerns(key model.Key) bool {
	switch key := key.(type) {
	case model.HostEndpointKey:
		return key.Host == f.host
	case model.BGPPeerKey:
		return key.Host == "" || key.Host == f.host
	}
	return true
}
