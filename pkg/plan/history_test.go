// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// A history is what happens to the one host "a" and the cluster around it.
type history struct {
	r        *rand.Rand
	w        world
	settings Settings
	revision int64
}

func newHistory(r *rand.Rand) *history {
	return &history{r: r, w: world{self: "a", entries: map[string]model.Entry{}, learned: map[netip.Prefix][]Path{}}}
}

func pick[T any](h *history, from ...T) T { return from[h.r.IntN(len(from))] }

func (h *history) host() string { return pick(h, "a", "a", "b", "c", "d") }

func (h *history) hostAddr() string {
	return pick(h, "172.18.0.1", "172.18.0.2", "172.18.0.3", "172.19.0.4", "10.1.0.5", "", "fd18::1", "fd18::2", "fd19::3")
}

// key is a random key of those that matter.
func (h *history) key() model.Key {
	host := h.host()
	switch h.r.IntN(18) {
	case 16:
		return model.BGPPeerKey{Name: pick(h, "p", "q", "r")}
	case 17:
		return pick[model.Key](h, model.BGPFilterKey{Name: pick(h, "f", "g")}, model.BGPPeerKey{Name: "p"})
	case 14, 15:
		return model.WorkloadStatusKey{Host: host, Orchestrator: "k8s", Workload: fmt.Sprint("w", h.r.IntN(3)), Endpoint: "eth0"}
	case 0:
		return model.PoolKey{CIDR: netip.MustParsePrefix(pick(h, "10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/28", "fd00:1::/64", "172.18.0.0/16"))}
	case 1, 2, 3:
		return model.BlockKey{CIDR: netip.MustParsePrefix(pick(h, "10.1.0.0/29", "10.1.0.8/29", "10.1.0.0/30", "10.2.0.0/30", "10.2.0.7/32", "172.18.0.0/30", "11.0.0.0/30", "fd00:1::/125"))}
	case 4, 5:
		return model.WorkloadEndpointKey{Host: host, Orchestrator: "k8s", Workload: fmt.Sprint("w", h.r.IntN(3)), Endpoint: "eth0"}
	case 6, 12, 13:
		return pick[model.Key](h, model.HostMetadataKey{Host: host}, model.HostMetadataKey{Host: host}, model.HostMetadataKey{Host: host}, model.StatusKey{Host: host}, model.LastStatusKey{Host: host}, model.HostBirdIPKey{Host: host})
	case 7, 8, 9:
		return model.BGPHostKey{Host: host, Field: pick(h, model.BGPHostIPv4, model.BGPHostIPv4, model.BGPHostIPv6, model.BGPHostAS, model.BGPHostReflector)}
	case 10:
		return pick[model.Key](h, model.BGPGlobalASKey{}, model.BGPMeshKey{}, model.BGPMeshKey{Legacy: true}, model.GlobalConfigKey{Name: "LogLevel"})
	default:
		return model.BGPPeerKey{
			Host: pick(h, "", "", host), Legacy: h.r.IntN(4) == 0,
			IP: netip.MustParseAddr(pick(h, "172.18.0.1", "172.18.0.2", "172.18.0.254", "10.1.0.12", "fd18::1", "fd18::fe")),
		}
	}
}

