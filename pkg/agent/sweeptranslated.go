// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/policy"
)

// The kernel asks for a translation with the first packet of a connection. One that
// began before, and whose client goes on sending from the same port, never gets it:
// the tracker has to forget it.

// translations are those that connections may have begun without.
type translations struct {
	inner map[netip.Addr]netip.Addr // inner addresses of 1:1 NAT, by the outer one
	pools policy.Pools              // zero where no more is masqueraded than before
}

// may says that a connection isn't translated that would be now.
func (t translations) may(c conntrack.Connection) bool {
	if inner, is := t.inner[c.Dst]; is && c.ReplySrc != inner {
		return true
	}
	return c.ReplyDst == c.Src && t.pools.Masquerades(c.Src, c.ReplySrc)
}

// has says that it is to begin anew, which no connection that works is: one to an
// outer address has it elsewhere, and of those that go out the one has no answer.
func (t translations) has(c conntrack.Tracked) bool {
	_, outer := t.inner[c.Dst]
	return (outer || !c.Replied) && t.may(c.Connection)
}

// noteOuter notes the outer addresses that lead to an endpoint and didn't before.
func (w *wall) noteOuter(before, after *policy.Endpoint) {
	if after == nil || !after.Workload {
		return
	}
	for _, n := range after.NAT {
		if before == nil || before.Dropped != "" || !slices.Contains(before.NAT, n) {
			w.outer[n.ExtIP] = struct{}{}
		}
	}
}

// translatesMore says that more is translated than when some connections began.
func (w *wall) translatesMore() bool { return w.masquerades || len(w.outer) > 0 }

// takeTranslations returns those that are new, or all that there are where
// everything is to be looked at.
func (w *wall) takeTranslations() translations {
	t := translations{inner: map[netip.Addr]netip.Addr{}}
	if w.all || w.masquerades {
		t.pools = w.state.Pools
	}
	owners := map[netip.Addr]string{} // the lowest path has it
	for path, ep := range w.state.Endpoints {
		if !ep.Workload || ep.Dropped != "" || !w.all && len(w.outer) == 0 {
			continue
		}
		for _, n := range ep.NAT {
			_, asked := w.outer[n.ExtIP]
			if owner, has := owners[n.ExtIP]; (asked || w.all) && (!has || path < owner) {
				owners[n.ExtIP], t.inner[n.ExtIP] = path, n.IntIP
			}
		}
	}
	w.outer, w.masquerades = map[netip.Addr]struct{}{}, false
	return t
}
