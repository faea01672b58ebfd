// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/long"
	"github.com/calico-go/calico/test/netns"
)

// TestRangesWhileTheyChange sends without a pause packets that one of many networks denies, while the others change: none may arrive, not
// even when the policy is recreated under another name.
func TestRangesWhileTheyChange(t *testing.T) {
	long.Test(t)
	netns.Host(t, func() {
		asHost(t)
		a, b := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2")
		all := []policy.Rule{{Action: model.ActionAllow}}
		open1 := policy.Verdicts{Profiles: []policy.RulesID{profileID("open")}}
		a.ep.Inbound, a.ep.Outbound, b.ep.Outbound = open1, open1, open1
		state := func(name string, n int) policy.Changes {
			var nets [2][]netip.Prefix
			for i := range 3000 {
				nets[0] = append(nets[0], netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(n), byte(i >> 7), byte(i << 1)}), 32))
				nets[1] = append(nets[1], netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0x20, 3: byte(n), 4: byte(i >> 7), 5: byte(i << 1)}), 64))
			}
			deny := policy.Criteria{SrcNets: append(append(cidrs("10.65.0.1/32", "fd00::1/128"), nets[0]...), nets[1]...)}
			b.ep.Inbound = policy.Verdicts{Policies: []policy.RulesID{policyID(name)}}
			ep := *b.ep
			return policy.Changes{Endpoints: endpoints(a.ep, &ep), Rules: rules(
				policy.Rules{ID: profileID("open"), Inbound: all, Outbound: all},
				policy.Rules{ID: policyID(name), Inbound: []policy.Rule{{Action: model.ActionDeny, Match: deny}, all[0]}})}
		}
		f := open(t)
		f.Update(state("web", 0))
		mustApply(t, f)
		at, stop := b.listen(80), sendWithoutPause(t, a, b.ep.Addrs)
		for n := range 10 {
			c := state("web", n+1)
			if n >= 7 {
				c = state(strings.Repeat("x", n), n)
			}
			f.Update(c)
			mustApply(t, f)
			if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
				t.Fatalf("-ours +nft's:\n%s", diff)
			}
		}
		stop()
		if waits(t, at) {
			t.Error("what is denied has arrived")
		}
	})
}

// sendWithoutPause sends packets to port 80 of addresses until it is stopped.
func sendWithoutPause(t *testing.T, from space, addrs []netip.Addr) (stop func()) {
	var sending sync.WaitGroup
	stopped := make(chan struct{})
	for _, to := range addrs {
		var c net.Conn
		from.do(func() {
			var err error
			if c, err = net.Dial("udp", netip.AddrPortFrom(to, 80).String()); err != nil {
				t.Errorf("%s: %v", to, err)
			}
		})
		sending.Go(func() {
			defer c.Close()
			for {
				select {
				case <-stopped:
					return
				default:
					_, _ = c.Write([]byte("denied"))
				}
			}
		})
	}
	return func() { close(stopped); sending.Wait() }
}

// TestNetworksWhileTheyChange does the same with a set whose other networks change, or go and come again in a new set.
func TestNetworksWhileTheyChange(t *testing.T) {
	long.Test(t)
	netns.Host(t, func() {
		asHost(t)
		a, b := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2")
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(a.ep)})
		f.Update(netsWorld(b.ep, policyID("web"), model.ActionDeny, model.ActionAllow))
		f.Update(netsChange("10.65.0.1/32", "fd00::1/128"))
		mustApply(t, f)
		at, stop := b.listen(80), sendWithoutPause(t, a, b.ep.Addrs)
		for n := range 40 {
			c := netsChange("10.65.0.0/30", "fd00::/126")
			set := c.Sets["known"]
			switch n % 4 {
			case 0:
				for i := range 1000 {
					set.Nets = append(set.Nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(n), byte(i >> 7), byte(i << 1)}), 32))
				}
			case 1:
				set.Nets = cidrs("0.0.0.0/0", "::/0")
			case 2: // only addresses
				set.Nets, set.Added = nil, []policy.Member{{Addr: a.ep.Addrs[0]}, {Addr: a.ep.Addrs[1]}}
			case 3: // only networks, but both at first: what comes and what goes are two changes, which have no order in one transaction
				f.Update(netsChange("10.65.0.0/30", "fd00::/126"))
				mustApply(t, f)
				set.Removed = []policy.Member{{Addr: a.ep.Addrs[0]}, {Addr: a.ep.Addrs[1]}}
			}
			f.Update(c)
			mustApply(t, f)
		}
		stop()
		if waits(t, at) {
			t.Error("what is denied has arrived")
		}
	})
}