func (h *history) value(k model.Key) any {
	switch k := k.(type) {
	case model.PoolKey:
		p := model.Pool{CIDR: k.CIDR, IPAM: h.r.IntN(4) > 0, Disabled: h.r.IntN(4) == 0, DisableBGPExport: h.r.IntN(4) == 0, NodeSelector: pick(h, "", "all()", "!all()"), AllowedUses: pick(h, "", "", "Workload", "Tunnel")}
		mode := pick(h, model.EncapAlways, model.EncapCrossSubnet)
		switch {
		case h.r.IntN(3) == 0:
		case h.r.IntN(2) == 0 && k.CIDR.Addr().Is4():
			p.IPIP, p.IPIPMode = pick(h, "tunl0", "tunl1"), mode
		default:
			p.VXLANMode = mode
		}
		return p
	case model.BlockKey:
		return h.block(k.CIDR)
	case model.WorkloadEndpointKey:
		w := model.WorkloadEndpoint{State: pick(h, model.StateActive, model.StateActive, model.StateInactive)}
		for range h.r.IntN(3) {
			w.IPv4Nets = append(w.IPv4Nets, netip.MustParsePrefix(fmt.Sprintf("10.%d.0.%d/32", 1+h.r.IntN(2), h.r.IntN(18))))
		}
		if h.r.IntN(3) == 0 {
			w.IPv6Nets = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("fd00:1::%d/128", h.r.IntN(9)))}
		}
		if h.r.IntN(4) == 0 {
			w.IPv4NAT = []model.NAT{{ExtIP: netip.MustParseAddr("10.1.0.9")}}
		}
		return w
	case model.WorkloadStatusKey:
		return pick(h, model.EndpointUp, model.EndpointUp, model.EndpointDown)
	case model.HostMetadataKey:
		return model.HostMetadata{Labels: pick(h, nil, map[string]string{"rack": "1"}, map[string]string{"rack": "2"})}
	case model.StatusKey, model.LastStatusKey:
		return model.Status{}
	case model.HostBirdIPKey:
		return model.Text(pick(h, "172.18.0.1", "172.18.0.2", "172.18.0.9", ""))
	case model.BGPHostKey:
		return h.hostText(k.Field)
	case model.BGPGlobalASKey:
		return model.ASNumber(h.r.IntN(3) * 64000)
	case model.BGPMeshKey:
		return model.Mesh{Enabled: h.r.IntN(2) == 0}
	case model.BGPPeerKey:
		p := model.BGPPeer{IP: k.IP, AS: model.ASNumber(pick(h, 64512, 64000, 65001)), PasswordFile: pick(h, "", "/etc/p"), EBGPMultihop: h.r.IntN(2), Options: model.PeerOptions{
			LocalAS: model.ASNumber(pick(h, 0, 0, 64512, 64000)), HoldTime: pick(h, 0, 9),
			Source: pick(h, model.PeerSource{}, model.PeerSource{}, model.PeerSource{Any: true}, model.PeerSource{Address: netip.MustParseAddr("192.0.2.7")}),
		}}
		p.Filters = pick(h, nil, nil, []string{"f"}, []string{"g", "f"})
		if k.Name != "" {
			p.Host, p.NodeSelector = pick(h, "", "", "a", "b"), pick(h, "", "", "rack == '1'", "!has(rack)")
			if p.Host != "" {
				p.NodeSelector = ""
			}
			p.IP = netip.MustParseAddr(pick(h, "172.18.0.1", "172.18.0.2", "172.18.0.254", "10.1.0.12", "fd18::2"))
			if h.r.IntN(2) == 0 {
				p.PeerSelector, p.OneWay = pick(h, "all()", "rack == '2'", "has(rack)"), h.r.IntN(3) == 0
				p.IP, p.AS, p.Options = netip.Addr{}, 0, model.PeerOptions{}
			}
		}
		for range h.r.IntN(3) {
			p.Import = append(p.Import, model.RouteFilter{CIDR: netip.MustParsePrefix(pick(h, "10.0.0.0/8", "0.0.0.0/0", "10.2.0.0/16", "::/0")), Action: pick(h, "accept", "reject")})
		}
		return p
	}
	if _, ok := k.(model.BGPFilterKey); ok {
		f := model.BGPFilter{ExportV6: []model.RouteFilter{{Action: "reject", PeerType: model.ExternalPeer}}}
		for range h.r.IntN(3) {
			f.ImportV4 = append(f.ImportV4, model.RouteFilter{
				CIDR: netip.MustParsePrefix(pick(h, "10.0.0.0/8", "10.1.0.0/29", "10.2.0.0/16")), Action: pick(h, "accept", "reject"),
				Match: pick(h, model.MatchIn, model.MatchNotIn, model.MatchEqual, model.MatchNotEqual), Community: pick(h, "", "", "64512:1"),
				PeerType: pick(h, "", model.ExternalPeer, model.InternalPeer),
			})
		}
		return f
	}
	return model.Text("x")
}

func (h *history) hostText(field model.BGPHostField) model.Text {
	for {
		s := h.hostAddr()
		switch field {
		case model.BGPHostAS:
			return model.Text(pick(h, "", "64512", "65001"))
		case model.BGPHostReflector:
			return model.Text(pick(h, "", "1.1.1.1", "224.0.0.1"))
		}
		if a, err := netip.ParseAddr(s); err != nil || a.Is6() == (field == model.BGPHostIPv6) {
			return model.Text(s)
		}
	}
}

