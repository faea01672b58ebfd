// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
)

// coarse is what the other side of a connection sends, whatever the ports.
func coarse(t conntrack.Tracked) nft.Flow {
	f := backOf(t)
	f.SrcPort, f.DstPort, f.AnyPorts = 0, 0, true
	return f
}

// TestCutMany has more cut between two pods than is kept by ports: none of it may
// begin anew, for as long as policy denies one of them, and nobody else is hit.
func TestCutMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(x *cutting) { x.cuts.limits.pair = 2 })
		first, second, third := tcp("10.0.0.1", 1001, "10.0.0.2", 81), tcp("10.0.0.1", 1002, "10.0.0.2", 82), tcp("10.0.0.1", 1003, "10.0.0.2", 83)
		other := tcp("10.0.0.3", 1003, "10.0.0.2", 83)
		x.set(first)
		x.policy("no-81", to(81))
		x.set(second, third, other)
		x.policy("no-81", to(81), to(82), to(83))
		x.expectCut("one for all", nil, coarse(first), backOf(other))
		x.policy("no-81", to(82))
		x.expectCut("one is denied still", nil, coarse(first))
		x.policy("no-81")
		x.expectCut("allowed", nil)
		x.set(backwards(third), backwards(other))
		x.policy("no-81", to(83))
		x.expectCut("begun by the other side and denied again", nil, coarse(first), backOf(other))
		x.drop("no-81")
		x.expectCut("allowed again", nil)
		x.write(gone(testKey("a")))
		x.policy("no-81", to(83))
		x.expectCut("without the one pod", nil, backOf(other))
	})
}

// udp is a connection that was answered, or not.
func udp(src string, srcPort uint16, dst string, dstPort uint16, answered bool) conntrack.Tracked {
	t := tcp(src, srcPort, dst, dstPort)
	t.Protocol, t.Replied, t.Timeout = model.ProtocolUDP, answered, 30*time.Second
	return t
}

// TestCutService has a service with many clients be denied, and a client of many: the
// port of the service is shut, and no other.
func TestCutService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(x *cutting) { x.cuts.limits.address = 4 })
		var all []conntrack.Tracked
		for i := range uint16(6) {
			all = append(all, udp(fmt.Sprint("192.0.2.", i), 1000+i, "10.0.0.2", 53, true), udp("10.0.0.1", 2000+i, fmt.Sprint("192.0.2.", i), 123, true))
		}
		x.set(all...)
		deny := model.Match{Protocol: model.ProtocolUDP}
		policy := model.Policy{Selector: "all()", Inbound: []model.Rule{{Action: model.ActionDeny, Match: deny}}, Outbound: []model.Rule{{Action: model.ActionDeny, Match: deny}}}
		for _, rules := range []*[]model.Rule{&policy.Inbound, &policy.Outbound} {
			(*rules)[0].Match.DstPorts = []model.Port{{Min: 53, Max: 123}}
			*rules = append(*rules, model.Rule{Action: model.ActionAllow})
		}
		x.write(put(model.PolicyKey{Tier: "default", Policy: "no"}, policy, 1))
		x.expectCut("denied", nil, nft.Flow{Protocol: model.ProtocolUDP, Src: netip.MustParseAddr("10.0.0.2"), SrcPort: 53}, nft.Flow{Protocol: model.ProtocolUDP, Dst: netip.MustParseAddr("10.0.0.1"), SrcPort: 123})
		x.drop("no")
		x.expectCut("allowed again", nil)
	})
}

