// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestBound: a workload begins 3,000 connections with a bound of 500, and of less by its own: existing connections go on, and other
// workloads aren't affected.
func TestBound(t *testing.T) {
	netns.Host(t, func() {
		f, pod, other, sink := openSpaces(t)
		at := sink.listen(200)
		flow := func(s space, from int) {
			t.Helper()
			send(t, s, netip.AddrPortFrom(s.ep.Addrs[0], uint16(from)), netip.AddrPortFrom(sink.ep.Addrs[0], 200))
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
		flood(pod, sink, 10000, 3000)
		eventually.Nil(t, "the bound is told", func() error {
			names, err := f.Reached()
			if err == nil && !slices.Equal(names, []string{"cali1"}) {
				t.Fatalf("told of %q", names)
			}
			return err
		})
		if n := entries(t, pod); n > 500 || n < 400 {
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
		flood(other, sink, 10000, 300)
		if n := entries(t, other); n > 50+3 {
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

// TestSampledBound: with a large bound one connection in 16 is counted. A workload that begins 6,000 connections with a bound of 1,600 gets
// about as many. Repeated tries don't get it more, and connections that end make room.
func TestSampledBound(t *testing.T) {
	netns.Host(t, func() {
		f, pod, other, sink := openSpaces(t)
		if err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", []byte("3600"), 0o644); err != nil { // none ends by itself
			t.Fatal(err)
		}
		s := settings()
		s.MaxConnections = 1600
		f.Configure(s)
		mustApply(t, f)
		wantWrites(t, f, 0, 0)
		if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
			t.Errorf("desired (-) and in the kernel (+):\n%s", diff)
		}
		flood(pod, sink, 10000, 6000)
		// The 101st sample is dropped, and what follows. Of n connections as many samples as Binomial(n, 1/16) says: that there are
		// 101 of 950, or not of 2,551, has a probability of 2·10⁻⁷ and 1.4·10⁻⁷, less than five sigma of a normal distribution.
		had := entries(t, pod)
		if had < 950 || had > 2550 {
			t.Errorf("%d connections of a workload that may have 1600", had)
		}
		again := func(from, n int) {
			_ = exec.Command("nft", "delete", "element", "inet", TableName, "connections-full", `{ "cali1" }`).Run() // as after a second; it may have passed
			flood(pod, sink, from, n)
		}
		for i := range 5 {
			again(20000+100*i, 100)
		}
		if n := entries(t, pod); n != had {
			t.Errorf("%d connections have become %d, of a workload that has too many", had, n)
		}
		flood(other, sink, 10000, 500)
		if n := entries(t, other); n != 500 {
			t.Errorf("another workload that begins 500 connections has %d", n)
		}
		run(t, "conntrack", "-F")
		if again(30000, 1); entries(t, pod) != 1 {
			t.Error("a workload whose connections have ended can't begin one")
		}
		if text := run(t, "nft", "list", "set", "inet", TableName, "connections-next"); strings.Contains(text, "elements") {
			t.Errorf("all connections are counted from now on:\n%s", text)
		}
		s.MaxConnections = 1599 // each is counted
		f.Configure(s)
		mustApply(t, f)
		wantWrites(t, f, 0, 0)
		if text := listed(t); !strings.Contains(text, `"cali1" ct count over 1599`) || strings.Contains(text, "over 100") {
			t.Errorf("with a smaller bound:\n%s", text)
		}
	})
}

// openSpaces returns three workloads of a host that may send anything.
func openSpaces(t *testing.T) (f *Firewall, pod, other, sink space) {
	t.Helper()
	asHost(t)
	pod, other, sink = newSpace(t, 1, "cali1"), newSpace(t, 2, "cali2"), newSpace(t, 3, "cali3")
	all := policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
	for _, s := range []space{pod, other, sink} {
		s.ep.Inbound, s.ep.Outbound = all, all
	}
	f = open(t)
	f.Update(policy.Changes{Endpoints: endpoints(pod.ep, other.ep, sink.ep), Rules: rules(policy.Rules{
		ID: profileID("prod"), Inbound: []policy.Rule{{Action: model.ActionAllow}}, Outbound: []policy.Rule{{Action: model.ActionAllow}}})})
	return f, pod, other, sink
}

// flood begins n connections from consecutive ports.
func flood(s, to space, first, n int) {
	s.tb.Helper()
	s.do(func() {
		for i := range n {
			sendUDP(s.tb, netip.AddrPortFrom(s.ep.Addrs[0], uint16(first+i)), netip.AddrPortFrom(to.ep.Addrs[0], 200))
		}
	})
}

// entries returns how many of a workload's connections the host's table has.
func entries(tb testing.TB, s space) (n int) {
	tb.Helper()
	for line := range strings.Lines(readFile(tb, "/proc/thread-self/net/nf_conntrack")) {
		if strings.Contains(line, "src="+s.ep.Addrs[0].String()+" ") {
			n++
		}
	}
	return n
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
