// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/long"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/scale"
)

// extreme returns a rule with many of all possible matches.
func (d dice) extreme() model.Rule {
	r := model.Rule{Action: []model.Action{model.ActionAllow, model.ActionDeny, model.ActionLog, model.ActionNextTier}[d.n(4)], LogPrefix: "x"}
	r.Match, r.Not = d.extremeMatch("is"), d.extremeMatch("not")
	r.Match.Protocol, r.Not.Protocol = model.ProtocolTCP, model.Protocol(99)
	return r
}

func (d dice) extremeMatch(what string) model.Match {
	return model.Match{
		SrcTag: what + "-src", DstTag: what + "-dst", HasSrcSelector: true, SrcSelector: "has(" + what + "-src)", DstSelector: "has(" + what + "-dst)",
		SrcNets: d.extremeNets(), DstNets: d.extremeNets(), SrcPorts: d.extremePorts(), DstPorts: d.extremePorts(),
	}
}

func (d dice) extremeNets() []netip.Prefix {
	var out []netip.Prefix
	for i := range d.n(60) {
		out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(2 * i)}), 17), netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 2: byte(2 * i)}), 33))
	}
	return out
}

func (d dice) extremePorts() []model.Port {
	var out []model.Port
	for i := range d.n(40) {
		out = append(out, model.Port{Min: uint16(4 * i), Max: uint16(4*i + d.n(2))})
	}
	for i := range d.n(70) >> d.n(4) {
		out = append(out, model.Port{Name: fmt.Sprint("p", i)})
	}
	return out
}

// worst returns the longest rules that the data model accepts.
func worst() []model.Rule {
	d := dice{func() byte { return 59 }}
	names := func(n int) []model.Port {
		out := []model.Port{{Min: 1, Max: 2}, {Min: 4, Max: 5}}
		for i := range n {
			out = append(out, model.Port{Name: fmt.Sprint("p", i)})
		}
		return out
	}
	not, log := d.extreme(), d.extreme()
	not.Action, log.Action = model.ActionAllow, model.ActionLog
	not.Match.SrcPorts, not.Match.DstPorts, not.Not.SrcPorts, not.Not.DstPorts = names(15), names(15), names(16), names(16)
	log.Match.SrcPorts, log.Match.DstPorts, log.Not.SrcPorts, log.Not.DstPorts = names(8), names(8), names(8), names(8)
	alone := model.Rule{Action: model.ActionLog, Match: model.Match{Protocol: model.ProtocolTCP, DstPorts: names(32)}}
	return []model.Rule{not, log, alone}
}

// compiled returns a policy's rules and their sets as the engine has them; nil if the data model refuses one.
func compiled(t *testing.T, list ...model.Rule) policy.Changes {
	t.Helper()
	p := model.Policy{Selector: "all()", Inbound: list}
	if _, err := model.FormatValue(p); err != nil {
		return policy.Changes{}
	}
	c := scale.Make(scale.Size{Endpoints: 1, Local: 1, Policies: 1, Profiles: 1})
	e := policy.NewEngine(scale.Host)
	e.SetPrefixes([]string{"cali"})
	e.Update(c.Endpoints...)
	key := model.PolicyKey{Tier: "default", Policy: "p"}
	e.Update(model.Entry{Path: key.Path(), Key: key, Value: p, Revision: 1})
	for i, label := range []string{"is-src", "is-dst", "not-src", "not-dst"} {
		key := model.NetworkSetKey{Name: label}
		nets := cidrs(fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("2001:db8:%d::/48", i))
		e.Update(model.Entry{Path: key.Path(), Key: key, Value: model.NetworkSet{Nets: nets, Labels: map[string]string{label: ""}}, Revision: 1})
	}
	return e.Flush()
}

// wantShort expects no rule that the kernel would refuse, and none that says less than the policy, be they few or many.
func wantShort(t *testing.T, list []policy.Rule) {
	t.Helper()
	s := settings()
	s.FlowLogGroup = 1
	d := newDesired()
	d.settings = s
	x := d.renderer()
	x.Known = func(policy.SetID) bool { return true }
	x.Nets = func(id policy.SetID, _ int) bool { return strings.HasPrefix(string(id), "s-") }
	for _, more := range []int{0, 500} {
		all := slices.Concat(list, slices.Repeat([]policy.Rule{{Action: model.ActionDeny}}, more))
		for _, r := range x.Rules(policyID("p"), &policy.Rules{Inbound: all}, model.Inbound).Rules {
			if !nfnl.Fits(r.Do...) || strings.Contains(r.Comment, "cannot be expressed") {
				t.Fatalf("the kernel has no room for: %s", r)
			}
		}
	}
}

// FuzzExtreme: what the data model accepts is never too long for the kernel.
func FuzzExtreme(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 3))
	for range 30 {
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := dice{func() byte {
			if len(b) == 0 {
				return 0
			}
			c := b[0]
			b = b[1:]
			return c
		}}
		c := compiled(t, d.extreme())
		if r := c.Rules[policyID("p")]; r != nil {
			wantShort(t, r.Inbound)
		}
	})
}

// TestKernelTakesTheWorst writes the longest rules to the kernel, and expects the nft tool to print them as we do.
func TestKernelTakesTheWorst(t *testing.T) {
	long.Test(t)
	netns.Host(t, func() {
		c := compiled(t, worst()...)
		r := c.Rules[policyID("p")]
		if r == nil || r.Invalid != "" {
			t.Fatalf("got %+v, want rules", r)
		}
		wantShort(t, r.Inbound)
		f := open(t)
		f.Update(c)
		mustApply(t, f)
		if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
			t.Errorf("-ours +nft's:\n%s", diff)
		}
	})
}

// TestManyPrefixes writes as many interface prefixes to the kernel as are allowed, with and without an endpoint for all interfaces that are
// no workload's.
func TestManyPrefixes(t *testing.T) {
	s := settings()
	s.Prefixes = nil
	for i := range MaxPrefixes {
		s.Prefixes = append(s.Prefixes, fmt.Sprintf("workload-nr-%03d", i))
	}
	netns.Host(t, func() {
		f := open(t)
		f.Configure(s)
		mustApply(t, f)
		c := sample()
		for path, ep := range c.Endpoints {
			if ep.Workload {
				delete(c.Endpoints, path)
			}
		}
		f.Update(c)
		mustApply(t, f)
		s.Prefixes = append(s.Prefixes, "cali")
		f.Configure(s)
		if _, err := f.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "17 prefixes of workload interfaces: at most 16") {
			t.Errorf("got %v", err)
		}
	})
}
