// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/model"
)

// world is a cluster described by a test: by default two pools with four blocks of four addresses each.
func world(t testing.TB, pools ...model.Pool) *etcd {
	s := newEtcd(t)
	if len(pools) == 0 {
		pools = []model.Pool{{CIDR: cidr("10.0.0.0/28"), BlockSize: 30}, {CIDR: cidr("fd00::/124"), BlockSize: 126}}
	}
	for _, p := range pools {
		s.pool(p)
	}
	for _, host := range []string{"a", "b", "c"} {
		s.put(model.HostMetadataKey{Host: host}, model.HostMetadata{Labels: map[string]string{"name": host}})
	}
	return s
}

// fill makes a block of the host whose first addresses are held by handles x.<address>; empty ones have been empty
// since noon.
func (s *etcd) fill(c, host string, n int) {
	s.revision++
	b := newBlock(cidr(c), host)
	if old := s.block(c); old != nil {
		s.remove(model.AffinityKey{Host: old.Affinity, CIDR: b.CIDR}.Path())
	}
	for o := range n {
		id := "x." + addrOf(&b, o).String()
		take(&b, o, model.Attributes{HandleID: id})
		s.write(model.HandleKey{ID: id}.Path(), must(model.FormatValue(model.Handle{ID: id, Blocks: map[netip.Prefix]int{b.CIDR: 1}})))
	}
	if n == 0 {
		b.EmptySince = noon
	}
	s.write(model.BlockKey{CIDR: b.CIDR}.Path(), must(model.FormatValue(b)))
	if host != "" {
		s.write(model.AffinityKey{Host: host, CIDR: b.CIDR}.Path(), []byte("{}"))
	}
}

func (s *etcd) fillAll(host string, n int, blocks ...string) {
	for _, c := range blocks {
		s.fill(c, host, n)
	}
}

// edit changes a stored block.
func (s *etcd) edit(c string, f func(*model.Block)) {
	b := s.block(c)
	f(b)
	s.put(model.BlockKey{CIDR: b.CIDR}, *b)
}

func (s *etcd) config(strict, auto bool) {
	s.put(model.IPAMConfigKey{}, model.IPAMConfig{StrictAffinity: strict, AutoAllocateBlocks: auto})
}

func (s *etcd) reserve(name string, cidrs ...string) {
	var r model.Reservation
	for _, c := range cidrs {
		r.CIDRs = append(r.CIDRs, cidr(c))
	}
	s.put(model.ReservationKey{Name: name}, r)
}

// labels makes the profile of a namespace with these labels.
func (s *etcd) labels(namespace string, labels map[string]string) {
	profile := model.Labels{}
	for name, value := range labels {
		profile["k8s_ns/label/"+name] = value
	}
	s.put(model.ProfileLabelsKey{Profile: "k8s_ns." + namespace}, profile)
}

var quarters = []string{"10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30", "10.0.0.12/30"}

// describe says what was assigned, and what that means for the block.
func (s *etcd) describe(c Choice, p *Plan) []string {
	var out []string
	for _, a := range c.Addrs {
		what := "existing"
		if d := p.drafts[a.Block]; !a.Existing {
			what = "of " + d.Affinity
			old := s.block(a.Block.String())
			switch {
			case old == nil:
				what = "new"
			case old.Affinity != d.Affinity:
				what = "taken over from " + old.Affinity
			}
		}
		out = append(out, a.Addr.String()+" "+what)
	}
	return out
}

