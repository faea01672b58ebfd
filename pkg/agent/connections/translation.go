// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/policy"
)

// The kernel consults translations only for a connection's first packet. A connection that began before, and whose client keeps sending
// from the same port, never gets translated: the tracker has to forget it.

// translations are the ones that connections may have begun without.
type translations struct {
	inner map[netip.Addr]netip.Addr // inner addresses of 1:1 NAT, by the outer one
	pools policy.Pools              // zero where no more is masqueraded than before
}

func (s *set) untranslated(st *policy.State) translations {
	t := translations{inner: map[netip.Addr]netip.Addr{}}
	for _, ep := range st.Endpoints {
		for _, n := range ep.NAT {
			if inner, is := s.outer[n.ExtIP]; is && inner == n.IntIP { // still
				t.inner[n.ExtIP] = inner
			}
		}
	}
	if s.masquerades {
		t.pools = st.Pools
	}
	return t
}

// may reports whether a connection lacks a translation that a new one would get.
func (t translations) may(c conntrack.Connection) bool {
	if inner, is := t.inner[c.Dst]; is && c.ReplySrc != inner {
		return true
	}
	return c.ReplyDst == c.Src && t.pools.Masquerades(c.Src, c.ReplySrc)
}

// has reports whether a connection must begin anew. No working connection must: one to an outer address has that address elsewhere, and an
// outgoing one without translation gets no answer.
func (t translations) has(c conntrack.Tracked) bool {
	_, outer := t.inner[c.Dst]
	return (outer || !c.Replied) && t.may(c.Connection)
}
