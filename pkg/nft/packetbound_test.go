// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/eventually"
	"github.com/calico-go/calico/test/netns"
)

// TestBound has a workload begin 3,000 connections where it may have 500, and less by its own bound: those that are there go on, and other
// workloads aren't bothered.
func TestBound(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		pod, other, sink := newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2"), newSpace(t, 3, "cali3")
		all := policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		for _, s := range []space{pod, other, sink} {
			s.ep.Inbound, s.ep.Outbound = all, all
		}
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(pod.ep, other.ep, sink.ep), Rules: rules(policy.Rules{
			ID: profileID("prod"), Inbound: []policy.Rule{{Action: model.ActionAllow}}, Outbound: []policy.Rule{{Action: model.ActionAllow}}})})
		at := sink.listen(200)
		flow := func(s space, from int) {
			t.Helper()
			send(t, s, netip.AddrPortFrom(s.ep.Addrs[0], uint16(from)), netip.AddrPortFrom(sink.ep.Addrs[0], 200))
		}
		entries := func(s space) (n int) {
			t.Helper()
			for line := range strings.Lines(readFile(t, "/proc/thread-self/net/nf_conntrack")) {
				if strings.Contains(line, "src="+s.ep.Addrs[0].String()+" ") {
					n++
				}
			}
			return n
		}
		arrives := func(s space, from int) bool {
			for waits(t, at) {
				_, _, _ = at.ReadFrom(make([]byte, 10))
			}
			flow(s, from)
			flow(other, 999) // is sent later, and arrives later
			for {
				_, who, err := readWithin(at, make([]byte, 10))
				if err != nil {
					t.Fatal(err)
				}
				if who.String() == netip.AddrPortFrom(other.ep.Addrs[0], 999).String() {
					return false
				}
				if who.String() == netip.AddrPortFrom(s.ep.Addrs[0], uint16(from)).String() {
					return true
				}
			}
		}
		mustApply(t, f)
		if text := listed(t); strings.Contains(text, "connections-full") {
			t.Errorf("without a bound:\n%s", text)
		}
		s := settings()
		s.MaxConnections, s.FlowLogGroup = 500, 5
		f.Configure(s)
		mustApply(t, f)
		wantWrites(t, f, 0, 0)
		f.Audit()
		wantWrites(t, f, 0, 0)
		flood := func(s space, n int) {
			s.do(func() {
				for i := range n {
					sendUDP(t, netip.AddrPortFrom(s.ep.Addrs[0], uint16(10000+i)), netip.AddrPortFrom(sink.ep.Addrs[0], 200))
				}
			})
		}
		flood(pod, 3000)
		eventually.Nil(t, "the bound is told", func() error {
			names, err := f.Reached()
			if err == nil && !slices.Equal(names, []string{"cali1"}) {
				t.Fatalf("told of %q", names)
			}
			return err
		})
		if n := entries(pod); n > 500 || n < 400 {
			t.Errorf("%d connections of a workload that may have 500", n)
		}
		if !arrives(pod, 10000) {
			t.Error("a connection that was there doesn't go on")
		}
		if !arrives(other, 1000) {
			t.Error("another workload is bothered")
		}
		if n := count(t, "workload-connections", "too many connections, as a moment ago") + count(t, "connections-over", "too many connections"); n < 2000 {
			t.Errorf("%d packets are counted", n)
		}
		// An endpoint's own bound counts where it is less.
		less := *other.ep
		less.MaxConnections = 50
		f.Update(policy.Changes{Endpoints: endpoints(&less)})
		mustApply(t, f)
		flood(other, 300)
		if n := entries(other); n > 50+3 {
			t.Errorf("%d connections of a workload that may have 50", n)
		}
		f.Configure(settings())
		f.Update(policy.Changes{Endpoints: endpoints(other.ep)})
		mustApply(t, f)
		if text := listed(t); strings.Contains(text, "connections-full") {
			t.Errorf("without a bound again:\n%s", text)
		}
	})
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
