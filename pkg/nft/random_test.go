// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// dice turns bytes into choices; when they run out, everything is 0.
type dice struct{ next func() byte }

func (d dice) n(n int) int { return int(d.next()) % n }

func (d dice) one(in int) bool { return d.n(in) == 0 }

func (d dice) prefix() netip.Prefix {
	a := netip.AddrFrom4([4]byte{10, d.next(), d.next(), d.next()})
	if d.one(3) {
		a = netip.AddrFrom16([16]byte{0: 0xfd, 14: d.next(), 15: d.next()})
	}
	if d.one(4) { // a part of all there are, which others may be the rest of
		a, _ = netip.AddrFromSlice(append([]byte{d.next()}, a.AsSlice()[1:]...))
		return netip.PrefixFrom(a, d.n(3))
	}
	return netip.PrefixFrom(a, d.n(a.BitLen()+1))
}

func (d dice) criteria(protocol model.Protocol) policy.Criteria {
	c := policy.Criteria{}
	if protocol == 0 && d.one(2) {
		c.Protocol = []model.Protocol{1, 6, 17, 58, 132, 136, 253, 255}[d.n(8)]
	}
	if protocol == 0 {
		protocol = c.Protocol
	}
	for range d.n(8) {
		switch d.n(10) {
		case 0:
			c.SrcSets = append(c.SrcSets, policy.SetID([]string{"a", "b", "gone"}[d.n(3)]))
		case 1:
			c.DstSets = append(c.DstSets, policy.SetID([]string{"a", "b", "gone"}[d.n(3)]))
		case 2:
			c.SrcNets = append(c.SrcNets, d.prefix())
		case 3:
			c.DstNets = append(c.DstNets, d.prefix(), d.prefix(), d.prefix(), d.prefix())
		case 4, 5, 6:
			if !protocol.HasPorts() && !d.one(20) {
				continue
			}
			p := model.Port{Min: uint16(d.next()) << 8}
			p.Max = p.Min | uint16(d.next())
			c.DstPorts = append(c.DstPorts, p)
			if d.one(3) {
				c.SrcPorts = append(c.SrcPorts, p, model.Port{Max: 65535 * uint16(d.n(2))})
			}
			if d.one(3) {
				c.DstPortSets = append(c.DstPortSets, policy.SetID([]string{"p", "q", "lost"}[d.n(3)]))
				c.SrcPortSets = c.DstPortSets
			}
		default:
			if protocol != 1 && protocol != 58 && !d.one(20) {
				continue
			}
			c.ICMPType, c.ICMPCode = byteOf(d.next()), nil
			if d.one(2) {
				c.ICMPCode = byteOf(d.next())
			}
		}
	}
	return c
}

func (d dice) rule() policy.Rule {
	r := policy.Rule{
		Action:    []model.Action{model.ActionAllow, model.ActionDeny, model.ActionLog, model.ActionNextTier, "?"}[min(4, d.n(40)/9)],
		IPVersion: []int{0, 0, 4, 6}[d.n(4)],
	}
	r.Match = d.criteria(0)
	r.Not = d.criteria(r.Match.Protocol)
	if d.one(3) {
		r.LogPrefix = string([]byte{d.next(), 'x', d.next()})
	}
	return r
}

func (d dice) rules(id policy.RulesID, n int) policy.Rules {
	r := policy.Rules{ID: id}
	for range n {
		r.Inbound = append(r.Inbound, d.rule())
	}
	return r
}

var randomSets = map[policy.SetID]*policy.SetChange{
	"a": {Kind: policy.KindAddrs, New: true}, "b": {Kind: policy.KindAddrs, New: true},
	"p": {Kind: policy.KindPorts, New: true}, "q": {Kind: policy.KindPorts, New: true},
}

// FuzzRender: any rules can be rendered and encoded.
func FuzzRender(f *testing.F) {
	f.Add([]byte("some bytes to start with"), "name")
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, "\x00\"\n\xff")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		d := dice{func() byte {
			if len(b) == 0 {
				return 0
			}
			c := b[0]
			b = b[1:]
			return c
		}}
		r := d.rules(policyID(name), 5)
		r.Outbound = r.Inbound
		w := &Firewall{desired: newDesired()}
		w.Configure(settings())
		w.Update(policy.Changes{Rules: rules(r), Sets: randomSets, Endpoints: endpoints(workload(1, name))})
		if text := w.Table().String(); strings.Count(text, "\t{") > 0 {
			t.Errorf("odd text:\n%s", text)
		}
		if _, err := w.desired.ruleset.plan(new(nfnl.Conn).NewBatch()); err != nil {
			t.Error(err)
		}
	})
}

// TestKernelTakesAnyRules applies random rules. The kernel must accept all of them, and the nft tool print what we print.
func TestKernelTakesAnyRules(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	d := dice{func() byte { return byte(random.Uint32()) }}
	for round := range 20 {
		netns.Host(t, func() {
			f := open(t)
			s := settings()
			s.FlowLogGroup = uint16(round % 2)
			f.Configure(s)
			c := policy.Changes{Endpoints: endpoints(), Sets: randomSets, Rules: rules()}
			for i := range 5 {
				ep := workload(i, fmt.Sprint("p", i), fmt.Sprint("p", (i+1)%5))
				c.Endpoints[ep.Path] = ep
				r := d.rules(policyID(fmt.Sprint("p", i)), 30)
				c.Rules[r.ID] = &r
			}
			f.Update(c)
			mustApply(t, f)
			if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
				t.Errorf("seed %d, round %d: -ours +nft's:\n%s", seed, round, diff)
			}
			// And changed, by other random rules.
			r := d.rules(policyID("p0"), 30)
			r.Inbound = append(r.Inbound[:10:10], c.Rules[policyID("p0")].Inbound[5:20]...)
			f.Update(policy.Changes{Rules: rules(r)})
			mustApply(t, f)
			f.Audit()
			f.generation = 0 // read all
			wantWrites(t, f, 0, 0)
		})
	}
}