func (h *history) block(p netip.Prefix) model.Block {
	b := model.Block{CIDR: p, Affinity: pick(h, "a", "a", "b", "b", "c", "")}
	gateway := model.GatewayHandle(p.Addr().Next())
	for i := range b.Size() {
		n := model.Free
		if h.r.IntN(2) == 0 {
			n = len(b.Attributes)
			attributes := model.Attributes{HandleID: pick(h, "x", gateway, "vxlan-tunnel-addr-a", "ipip-tunnel-addr-a", "vxlan-v6-tunnel-addr-a")}
			if node := pick(h, "", "", "a", "b", "c", "d"); node != "" {
				attributes.Secondary = map[string]string{"node": node}
			}
			b.Attributes = append(b.Attributes, attributes)
		}
		b.Allocations = append(b.Allocations, n)
		if n == model.Free {
			b.Unallocated = append(b.Unallocated, i)
		}
	}
	return b
}

// entry is what becomes of a random key.
func (h *history) entry() model.Entry {
	h.revision++
	k := h.key()
	e := model.Entry{Path: k.Path(), Key: k}
	if b, ok := k.(model.PoolKey); ok && h.r.IntN(6) == 0 && b.CIDR.Addr().Is6() {
		e.Path = "/calico/v1/ipam/v6/pool/fd00:1:0::-64" // spelled in another way
	}
	if h.r.IntN(4) == 0 {
		return e
	}
	e.Revision, e.Created = h.revision, h.revision
	if was, ok := h.w.entries[e.Path]; ok {
		e.Created = was.Created
	}
	if h.r.IntN(12) == 0 {
		if e.Err = errors.New("does not parse"); h.r.IntN(2) == 0 {
			return e
		}
		switch k.(type) {
		case model.BlockKey, model.WorkloadEndpointKey: // no earlier value is remembered
			return e
		}
	}
	e.Value = h.value(k)
	return e
}

func (w *world) put(e model.Entry) {
	if e.Exists() {
		w.entries[e.Path] = e
	} else {
		delete(w.entries, e.Path)
	}
}

func (h *history) newLinks() Links {
	eth0 := Link{Name: "eth0", Up: h.r.IntN(4) > 0, NoCarrier: h.r.IntN(4) == 0, MTU: pick(h, 1500, 1400, 1290), Uplink: h.r.IntN(2) == 0}
	for _, s := range []string{"172.18.0.1/24", "fd18::1/64", "fd18::2/64"} {
		if h.r.IntN(4) == 0 {
			continue
		}
		p := netip.MustParsePrefix(s)
		eth0.Addrs = append(eth0.Addrs, p)
		if h.r.IntN(2) == 0 {
			eth0.Pending = append(eth0.Pending, p.Addr())
		}
	}
	l := Links{Links: []Link{eth0, {Name: "eth1", Up: true, NoCarrier: h.r.IntN(4) == 0, MTU: 9000, Addrs: []netip.Prefix{netip.MustParsePrefix(pick(h, "172.19.0.1/16", "192.0.2.1/32", "10.1.0.1/28"))}}}}
	if h.r.IntN(3) == 0 {
		addr := netip.MustParsePrefix(pick(h, "127.0.0.1/8", "172.18.0.1/32"))
		l.Links = append(l.Links, Link{Name: "lo", Up: true, MTU: 65536, Loopback: true, Addrs: []netip.Prefix{addr}})
	}
	for _, r := range []HostRoute{
		{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("172.18.0.254"), "eth0", h.r.IntN(2) == 0, false},
		{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("172.19.0.254"), "eth1", false, true},
		{netip.MustParsePrefix("172.18.0.3/32"), netip.MustParseAddr(pick(h, "172.19.0.9", "fe80::1")), "eth1", false, false},
		{netip.MustParsePrefix("172.18.0.3/32"), netip.MustParseAddr("172.18.0.254"), "eth0", h.r.IntN(2) == 0, true},
		{netip.MustParsePrefix("10.2.0.0/30"), netip.Addr{}, "eth1", false, false},
		{netip.MustParsePrefix("172.19.0.4/31"), netip.Addr{}, "eth1", false, false},
		{netip.MustParsePrefix("172.19.0.4/31"), netip.Addr{}, "eth0", false, true},
		{netip.MustParsePrefix("::/0"), netip.MustParseAddr("fd18::fe"), "eth0", false, false},
		{netip.MustParsePrefix("::/0"), netip.MustParseAddr("fe80::1"), "eth1", false, true},
		{netip.MustParsePrefix("fd00:1::/125"), netip.MustParseAddr("fd18::9"), "eth0", false, false},
		{netip.MustParsePrefix("10.1.0.0/29"), netip.Addr{}, "eth0", false, false},
	} {
		if h.r.IntN(3) > 0 {
			l.Routes = append(l.Routes, r)
		}
	}
	return l
}