func TestAssign(t *testing.T) {
	v4 := Request{Host: "a", Handle: "h", IPv4: true, Now: noon.Add(10 * time.Minute)}
	with := func(f func(*Request)) Request {
		r := v4
		f(&r)
		return r
	}
	both := with(func(r *Request) { r.IPv6 = true })
	cases := []struct {
		name    string
		setup   func(*etcd)
		request Request
		want    []string
		pools   []model.Pool
	}{
		// The order.
		{"own block", func(s *etcd) { s.fill("10.0.0.4/30", "a", 2) }, v4, []string{"10.0.0.6 of a"}, nil},
		{"the own block claimed last", func(s *etcd) { s.fillAll("a", 1, "10.0.0.12/30", "10.0.0.4/30", "10.0.0.0/30") }, v4, []string{"10.0.0.1 of a"}, nil},
		{"an older own block when the last is full", func(s *etcd) {
			s.fill("10.0.0.4/30", "a", 1)
			s.fill("10.0.0.12/30", "a", 4)
		}, v4, []string{"10.0.0.5 of a"}, nil},
		{"new block when the own are full", func(s *etcd) {
			s.fillAll("a", 4, "10.0.0.0/30", "10.0.0.4/30")
			s.fill("10.0.0.12/30", "b", 0)
		}, v4, []string{"10.0.0.8 new"}, nil},
		{"empty block when there is no room", func(s *etcd) {
			s.fillAll("b", 1, quarters...)
			s.fill("10.0.0.8/30", "c", 0)
		}, v4, []string{"10.0.0.8 taken over from c"}, nil},
		{"not one that was empty a moment ago", func(s *etcd) {
			s.fillAll("b", 4, quarters...)
			s.fill("10.0.0.4/30", "c", 1)
			s.fill("10.0.0.8/30", "c", 0)
			s.edit("10.0.0.8/30", func(b *model.Block) { b.EmptySince = noon.Add(9*time.Minute + time.Second); b.StrictAffinity = true })
		}, v4, []string{"10.0.0.5 of c"}, nil},
		{"one that is empty since a time to come", func(s *etcd) {
			s.fillAll("b", 4, quarters...)
			s.fill("10.0.0.8/30", "c", 0)
			s.edit("10.0.0.8/30", func(b *model.Block) { b.EmptySince = noon.Add(24 * time.Hour) })
		}, v4, []string{"10.0.0.8 taken over from c"}, nil},
		{"unless its node has left, and nothing can be borrowed", func(s *etcd) {
			s.config(true, true)
			s.fillAll("b", 1, quarters...)
			s.fill("10.0.0.8/30", "gone", 0)
			s.edit("10.0.0.8/30", func(b *model.Block) { b.EmptySince = v4.Now })
		}, v4, []string{"10.0.0.8 taken over from gone"}, nil},
		{"empty block of nobody", func(s *etcd) {
			s.fillAll("b", 4, quarters...)
			s.fill("10.0.0.8/30", "", 0)
		}, v4, []string{"10.0.0.8 taken over from "}, nil},
		{"borrow", func(s *etcd) {
			s.fillAll("b", 4, quarters...)
			s.fill("10.0.0.8/30", "b", 3)
		}, v4, []string{"10.0.0.11 of b"}, nil},
		{"never from a strict block", func(s *etcd) {
			s.fillAll("b", 3, quarters...)
			for _, c := range quarters[1:] {
				s.edit(c, func(b *model.Block) { b.StrictAffinity = true })
			}
		}, v4, []string{"10.0.0.3 of b"}, nil},

		// Reservations.
		{"own block without its reserved addresses", func(s *etcd) { s.fill("10.0.0.4/30", "a", 1); s.reserve("r", "10.0.0.5/32") }, v4, []string{"10.0.0.6 of a"}, nil},
		{"an older own block when the rest of the last is reserved", func(s *etcd) {
			s.fill("10.0.0.4/30", "a", 1)
			s.fill("10.0.0.12/30", "a", 2)
			s.reserve("r", "10.0.0.14/31")
		}, v4, []string{"10.0.0.5 of a"}, nil},
		{"of the free addresses the one that was given back first", func(s *etcd) {
			s.fill("10.0.0.4/30", "a", 0)
			s.edit("10.0.0.4/30", func(b *model.Block) { b.Unallocated = []int{3, 1, 0, 2} })
			s.reserve("r", "10.0.0.7/32")
		}, v4, []string{"10.0.0.5 of a"}, nil},
		{"new block without its reserved addresses", func(s *etcd) { s.reserve("r", "10.0.0.0/32"); s.reserve("q", "10.0.0.1/32") }, v4, []string{"10.0.0.2 new"}, nil},
		{"no block all of whose addresses are reserved", func(s *etcd) { s.reserve("r", "10.0.0.0/31", "10.0.0.4/30"); s.reserve("q", "10.0.0.2/31") },
			v4, []string{"10.0.0.8 new"}, nil},
		{"nor the block of an affinity", func(s *etcd) {
			s.putText("/calico/ipam/v2/host/a/ipv4/block/10.0.0.12-30", "")
			s.reserve("r", "10.0.0.12/30")
		}, v4, []string{"10.0.0.0 new"}, nil},
		{"a large part of a pool is reserved", func(s *etcd) { s.reserve("r", "10.0.0.0/9", "10.128.0.0/10", "fd00::/17") }, both, []string{"10.192.0.0 new", "fd00:8000:: new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/8"), NodeSelector: "all()"}, {CIDR: cidr("fd00::/16")}}},
		{"another's empty block without its reserved addresses", func(s *etcd) {
			s.fillAll("b", 4, quarters...)
			s.fillAll("c", 0, "10.0.0.4/30", "10.0.0.8/30")
			s.reserve("r", "10.0.0.4/30", "10.0.0.8/31")
		}, v4, []string{"10.0.0.10 taken over from c"}, nil},
		{"borrow what isn't reserved", func(s *etcd) {
			s.fillAll("b", 4, quarters...)
			s.fillAll("b", 3, "10.0.0.8/30", "10.0.0.12/30")
			s.reserve("r", "10.0.0.11/32")
		}, v4, []string{"10.0.0.15 of b"}, nil},
		{"a leftover as it is, where its place is reserved", func(s *etcd) {
			s.fill("10.0.0.0/29", "b", 0)
			s.reserve("r", "10.0.0.0/30")
			s.fillAll("b", 4, "10.0.0.8/30", "10.0.0.12/30")
		}, v4, []string{"10.0.0.4 taken over from b"}, nil},
		{"for a tunnel", func(s *etcd) { s.fill("10.0.0.4/30", "a", 0); s.reserve("r", "10.0.0.4/31") },
			with(func(r *Request) { r.Tunnel, r.Picked, r.Pools4 = true, true, pools("10.0.0.0/28") }), []string{"10.0.0.6 of a"}, nil},
		{"again, and its address is reserved by now", func(s *etcd) { s.fill("10.0.0.4/30", "b", 3); s.reserve("r", "10.0.0.0/8") },
			with(func(r *Request) { r.Handle = "x.10.0.0.5" }), []string{"10.0.0.5 existing"}, nil},
		{"a reserved address by name", func(s *etcd) { s.reserve("r", "10.0.0.0/8") }, with(func(r *Request) { r.Addrs = []netip.Addr{addr("10.0.0.7")} }), []string{"10.0.0.7 new"}, nil},
		{"an address by name, and a reservation is invalid", func(s *etcd) { s.putText("/calico/ipam/v2/reservation/x", "{") },
			with(func(r *Request) { r.Addrs = []netip.Addr{addr("10.0.0.7")} }), []string{"10.0.0.7 new"}, nil},

		// Pools for some.
		{"a pool that nothing names", func(s *etcd) { s.fill("10.0.0.0/26", "a", 1) }, v4, []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26"), Manual: true}, {CIDR: cidr("10.9.0.0/26")}}},
		{"a manual pool by name", nil, with(func(r *Request) { r.Pools4 = pools("10.9.0.0/26") }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26")}, {CIDR: cidr("10.9.0.0/26"), Manual: true}}},
		{"an address of a manual pool, and any of the other family", nil, with(func(r *Request) { r.Addrs, r.IPv6 = []netip.Addr{addr("10.9.0.7")}, true }), []string{"10.9.0.7 new", "fd01::8 new"},
			[]model.Pool{{CIDR: cidr("10.9.0.0/26"), Manual: true}, {CIDR: cidr("fd00::/125"), Manual: true}, {CIDR: cidr("fd01::8/125")}}},
		{"a tunnel's own in a manual pool and one for some namespaces", nil, with(func(r *Request) { r.Tunnel, r.Picked, r.Pools4 = true, true, pools("10.9.0.0/26") }),
			[]string{"10.9.0.0 new"}, []model.Pool{{CIDR: cidr("10.9.0.0/26"), Manual: true, NamespaceSelector: "!all()"}}},
		{"namespace by label", func(s *etcd) { s.labels("web", map[string]string{"team": "x"}) }, with(func(r *Request) { r.Namespace = "web" }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26"), NamespaceSelector: `team == "y"`}, {CIDR: cidr("10.9.0.0/26"), NamespaceSelector: `team == "x"`}}},
		{"namespace by name", func(s *etcd) { s.labels("web", nil) }, with(func(r *Request) { r.Namespace = "web" }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26"), NamespaceSelector: `projectcalico.org/name == "db"`}, {CIDR: cidr("10.9.0.0/26"), NamespaceSelector: `projectcalico.org/name in {"web"}`}}},
		{"a pool for other nodes doesn't ask for the namespace", nil, with(func(r *Request) { r.Namespace = "new" }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26"), NodeSelector: "!all()", NamespaceSelector: "has(team)"}, {CIDR: cidr("10.9.0.0/26"), NamespaceSelector: "all()"}}},
		{"a pool for other namespaces by name", nil, with(func(r *Request) { r.Namespace, r.Pools4 = "new", pools("10.9.0.0/26") }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.9.0.0/26"), NamespaceSelector: "!all()"}}},
		{"no Kubernetes", nil, v4, []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26"), NamespaceSelector: "!has(team)"}, {CIDR: cidr("10.9.0.0/26"), NamespaceSelector: "all()"}}},
		{"whichever namespace", nil, with(func(r *Request) { r.Namespace = AnyNamespace }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.9.0.0/26"), NamespaceSelector: "has(team)", Manual: true}}},

		// The same handle.
		{"again", func(s *etcd) { s.fill("10.0.0.4/30", "b", 3) }, with(func(r *Request) { r.Handle = "x.10.0.0.5" }), []string{"10.0.0.5 existing"}, nil},
		{"again, and its pool is disabled", func(s *etcd) {
			s.fill("10.0.0.4/30", "a", 3)
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30, Disabled: true})
		}, with(func(r *Request) { r.Handle = "x.10.0.0.5" }), []string{"10.0.0.5 existing"}, nil},
		{"again, the missing family is added", func(s *etcd) {
			s.fill("10.0.0.4/30", "a", 3)
			s.fill("fd00::4/126", "a", 2)
		}, with(func(r *Request) { r.Handle = "x.10.0.0.5"; r.IPv6 = true }), []string{"10.0.0.5 existing", "fd00::6 of a"}, nil},
		{"a handle in its older place", func(s *etcd) {
			s.fill("10.0.0.4/30", "a", 1)
			s.remove(model.HandleKey{ID: "x.10.0.0.4"}.Path())
			s.putText("/calico/ipam/v2/assignment/handle/x.10.0.0.4", `{"block":{"10.0.0.4/30":1}}`)
		}, with(func(r *Request) { r.Handle = "x.10.0.0.4" }), []string{"10.0.0.4 existing"}, nil},

		// Pools.
		{"both families", nil, with(func(r *Request) { r.Host, r.IPv6 = "c", true }), []string{"10.0.0.8 new", "fd00::8 new"}, nil},
		{"requested pool", nil, with(func(r *Request) { r.Pools4 = pools("10.9.0.0/30") }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/24")}, {CIDR: cidr("10.9.0.0/30")}}},
		{"requested pools in the order requested", nil, with(func(r *Request) { r.Pools4 = pools("10.9.0.0/30", "10.0.0.0/26") }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26")}, {CIDR: cidr("10.9.0.0/30")}}},
		{"own block of a later requested pool first", func(s *etcd) { s.fill("10.0.0.0/26", "a", 1) },
			with(func(r *Request) { r.Pools4 = pools("10.9.0.0/30", "10.0.0.0/26") }), []string{"10.0.0.1 of a"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26")}, {CIDR: cidr("10.9.0.0/30")}}},
		{"the next pool when the first is full", func(s *etcd) { s.fill("10.0.0.0/30", "b", 4) }, v4, []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/30")}, {CIDR: cidr("10.9.0.0/30")}}},
		{"node selector", nil, v4, []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/24"), NodeSelector: `name == "b"`}, {CIDR: cidr("10.9.0.0/26"), NodeSelector: `name in {"a", "c"}`}}},
		{"a requested pool that picks no node", nil, with(func(r *Request) { r.Pools4 = pools("10.9.0.0/26") }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/24")}, {CIDR: cidr("10.9.0.0/26"), NodeSelector: `!all()`}}},
		{"nobody requests the pool that picks no node", func(s *etcd) { s.fill("10.9.0.0/26", "a", 1) }, v4, []string{"10.0.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26")}, {CIDR: cidr("10.9.0.0/26"), NodeSelector: `!all()`}}},
		{"requested pools that pick the node come first", nil, with(func(r *Request) { r.Pools4 = pools("10.9.0.0/26", "10.0.0.0/26", "10.1.0.0/26") }), []string{"10.0.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.9.0.0/26"), NodeSelector: `!all()`}, {CIDR: cidr("10.0.0.0/26"), NodeSelector: `name == "a"`}, {CIDR: cidr("10.1.0.0/26")}}},
		{"then the others, in the order requested", func(s *etcd) { s.fill("10.0.0.0/30", "b", 4) },
			with(func(r *Request) { r.Pools4 = pools("10.9.0.0/26", "10.1.0.0/26", "10.0.0.0/30") }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.9.0.0/26"), NodeSelector: `!all()`}, {CIDR: cidr("10.1.0.0/26"), NodeSelector: `!all()`}, {CIDR: cidr("10.0.0.0/30")}}},
		{"requested by name", nil, with(func(r *Request) { r.Pools4 = pools("public", "10.0.0.0-26") }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26")}, {CIDR: cidr("10.9.0.0/26"), Meta: model.Meta{Name: "public"}}}},
		{"requested by the name that its CIDR gives", nil, with(func(r *Request) { r.Pools4 = pools("10.9.0.0-26") }), []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26")}, {CIDR: cidr("10.9.0.0/26")}}},
		{"labels of the request win", nil, with(func(r *Request) { r.HostLabels = map[string]string{"name": "b"} }), []string{"10.0.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26"), NodeSelector: `name == "b"`}, {CIDR: cidr("10.9.0.0/26")}}},
		{"own block of a pool that was disabled", func(s *etcd) { s.fill("10.0.0.0/26", "a", 1) }, v4, []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/24"), Disabled: true}, {CIDR: cidr("10.9.0.0/26")}}},
		{"own block of a pool that was deleted", func(s *etcd) { s.fill("10.0.0.0/26", "a", 1) }, v4, []string{"10.9.0.0 new"},
			[]model.Pool{{CIDR: cidr("10.9.0.0/26")}}},
		{"pool smaller than a block", nil, both, []string{"10.0.0.8 new", "fd00::8 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.8/29")}, {CIDR: cidr("fd00::8/125")}}},
		{"pool of one address", nil, both, []string{"10.0.0.9 new", "fd00::9 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.9/32")}, {CIDR: cidr("fd00::9/128")}}},
		{"blocks of one address", nil, both, []string{"10.0.0.10 new", "fd00::8 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.8/30"), BlockSize: 32}, {CIDR: cidr("fd00::8/126"), BlockSize: 128}}},
		{"the largest blocks", nil, both, []string{"10.1.48.0 new", "fd00::a281:a000 new"},
			[]model.Pool{{CIDR: cidr("10.1.0.0/16"), BlockSize: 20}, {CIDR: cidr("fd00::/96"), BlockSize: 116}}},
		// Overlapping pools: a disabled one doesn't matter; of two others, the older one assigns.
		{"in a disabled pool", nil, v4, []string{"10.0.0.0 new"}, []model.Pool{{CIDR: cidr("10.0.0.0/16"), Disabled: true}, {CIDR: cidr("10.0.0.0/26")}}},
		{"around a disabled pool", nil, v4, []string{"10.0.0.0 new"}, []model.Pool{{CIDR: cidr("10.0.0.0/26")}, {CIDR: cidr("10.0.0.0/28"), Disabled: true}}},
		{"own block of a disabled pool inside", func(s *etcd) { s.fill("10.0.0.0/26", "a", 1) }, v4, []string{"10.0.0.1 of a"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/26"), Disabled: true}, {CIDR: cidr("10.0.0.0/24")}}},
		{"beside blocks of a disabled pool", func(s *etcd) { s.fill("10.0.0.0/28", "b", 1) }, v4, []string{"10.0.0.64 new"},
			[]model.Pool{{CIDR: cidr("10.0.0.0/25"), BlockSize: 28, Disabled: true}, {CIDR: cidr("10.0.0.0/25"), BlockSize: 26}}},
		{"in an older pool", nil, v4, []string{"10.0.0.0 new"}, []model.Pool{{CIDR: cidr("10.0.0.0/26"), BlockSize: 26}, {CIDR: cidr("10.0.0.0/28"), BlockSize: 28}}},
		{"around an older pool", nil, v4, []string{"10.0.0.0 new"}, []model.Pool{{CIDR: cidr("10.0.0.0/28")}, {CIDR: cidr("10.0.0.0/8")}}},
		{"never where another plugin gives", func(s *etcd) { s.othersPool("10.0.0.0/26") }, v4, []string{"10.0.0.64 new"}, []model.Pool{{CIDR: cidr("10.0.0.0/25")}}},

		// Blocks of another size, left by a pool that was changed.
		{"beside smaller blocks", func(s *etcd) { s.fillAll("b", 1, "10.0.0.3/32", "10.0.0.8/29") }, v4, []string{"10.0.0.4 new"}, nil},
		{"beside a larger block", func(s *etcd) { s.fill("10.0.0.8/29", "b", 8); s.fill("10.0.0.0/30", "b", 4) }, v4, []string{"10.0.0.4 new"}, nil},
		{"inside a much larger block", func(s *etcd) { s.fill("10.0.0.0/20", "b", 1) }, v4, []string{"10.0.16.0 new"},
			[]model.Pool{{CIDR: cidr("10.0.1.0/24")}, {CIDR: cidr("10.0.16.0/26")}}},

		// Invalid trees.
		{"an invalid own block is left alone", func(s *etcd) {
			s.fill("10.0.0.4/30", "a", 1)
			s.fill("10.0.0.8/30", "a", 1)
			s.putText("/calico/ipam/v2/assignment/ipv4/block/10.0.0.8-30", `{"cidr":"10.0.0.8/30","allocations":[7],"unallocated":[]}`)
		}, v4, []string{"10.0.0.5 of a"}, nil},
		{"an affinity without a block", func(s *etcd) { s.putText("/calico/ipam/v2/host/a/ipv4/block/10.0.0.12-30", "") }, v4, []string{"10.0.0.12 new"}, nil},
		{"an affinity to a block of somebody else", func(s *etcd) {
			s.fill("10.0.0.12/30", "b", 1)
			s.putText("/calico/ipam/v2/host/a/ipv4/block/10.0.0.12-30", "")
		}, v4, []string{"10.0.0.0 new"}, nil},
		{"an own block without the affinity", func(s *etcd) {
			s.fillAll("b", 1, quarters...)
			s.fill("10.0.0.12/30", "a", 1)
			s.remove("/calico/ipam/v2/host/a/ipv4/block/10.0.0.12-30")
		}, v4, []string{"10.0.0.13 of a"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := world(t, c.pools...)
			if c.setup != nil {
				c.setup(s)
			}
			choice, p, err := s.planAssign(c.request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, s.describe(choice, p)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			before := len(violations(s))
			if err := s.commit(p.Change()); err != nil {
				t.Fatal(err)
			}
			if after := violations(s); len(after) > before {
				t.Errorf("%v", after)
			}
		})
	}
}

func violations(s *etcd) []string {
	var out []string
	for _, v := range invariants.Check(s.dump()) {
		if !v.Note {
			out = append(out, v.String())
		}
	}
	return out
}

// Four nodes fill a tree and empty it again: every address is assigned once, and only empty blocks are left.
func TestFillAndEmpty(t *testing.T) {
	s := world(t)
	seen := map[netip.Addr]bool{}
	var handles []string
	for i := range 16 {
		h := fmt.Sprintf("net.c%d.eth0", i)
		choice, err := s.assign(Request{Host: fmt.Sprint(i % 4), Handle: h, IPv4: true, IPv6: true, Now: noon})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range choice.Addrs {
			if seen[a.Addr] {
				t.Errorf("%s is given out twice", a.Addr)
			}
			seen[a.Addr] = true
		}
		handles = append(handles, h)
		s.mustBeSound()
	}
	if len(seen) != 32 {
		t.Errorf("%d addresses, want 32", len(seen))
	}
	for _, h := range handles {
		if _, err := s.release(h, noon); err != nil {
			t.Fatal(err)
		}
		s.mustBeSound()
	}
	for _, e := range s.dump() {
		if b, ok := e.Value.(model.Block); ok && (!isEmpty(&b) || len(b.Attributes) > 0) {
			t.Errorf("block %s is left with %v", b.CIDR, b.Attributes)
		}
		if _, ok := e.Key.(model.HandleKey); ok {
			t.Errorf("%s is left", e.Path)
		}
	}
}
