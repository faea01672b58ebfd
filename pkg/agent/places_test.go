// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// randomState has pods, some with outer addresses, and host endpoints, that ask a
// few policies. The addresses are 10.0.0.0 to 15, the outer ones from 192.0.2.0.
func randomState(random *rand.Rand) *policy.State {
	st := &policy.State{Endpoints: map[string]*policy.Endpoint{}, Rules: map[policy.RulesID]*policy.Rules{}}
	var ids []policy.RulesID
	for i := range 4 {
		r := policy.Rules{ID: policy.RulesID{Kind: policy.KindPolicy, Name: fmt.Sprint("p", i)}}
		for range random.IntN(3) {
			rule := policy.Rule{Action: []model.Action{model.ActionAllow, model.ActionDeny}[random.IntN(2)], Match: policy.Criteria{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: 0, Max: uint16(random.IntN(4))}}}}
			r.Inbound, r.Outbound = append(r.Inbound, rule), append(r.Outbound, rule)
		}
		ids, st.Rules[r.ID] = append(ids, r.ID), &r
	}
	asks := func() policy.Verdicts {
		return policy.Verdicts{Policies: ids[random.IntN(len(ids)):][:1]}
	}
	add := func(ep policy.Endpoint) {
		ep.Path, ep.Inbound, ep.Outbound = fmt.Sprint("/", len(st.Endpoints)), asks(), asks()
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

// TestDenies compares with what Evaluate says of the whole state.
func TestDenies(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewPCG(seed, seed))
	settings := params.Resolve().Params.Firewall()
	denials := 0
	for range 300 {
		st := randomState(random)
		at := newPlaces(st, nil, nil, func(a netip.Addr) (string, error) {
			return []string{"", "eth0", "eth1"}[a.As4()[3]%3], nil
		})
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
			if got := at.denies(settings, f, query{}); got != want {
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

// TestDeniesLinkLocal: fe80::1:1 and fe80::2 are the host's on eth0, fe80::3 and
// fe80::2 on eth1, and eth0 is closed.
func TestDeniesLinkLocal(t *testing.T) {
	addr := netip.MustParseAddr
	own := []policy.Interface{{Name: "eth0", Addrs: []netip.Addr{addr("2001:db8::1"), addr("fe80::1:1"), addr("fe80::2")}}, {Name: "eth1", Addrs: []netip.Addr{addr("fe80::2"), addr("fe80::3")}}}
	closed := func(names ...string) *policy.State {
		st := &policy.State{Endpoints: map[string]*policy.Endpoint{}}
		for _, n := range names {
			st.Endpoints[n] = &policy.Endpoint{Path: n, Interface: n}
		}
		return st
	}
	for _, test := range []struct {
		src, dst  string
		one, both bool // denied where eth0 is closed, and where eth1 is as well
	}{
		{"fe80::99", "fe80::1:1", true, true},
		{"fe80::1:1", "fe80::99", true, true},
		{"fe80::1:1", "ff02::1", true, true},
		{"fe80::99", "fe80::3", false, true},
		{"fe80::3", "fe80::99", false, true},
		{"fe80::99", "fe80::2", false, true},
		{"fe80::99", "2001:db8::1", false, true},
		{"2001:db8::1", "fe80::99", false, true},
		{"fe80::99", "ff02::1", false, true},
		{"fe80::3", "fe80::1:1", false, false}, // from the host to itself
		{"2001:db8::9", "2001:db8::1", true, true},
	} {
		f := nft.Flow{Protocol: model.ProtocolTCP, Src: addr(test.src), Dst: addr(test.dst), SrcPort: 1000, DstPort: 80}
		for i, want := range []bool{test.one, test.both} {
			at := newPlaces(closed([]string{"eth0", "eth1"}[:i+1]...), nil, own, func(a netip.Addr) (string, error) {
				if a == addr("2001:db8::1") {
					return "", nil
				}
				return "eth0", nil
			})
			if got := at.denies(params.Resolve().Params.Firewall(), f, query{}); got != want {
				t.Errorf("%s to %s, closed %d: denied %t", test.src, test.dst, i+1, got)
			}
		}
	}
}
