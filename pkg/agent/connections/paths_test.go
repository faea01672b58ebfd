// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// randomState returns pods, some with outer addresses, and host endpoints, with a few policies. The addresses are 10.0.0.0 to 15, the outer
// ones from 192.0.2.0.
func randomState(random *rand.Rand) *policy.State {
	st := &policy.State{Endpoints: map[string]*policy.Endpoint{}, Rules: map[policy.RulesID]*policy.Rules{}}
	var ids []policy.RulesID
	for i := range 4 {
		r := policy.Rules{ID: policy.RulesID{Kind: policy.KindPolicy, Tier: "default", Name: fmt.Sprint("p", i)}}
		for range random.IntN(3) {
			rule := policy.Rule{Action: []model.Action{model.ActionAllow, model.ActionDeny}[random.IntN(2)], Match: policy.Criteria{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: 0, Max: uint16(random.IntN(4))}}}}
			r.Inbound, r.Outbound = append(r.Inbound, rule), append(r.Outbound, rule)
		}
		ids, st.Rules[r.ID] = append(ids, r.ID), &r
	}
	chosen := func() policy.Verdicts {
		return policy.Verdicts{Policies: ids[random.IntN(len(ids)):][:1]}
	}
	add := func(ep policy.Endpoint) {
		ep.Path, ep.Inbound, ep.Outbound = fmt.Sprint("/", len(st.Endpoints)), chosen(), chosen()
		st.Endpoints[ep.Path] = &ep
	}
	for i := range byte(random.IntN(8)) {
		ep := policy.Endpoint{Workload: true, Interface: fmt.Sprint("cali", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, i})}}
		if random.IntN(3) == 0 {
			ep.NAT = []model.NAT{{IntIP: ep.Addrs[0], ExtIP: netip.AddrFrom4([4]byte{192, 0, 2, i})}}
		}
		add(ep)
	}
	for i := range random.IntN(3) {
		add(policy.Endpoint{Interface: fmt.Sprint("eth", i)})
	}
	if random.IntN(4) == 0 {
		add(policy.Endpoint{Wildcard: true})
	}
	return st
}

// testRoutes finds routes without a kernel.
type testRoutes func(to, from netip.Addr) ([]string, error)

func (r testRoutes) To(to, from netip.Addr) ([]string, error) { return r(to, from) }
func (testRoutes) Close()                                     {}

// policyOf returns a policy with the default settings.
func policyOf(st *policy.State, own ...policy.Interface) board.Enforced {
	return board.Enforced{State: st, Settings: params.Resolve().Params.Firewall(), Interfaces: own}
}

// TestDeniesRouted covers a host with an address on each of two uplinks, either of which may be closed: the route is looked up from the
// connection's own address.
func TestDeniesRouted(t *testing.T) {
	addr := netip.MustParseAddr
	own := []policy.Interface{{Name: "eth0", Addrs: []netip.Addr{addr("192.0.2.1")}}, {Name: "eth1", Addrs: []netip.Addr{addr("198.51.100.1")}}}
	routes := testRoutes(func(to, from netip.Addr) ([]string, error) {
		switch {
		case to == addr("192.0.2.200"): // the host's by a route alone
			return []string{""}, nil
		case to == addr("203.0.113.1"):
			return []string{"eth0", "eth1"}, nil
		case to == addr("203.0.113.2"):
			return nil, os.ErrNotExist
		case from == addr("198.51.100.1"):
			return []string{"eth1"}, nil
		}
		return []string{"eth0"}, nil
	})
	for _, test := range []struct {
		one, far        string
		eth0, eth1, all bool // denied where the one is closed, or the wildcard, which is asked of what is forwarded too
	}{
		{"192.0.2.1", "203.0.113.9", true, false, true},
		{"198.51.100.1", "203.0.113.9", false, true, true},
		{"192.0.2.200", "203.0.113.9", true, false, true},
		{"192.0.2.1", "203.0.113.1", false, false, true}, // by either; no endpoint but those two
		{"192.0.2.1", "203.0.113.2", true, true, true},
		{"203.0.113.8", "203.0.113.9", false, false, true}, // forwarded
	} {
		for i, want := range []bool{test.eth0, test.eth1, test.all} {
			ep := &policy.Endpoint{Path: "/", Interface: fmt.Sprint("eth", i), Wildcard: i == 2}
			if ep.Wildcard {
				ep.Interface, ep.ForwardInbound = "", policy.Verdicts{Policies: []policy.RulesID{{Kind: policy.KindPolicy, Tier: model.DefaultTier, Name: "missing"}}}
			}
			at := newPaths(policyOf(&policy.State{Endpoints: map[string]*policy.Endpoint{"/": ep}}, own...), routes)
			for _, f := range []nft.Flow{
				{Protocol: model.ProtocolTCP, Src: addr(test.one), Dst: addr(test.far), SrcPort: 1000, DstPort: 80},
				{Protocol: model.ProtocolTCP, Src: addr(test.far), Dst: addr(test.one), SrcPort: 1000, DstPort: 80},
			} {
				if got := at.denies(f, query{}); got != want {
					t.Errorf("%s to %s, closed eth%d: denied %t", f.Src, f.Dst, i, got)
				}
			}
		}
	}
	both := &policy.State{Endpoints: map[string]*policy.Endpoint{"/0": {Path: "/0", Interface: "eth0"}, "/1": {Path: "/1", Interface: "eth1"}}}
	f := nft.Flow{Protocol: model.ProtocolTCP, Src: addr("192.0.2.1"), Dst: addr("203.0.113.1"), SrcPort: 1000, DstPort: 80}
	if !newPaths(policyOf(both, own...), routes).denies(f, query{}) {
		t.Error("by two next hops, both closed: allowed")
	}
}