// TestCutUnanswered: what nobody answered, and anybody can send by addresses of
// others, shuts no address, and a pair for a short time.
func TestCutUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(x *cutting) { x.cuts.limits.address, x.cuts.limits.pair = 4, 2 })
		client := udp("192.0.2.100", 1000, "10.0.0.2", 53, true)
		all := []conntrack.Tracked{client}
		for i := range uint16(20) {
			all = append(all, udp(fmt.Sprint("192.0.2.", i), 1000, "10.0.0.2", 3000+i, false))
		}
		var pair []conntrack.Tracked
		for i := range uint16(3) {
			pair = append(pair, udp("192.0.2.200", 53, "10.0.0.2", 4000+i, false))
		}
		x.set(all...)
		x.policy("no", model.Match{Protocol: model.ProtocolUDP})
		wide := nft.Flow{Protocol: model.ProtocolUDP, Src: netip.MustParseAddr("10.0.0.2"), AnyPorts: true}
		if len(x.left()) > 0 || x.cuts.kept[wide] != nil || x.cuts.kept[backOf(client)] == nil {
			t.Errorf("kept: %v", x.cuts.kept)
		}
		time.Sleep(31 * time.Second)
		x.expectCut("the tracker would have forgotten them", nil, backOf(client))
		x.set(slices.Clone(pair)...)
		x.policy("other", model.Match{Protocol: model.ProtocolUDP})
		x.expectCut("of two addresses", nil, backOf(client), coarse(pair[0]))
		x.wallside.set(func() { x.wallside.cut[coarse(pair[0])] = 1 })
		time.Sleep(31 * time.Second)
		x.expectCut("although it was met", nil, backOf(client))
	})
}

// TestCutAdoptedCoarse: what another agent left, and nobody knows what it stands for,
// ends although it is met.
func TestCutAdoptedCoarse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := udp("10.0.0.1", 1, "10.0.0.2", 2, true)
		x := newCutting(t, func(x *cutting) { x.wallside.cut[coarse(one)] = 7 })
		x.wallside.set(func() { x.wallside.cut[coarse(one)] = 8 })
		time.Sleep(leastCut - time.Second)
		x.expectCut("just before", nil, coarse(one))
		time.Sleep(2 * time.Second)
		x.expectCut("in the end", nil)
	})
}

// TestCutPortsZero: what was sent from port 0 to port 0 is one flow as any other, and
// goes when policy allows it.
func TestCutPortsZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := udp("10.0.0.1", 0, "10.0.0.2", 0, true)
		x := newCutting(t, func(*cutting) {})
		x.set(zero)
		x.policy("no-udp", model.Match{Protocol: model.ProtocolUDP, SrcNets: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}})
		x.expectCut("denied", nil, backOf(zero))
		x.drop("no-udp")
		x.expectCut("allowed again", nil)
	})
}

// backwards is the same connection, begun by the other side.
func backwards(t conntrack.Tracked) conntrack.Tracked {
	t.Src, t.Dst, t.SrcPort, t.DstPort = t.Dst, t.Src, t.DstPort, t.SrcPort
	t.ReplySrc, t.ReplyDst, t.ReplySrcPort, t.ReplyDstPort = t.ReplyDst, t.ReplySrc, t.ReplyDstPort, t.ReplySrcPort
	return t
}

// TestCutReview has policy allow more than is asked about at once: what may still
// be denied stays out meanwhile.
func TestCutReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		const n = 2*maxReview + 10
		var all []conntrack.Tracked
		for i := range n {
			all = append(all, tcp("10.0.0.1", uint16(i+1), "10.0.0.2", 81))
		}
		last := tcp("10.0.0.1", 1, "10.0.0.2", 82)
		x.set(append(all, last)...)
		x.policy("no-81", to(81), to(82))
		x.expectCut("denied", nil, coarse(last))
		x.policy("no-81", to(82))
		x.expectCut("most are allowed", nil, coarse(last))
		time.Sleep(10 * gatherTime)
		x.expectCut("one is denied", nil, coarse(last))
		x.drop("no-81")
		x.expectCut("not all were asked", nil, coarse(last))
		time.Sleep(10 * gatherTime)
		x.expectCut("all are allowed", nil)
		x.policy("no-81", to(82))
		x.expectCut("one is denied again", nil, coarse(last))
	})
}