// changeLinks makes others, or one of them lose or get its carrier, or know its addresses.
func (h *history) changeLinks() {
	if len(h.w.links.Links) == 0 || h.r.IntN(2) == 0 {
		h.w.links = h.newLinks()
		return
	}
	h.w.links = clone(h.w.links)
	l := &h.w.links.Links[h.r.IntN(len(h.w.links.Links))]
	if l.Pending = nil; h.r.IntN(2) == 0 {
		l.NoCarrier = !l.NoCarrier
	}
}

func (h *history) learn() Learned {
	p := pick(h, "10.1.0.0/29", "10.1.0.8/29", "10.1.0.3/32", "10.1.0.0/31", "10.2.0.0/30", "10.2.0.7/32", "0.0.0.0/0", "127.0.0.0/16", "172.18.0.0/30", "10.0.0.0/8", "fd00:1::/125", "fd00:1::3/128", "fe80::/64",
		"172.18.0.64/26", "172.18.0.2/32", "172.19.0.4/32", "172.19.0.9/32", "172.19.0.8/30", "fd18::/65", "fd19::3/128")
	l := Learned{Prefix: netip.MustParsePrefix(p)}
	for range h.r.IntN(3) {
		l.Paths = append(l.Paths, Path{
			NextHop: netip.MustParseAddr(pick(h, "172.18.0.1", "172.18.0.2", "172.18.0.3", "172.19.0.4", "172.18.0.254", "172.18.0.255", "172.19.255.255", "fd18::2", "fd18::fe", "fd19::3")),
			Peer:    netip.MustParseAddr(pick(h, "172.18.0.2", "172.18.0.2", "172.18.0.254", "fd18::2", "fd18::fe", "8.8.8.8")),
			Rank:    pick(h, 0, 0, len(l.Paths)),
		})
	}
	return l
}

// newEtcd are other addresses of etcd.
func (h *history) newEtcd() map[netip.Addr]bool {
	etcd := map[netip.Addr]bool{}
	for range h.r.IntN(3) {
		etcd[netip.MustParseAddr(pick(h, "10.1.0.3", "10.1.0.9", "10.2.0.7", "10.1.0.200", "172.18.0.2", "172.19.0.9", "fd00:1::3"))] = h.r.IntN(2) == 0
	}
	return etcd
}

// retain changes what was learned before, to nothing as often as not.
func (h *history) retain() {
	h.w.retained = map[netip.Prefix]Route{}
	for range h.r.IntN(2) * h.r.IntN(5) {
		p := h.learn().Prefix
		h.w.retained[p] = Route{Destination: p, Kind: Unicast, Origin: FromBGP, Hops: []Hop{{Gateway: netip.MustParseAddr(pick(h, "172.18.0.2", "172.19.0.4", "172.18.0.254", "fd18::2")), Device: "eth7"}}}
	}
}

// happen changes the world and tells an engine, twice over at times.
func (h *history) happen(e *engine) {
	for again := true; again; again = h.r.IntN(3) == 0 {
		switch h.r.IntN(12) {
		case 11:
			h.w.etcd = h.newEtcd()
			e.SetEtcd(h.w.etcd)
		case 10:
			h.settings = h.newSettings()
			e.SetSettings(h.settings)
		case 0:
			h.changeLinks()
			e.SetLinks(h.w.links)
		case 3:
			h.retain()
			e.Retain(slices.Collect(maps.Values(h.w.retained))...)
		case 1, 2:
			l := h.learn()
			if len(l.Paths) == 0 {
				delete(h.w.learned, l.Prefix)
			} else {
				h.w.learned[l.Prefix] = l.Paths
			}
			e.Learn(l)
		default:
			entry := h.entry()
			h.w.put(entry)
			e.Update(entry)
			if h.r.IntN(4) == 0 {
				e.Update(entry)
			}
		}
	}
}

