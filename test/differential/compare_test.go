// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/policy"
)

// compare says how the kernel differs from Evaluate on a packet, "" = not at
// all. An error is the lab's: then the packet proves nothing.
func compare(s policy.Settings, st *policy.State, p probe, f fate) (diff string, r policy.Result, err error) {
	to := routes(st)
	packet := p.packet(outOf(to, p.Dst))
	if p.To != nil {
		// Untracked policy is asked before the destination is translated back, of a packet to the host: Evaluate isn't told of that.
		asked := policy.Evaluate(s, st, packet)
		if slices.ContainsFunc(asked.Trail, func(s policy.Step) bool { return s.Untracked }) {
			return "", asked, nil
		}
		packet.Out = outOf(to, p.To.Src) // which its destination stands for
	}
	switch f.state {
	case "", "new", "untracked":
	default:
		packet.Conn = policy.Conn(f.state)
	}
	r = policy.Evaluate(s, st, packet)
	if f.lost != "" {
		return "", r, fmt.Errorf("the packet got lost %s (Evaluate: %s)", f.lost, r.Verdict)
	}
	if p.Expect != "" && f.state != "" && f.state != "untracked" && f.state != p.Expect {
		return "", r, fmt.Errorf("connection tracking took the packet for %s, not for %s; it answers %v; seen: %s", f.state, p.Expect, p.To, strings.Join(f.seen, ", "))
	}
	if f.verdict != r.Verdict {
		return fmt.Sprintf("the kernel: %s; Evaluate: %s", f.verdict, r.Verdict), r, nil
	}
	if s.FlowLogGroup != 0 {
		var want []string
		for _, prefix := range r.Logged {
			want = append(want, policy.LogPrefix(prefix))
		}
		if !slices.Equal(want, f.logged) {
			return "logged prefixes (-Evaluate +kernel):\n" + cmp.Diff(want, f.logged), r, nil
		}
	}
	if f.verdict == policy.Accept {
		diff = compareAccepted(to, p, packet, f, r)
	}
	return diff, r, nil
}

func compareAccepted(to map[netip.Addr]string, p probe, packet policy.Packet, f fate, r policy.Result) string {
	if untracked := f.state == "untracked"; untracked != r.Untracked && !neighbourDiscovery(p) {
		return fmt.Sprintf("untracked: the kernel: %t; Evaluate: %t", untracked, r.Untracked)
	}
	if packet.Conn != policy.ConnNew {
		return compareAnswer(p, f)
	}
	dst := p.Dst
	if r.DNAT.IsValid() {
		dst = r.DNAT
	}
	if f.dst != dst {
		return fmt.Sprintf("destination: the kernel: %s; Evaluate: %s", f.dst, dst)
	}
	if out := outOf(to, dst); f.out != out && p.In+f.out != "" {
		return fmt.Sprintf("it left by %q, not by %q", f.out, out)
	}
	switch {
	case r.Masqueraded:
		if !slices.Contains(hostAddrs(versionOf(p.Src)), f.src) {
			return fmt.Sprintf("source: the kernel: %s; Evaluate: masqueraded", f.src)
		}
	case r.SNAT.IsValid():
		if f.src != r.SNAT {
			return fmt.Sprintf("source: the kernel: %s; Evaluate: %s", f.src, r.SNAT)
		}
	case f.src != p.Src:
		return fmt.Sprintf("source: the kernel: %s; Evaluate: %s", f.src, p.Src)
	}
	return ""
}

// compareAnswer: the addresses are those of the connection, not of a rule. Where
// the answer is for the host itself they are put back after the filter.
func compareAnswer(p probe, f fate) string {
	if p.About != nil && p.Src != p.Ends[1] {
		return "" // from another address of one of the ends
	}
	if p.To != nil && f.out != "" && (f.src != p.To.Dst || f.dst != p.To.Src) {
		return fmt.Sprintf("answer to %s: the kernel: %s -> %s", p.To, f.src, f.dst)
	}
	return ""
}

// neighbourDiscovery is what connection tracking leaves alone by itself
// (nf_conntrack_proto_icmpv6.c, noct_valid_new).
func neighbourDiscovery(p probe) bool {
	return p.icmp() && !p.Src.Is4() && (p.ICMPType >= 130 && p.ICMPType <= 136 || p.ICMPType == 143)
}
