// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// glance is what little effort shows of the kernel's state. Two are equal where
// nothing that they show has changed between them.
type glance struct {
	// Digests: sums over what is listed, in whatever order.
	routes, neighs, links, delays, gateways uint64

	forwards [2]uint32  // IPv4, IPv6
	gateway  rtnl.Route // to HostGateway
	reached  bool
}

// Unchanged says whether the kernel still holds what it held when the last Apply
// or Audit found nothing to do, and the host's own links are as they were. It reads all that
// may have changed without a notice, and the rest where there was a notice that
// may be of it, but only adds it up: its cost is a part of Apply's.
func (h *Path) Unchanged(ctx context.Context) (bool, error) {
	h.auditing.Lock()
	defer h.auditing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if h.right == nil {
		return false, nil
	}
	var since *glance
	h.told.Hear(h.sock.Buf, h.matters)
	if h.told.Trusted() {
		since = h.right
	}
	now, err := h.glance(since)
	if err != nil {
		return false, err
	}
	if now != *h.right {
		h.right = nil
		return false, nil
	}
	if since == nil {
		h.told.ReadAll()
	}
	return true, nil
}

// matters says whether a notice may be of what an audit looks at. What others do
// with routes, links and addresses always may: it is rare on a host at rest, and
// their routes can take the place of ours without a notice of that.
func (h *Path) matters(m rtnl.Header, body []byte) bool {
	if m.Kind != unix.RTM_NEWNEIGH && m.Kind != unix.RTM_DELNEIGH {
		return true
	}
	n, ok := rtnl.ParseNeigh(body)
	return ok && (n.State&unix.NUD_PERMANENT != 0 || len(h.claims[n.Addr]) > 0)
}

// glance looks at everything; with an earlier glance only at what may have changed
// since without a notice.
func (r *reader) glance(since *glance) (glance, error) {
	var g glance
	// By netlink, as files would have a thread go into the namespace and back.
	answers, err := r.sock.Do(getConf(unix.AF_INET, allLinks), getConf(unix.AF_INET6, allLinks), rtnl.FindRoute(link.HostGateway(), 0))
	if err != nil {
		return g, err
	}
	for i, a := range answers[:2] {
		if a.Err != nil && !errors.Is(a.Err, unix.EOPNOTSUPP) { // no IPv6
			return g, fmt.Errorf("read forwarding: %w", a.Err)
		}
		g.forwards[i] = confOf(a.Data).values[netconfaForwarding]
	}
	g.gateway, g.reached = rtnl.FoundRoute(answers[2], link.HostGateway())
	type part struct {
		what    string
		request *rtnl.Message
		into    *uint64
		digest  func(rtnl.Received) uint64
	}
	parts := []part{
		{"links", link.ListMessage(), &g.links, r.linkDigest},
		{"neighbour tables", rtnl.NewMessage(unix.RTM_GETNEIGHTBL, 0, make([]byte, sizeofNdtMsg)), &g.delays, r.delayDigest},
	}
	if since != nil {
		g.routes, g.neighs, g.gateways = since.routes, since.neighs, since.gateways
	} else {
		parts = append(parts,
			part{"routes", rtnl.RouteFilter{Family: unix.AF_INET, Protocol: r.cfg.Protocol}.Request(), &g.routes, r.routeDigest},
			part{"IPv6 routes", rtnl.RouteFilter{Family: unix.AF_INET6, Protocol: r.cfg.Protocol}.Request(), &g.routes, r.routeDigest},
			part{"neighbours", rtnl.NewMessage(unix.RTM_GETNEIGH, 0, make([]byte, unix.SizeofNdMsg)), &g.neighs, r.neighDigest},
			part{"IPv6 addresses", rtnl.ListAddrs6(), &g.gateways, r.gatewayDigest})
	}
	for _, part := range parts {
		sum, err := r.sock.Sum(part.request, part.digest)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
			continue // there is no such table, or no IPv6
		case err != nil:
			return g, fmt.Errorf("list %s: %w", part.what, err)
		}
		*part.into += sum
	}
	return g, nil
}

func (r *reader) routeDigest(m rtnl.Received) uint64 {
	if len(m.Body) < unix.SizeofRtMsg || m.Body[5] != r.cfg.Protocol || m.Body[4] != unix.RT_TABLE_MAIN {
		return 0
	}
	// The header's flags say whether the link has lost its other end.
	return r.digest(m.Body, unix.SizeofRtMsg, unix.RTA_CACHEINFO)
}

func (r *reader) neighDigest(m rtnl.Received) uint64 {
	if n, ok := rtnl.ParseNeigh(m.Body); !ok || n.State&unix.NUD_PERMANENT == 0 {
		return 0
	}
	return r.digest(m.Body, unix.SizeofNdMsg, unix.NDA_CACHEINFO)
}

// linkDigest is of a link's name, MTU, flags and whether it runs; of a workload's
// of its settings too.
func (r *reader) linkDigest(m rtnl.Received) uint64 {
	if len(m.Body) < unix.SizeofIfInfomsg {
		return 0
	}
	r.hash.Reset()
	r.hash.Write(m.Body[4:12]) // index, flags
	var ours bool
	rtnl.Attributes(m.Body[unix.SizeofIfInfomsg:], func(kind uint16, data []byte) {
		switch kind {
		case unix.IFLA_IFNAME: // comes first
			ours = slices.ContainsFunc(r.cfg.Prefixes, func(p string) bool { return bytes.HasPrefix(data, []byte(p)) })
			r.hash.Write(data)
		case unix.IFLA_MTU, unix.IFLA_OPERSTATE:
			r.hash.Write(data)
		case unix.IFLA_AF_SPEC:
			if ours {
				r.addSettings(data)
			}
		}
	})
	return r.hash.Sum64()
}

// addSettings adds the sysctls of a link that plan looks at.
func (r *reader) addSettings(families []byte) {
	var l link.Link
	l.ParseFamilies(families)
	for _, s := range settings4() {
		r.hash.Write(l.Conf4.Raw(s.number - 1))
	}
	for _, s := range settings6() {
		r.hash.Write(l.Conf6.Raw(s.number))
	}
}

func (r *reader) delayDigest(m rtnl.Received) uint64 {
	key, delay, ok := parseDelay(m.Body)
	if !ok {
		return 0
	}
	r.hash.Reset()
	maphash.WriteComparable(&r.hash, key)
	maphash.WriteComparable(&r.hash, delay)
	return r.hash.Sum64()
}

// digest is of a message's fixed part and its attributes but for one kind, which
// holds counters.
func (r *reader) digest(body []byte, fixed int, but uint16) uint64 {
	r.hash.Reset()
	r.hash.Write(body[:fixed])
	rtnl.Attributes(body[fixed:], func(kind uint16, data []byte) {
		if kind == but && but != 0 {
			return
		}
		r.hash.Write([]byte{byte(kind), byte(len(data))})
		r.hash.Write(data)
	})
	return r.hash.Sum64()
}