// TestDeniesTunnelled covers another host's pod beyond a tunnel. Its packets to the host's own address come through eth0, those to the
// tunnel's address through the tunnel.
func TestDeniesTunnelled(t *testing.T) {
	addr := netip.MustParseAddr
	pod, host, tunnel, loopback := addr("10.0.1.1"), addr("192.0.2.1"), addr("10.0.0.0"), addr("203.0.113.1")
	own := []policy.Interface{{Name: "lo", Addrs: []netip.Addr{loopback}}, {Name: "eth0", Addrs: []netip.Addr{host}}, {Name: link.VXLAN4, Addrs: []netip.Addr{tunnel}}}
	routes := testRoutes(func(netip.Addr, netip.Addr) ([]string, error) { return []string{link.VXLAN4}, nil })
	for _, test := range []struct {
		src, dst    netip.Addr
		eth0, vxlan bool // denied where the one is closed
	}{
		{pod, host, true, false},
		{pod, tunnel, false, true},
		{pod, loopback, true, true}, // by whichever can be closed
		{host, pod, false, true},
		{tunnel, pod, false, true},
	} {
		f := nft.Flow{Protocol: model.ProtocolTCP, Src: test.src, Dst: test.dst, SrcPort: 1000, DstPort: 80}
		for name, want := range map[string]bool{"eth0": test.eth0, link.VXLAN4: test.vxlan, "eth1": test.dst == loopback} {
			st := &policy.State{Endpoints: map[string]*policy.Endpoint{"/": {Path: "/", Interface: name}}}
			if got := newPaths(policyOf(st, own...), routes).denies(f, query{}); got != want {
				t.Errorf("%s to %s, closed %s: denied %t", f.Src, f.Dst, name, got)
			}
		}
	}
}

// TestDenies compares with Evaluate's result for the whole state.
func TestDenies(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewPCG(seed, seed))
	settings := params.Resolve().Params.Firewall()
	denials := 0
	for range 300 {
		st := randomState(random)
		at := newPaths(policyOf(st), testRoutes(func(to, _ netip.Addr) ([]string, error) {
			return []string{"", "eth0", "eth1"}[to.As4()[3]%3:][:1], nil
		}))
		for range 100 {
			f := nft.Flow{Protocol: model.ProtocolTCP, Src: netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(16))}), Dst: netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(16))}),
				SrcPort: 1000, DstPort: uint16(random.IntN(5))}
			if random.IntN(4) == 0 {
				f.Dst = netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(8))})
			}
			packets := at.packets(f, query{})
			want := len(packets) > 0 && policy.Evaluate(settings, st, packets[0]).Verdict == policy.Drop
			if len(packets) > 1 {
				t.Errorf("%+v: %+v", f, packets)
			}
			if got := at.denies(f, query{}); got != want {
				t.Errorf("seed %d: %+v: denied %t, want %t", seed, f, got, want)
			}
			if want {
				denials++
			}
		}
	}
	if denials == 0 || denials == 300*100 {
		t.Errorf("%d denials", denials)
	}
}
