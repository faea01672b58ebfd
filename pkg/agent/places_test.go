// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

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
	settings := resolve().params.Firewall()
	denials := 0
	for range 300 {
		st := randomState(random)
		at := newPlaces(st, func(a netip.Addr) (string, error) {
			return []string{"", "eth0", "eth1"}[a.As4()[3]%3], nil
		})
		for range 100 {
			f := nft.Flow{Protocol: model.ProtocolTCP, Src: netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(16))}), Dst: netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(16))}),
				SrcPort: 1000, DstPort: uint16(random.IntN(5))}
			if random.IntN(4) == 0 {
				f.Dst = netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(8))})
			}
			packet, ok := at.packet(f)
			want := ok && policy.Evaluate(settings, st, packet).Verdict == policy.Drop
			if got := at.denies(settings, f); got != want {
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