// TestCutManyEnds has a coarse flow live as long as the longest of those it stands for.
func TestCutManyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(x *cutting) { x.cuts.limits.pair, x.cuts.least = 1, time.Minute })
		short, long := tcp("10.0.0.1", 1001, "10.0.0.2", 81), tcp("10.0.0.1", 1002, "10.0.0.2", 81)
		short.Timeout, long.Timeout = time.Second, 3*time.Minute
		x.set(short, long)
		x.policy("no-81", to(81))
		time.Sleep(2*time.Minute + 59*time.Second)
		x.expectCut("just before", nil, coarse(long))
		x.wallside.set(func() { x.wallside.cut[coarse(long)] = 1 })
		time.Sleep(2 * time.Minute)
		x.expectCut("while it is sent", nil, coarse(long))
		time.Sleep(2 * time.Minute)
		x.expectCut("in the end", nil)
		if len(x.cuts.flows)+len(x.cuts.kept)+len(x.cuts.count) != 0 {
			t.Errorf("kept: %+v", x.cuts)
		}
	})
}

// TestCutsNeverForget has any numbers of flows come, go and be judged: each that is
// denied has one that stands in the firewall, and there are no more than there may be.
func TestCutsNeverForget(t *testing.T) {
	const seed, addrs = 5, 8 // to and from each, of two protocols: it gets no coarser
	for round := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, round))
		s := newCuts()
		s.limits = cutLimits{pair: 1 + random.IntN(4), address: 2 + random.IntN(20), all: 4*addrs + random.IntN(20), known: 1 + random.IntN(60)}
		now, wall := time.Unix(1, 0), map[nft.Flow]bool{}
		denied := map[nft.Flow]bool{} // false: policy allows it
		addr := func() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(addrs))}) }
		for step := range 300 {
			switch random.IntN(10) {
			case 0:
				for f := range denied {
					denied[f] = random.IntN(3) == 0
				}
				budget := random.IntN(20)
				for _, c := range s.kept {
					c.asked = 0
					s.review(c, func(f nft.Flow) bool { return denied[answers(f)] }, &budget)
				}
			case 1:
				gone := addr()
				s.forgetAddrs([]netip.Addr{gone})
				for f := range denied {
					if f.Src == gone || f.Dst == gone {
						delete(denied, f)
					}
				}
			default:
				f := nft.Flow{Protocol: model.ProtocolUDP, Src: addr(), Dst: addr(), SrcPort: uint16(random.IntN(3)), DstPort: uint16(random.IntN(3))}
				if random.IntN(8) == 0 {
					f = nft.Flow{Protocol: 47, Src: f.Src, Dst: f.Dst}
				}
				answered := random.IntN(4) > 0
				s.add(former{flow: f, answered: answered}, now)
				if answered {
					denied[f] = true // others may be forgotten
				}
			}
			added, removed, _ := s.take()
			for _, f := range added {
				wall[f] = true
			}
			for _, f := range removed {
				delete(wall, f)
			}
			where := fmt.Sprintf("seed %d, round %d, step %d", seed, round, step)
			for f, is := range denied {
				out := wall[f]
				for _, k := range f.Coarser() {
					out = out || wall[k]
				}
				if is && !out {
					t.Fatalf("%s: %+v may begin", where, f)
				}
			}
			if len(s.kept) > s.limits.all || len(wall) > len(s.kept) || len(s.flows) > s.limits.known+s.limits.all {
				t.Fatalf("%s: %d kept, %d in the firewall, %d known, with %+v", where, len(s.kept), len(wall), len(s.flows), s.limits)
			}
			for f, c := range s.flows {
				if s.kept[c.flow] != c {
					t.Fatalf("%s: %+v is of one that isn't kept", where, f)
				}
			}
			count := map[nft.Flow]int{}
			for f := range s.kept {
				for _, k := range f.Coarser() {
					count[k]++
				}
			}
			for k, n := range count {
				if s.count[k] != n {
					t.Fatalf("%s: %+v has %d, not %d", where, k, n, s.count[k])
				}
			}
			if len(s.count) != len(count) {
				t.Fatalf("%s: counts of what is not kept", where)
			}
		}
	}
}