// newSettings are those that a running agent may be given.
func (h *history) newSettings() Settings {
	s := Settings{
		VXLANPort: pick(h, uint16(0), 8472), VXLANVNI: pick(h, uint32(0), 7), MTU: pick(h, 0, 0, 1400, 9000), MaxPrefixes: pick(h, 0, 10),
		Communities: pick(h, nil, []model.Community{{CIDR: netip.MustParsePrefix("10.1.0.0/16"), Value: "64512:1"}}),
		ListenPort:  pick(h, uint16(0), 1179), HoldTime: pick(h, 0, 30*time.Second), RestartTime: pick(h, 0, -1, time.Minute),
		RouterID: pick(h, netip.Addr{}, netip.MustParseAddr("172.18.0.1"), netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("9.9.9.9")),
	}
	for _, kind := range []TunnelKind{IPIP, VXLAN4, VXLAN6} {
		if mtu := pick(h, 0, 0, 1300, 8900); mtu > 0 {
			if s.TunnelMTU == nil {
				s.TunnelMTU = map[TunnelKind]int{}
			}
			s.TunnelMTU[kind] = mtu
		}
	}
	return s
}

func run(t *testing.T, seed uint64, steps int) {
	t.Helper()
	h := newHistory(rand.New(rand.NewPCG(seed, 1)))
	e := newEngine("a", Settings{})
	var told State
	told.Apply(e.compute())
	for range steps {
		h.happen(e)
		told.Apply(e.compute())
		check(t, h.w, h.settings, told)
		checkState(t, h.w, told)
		checkUsed(t, e, h.w, told)
		checkLeftovers(t, e, h.w)
	}
	if c := e.compute(); !c.Empty() {
		t.Fatalf("a second Compute tells changes where nothing changed: %+v", c)
	}

	// The same world in any order, told at once.
	fresh := newEngine("a", h.settings)
	entries := slices.Collect(maps.Values(h.w.entries))
	h.r.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	fresh.Update(entries...)
	for p, paths := range h.w.learned {
		fresh.Learn(Learned{p, paths})
	}
	fresh.Retain(slices.Collect(maps.Values(h.w.retained))...)
	fresh.SetLinks(h.w.links)
	fresh.SetEtcd(h.w.etcd)
	var at State
	at.Apply(fresh.compute())
	check(t, h.w, h.settings, at)

	// And all of it gone again: nothing is left behind.
	for i, entry := range entries {
		entries[i] = model.Entry{Path: entry.Path, Key: entry.Key}
	}
	e.Update(entries...)
	for p := range h.w.learned {
		e.Learn(Learned{Prefix: p})
	}
	e.Retain()
	e.SetLinks(Links{})
	e.SetEtcd(nil)
	told.Apply(e.compute())
	check(t, world{self: "a"}, h.settings, told)
	if n := len(e.objects.byKey) + len(e.objects.spelled) + len(e.named) + len(e.peers) + len(e.pools.all) + len(e.allocations.blocks.all) + len(e.allocations.ends) +
		len(e.learned.all) + len(e.etcd) + len(e.decisions) + len(e.raised); n != 0 || len(e.said) > 1 {
		t.Fatalf("the engine remembers %d things and the hosts %v of an empty world", n, e.said)
	}
}

func TestHistories(t *testing.T) {
	n := uint64(300)
	if testing.Short() {
		n = 30
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { run(t, seed, 60) })
	}
}

func FuzzHistories(f *testing.F) {
	f.Add(uint64(1), uint8(20))
	f.Add(uint64(1424), uint8(60))  // an endpoint of a host whose agent is gone
	f.Add(uint64(185), uint8(0x88)) // an endpoint of a host that has no entry, and an agent that is gone
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) { run(t, seed, int(steps)) })
}
