// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// cutting is a Cutter with the policy of a host that has two pods, and a fake kernel.
type cutting struct {
	*Cutter
	t      *testing.T
	engine *policy.Engine
	policy board.Enforced
	mu     sync.Mutex
	table  []conntrack.Tracked
	cut    map[nft.Flow]time.Duration
	fail   error // of listing
	refuse error // of the firewall
	walks  int
	freed  mailbox.Signal // Config.Wake
	during func()         // each walk, after it has listed; nil = nothing
	clings bool           // what is deleted stays
}

// List implements Tracker.
func (x *cutting) List(keep func(conntrack.Connection) bool) (kept []conntrack.Tracked, err error) {
	if x.during != nil {
		defer x.during()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.walks++
	for _, t := range x.table {
		if keep(t.Connection) {
			kept = append(kept, t)
		}
	}
	return kept, x.fail
}

// Delete implements Tracker.
func (x *cutting) Delete(list []conntrack.Tracked) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.clings {
		return len(list), nil
	}
	before := len(x.table)
	x.table = slices.DeleteFunc(x.table, func(t conntrack.Tracked) bool {
		return slices.ContainsFunc(list, func(o conntrack.Tracked) bool { return o.Connection == t.Connection })
	})
	return before - len(x.table), nil
}

// Cut implements Firewall.
func (x *cutting) Cut(cuts []nft.Cut) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range cuts {
		x.cut[c.Flow] = c.Lasts
	}
	return x.refuse
}

// Uncut implements Firewall.
func (x *cutting) Uncut(flows []nft.Flow) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range flows {
		delete(x.cut, f)
	}
	return nil
}

// ReadCuts implements Firewall.
func (x *cutting) ReadCuts() ([]nft.Flow, error) { return slices.Collect(maps.Keys(x.cut)), nil }

// Routes implements Tracker.
func (*cutting) Routes() Routes { return onHost() }

// onHost makes 198.51.100.1 the host's own address; all others are reached through eth0.
func onHost() Routes {
	return testRoutes(func(to, _ netip.Addr) ([]string, error) {
		if to == netip.MustParseAddr("198.51.100.1") {
			return []string{""}, nil
		}
		return []string{"eth0"}, nil
	})
}

// newCutting runs a Cutter in a synctest bubble.
func newCutting(t *testing.T) *cutting {
	x := &cutting{t: t, engine: policy.NewEngine("h"), policy: policyOf(&policy.State{}), cut: map[nft.Flow]time.Duration{}, freed: mailbox.NewSignal()}
	x.engine.SetPrefixes(x.policy.Settings.Prefixes)
	x.engine.SetInterfaces([]policy.Interface{{Name: "eth0"}})
	x.Cutter = New(Config{
		Firewall: x, Policy: func(use func(board.Enforced)) { use(x.policy) }, Tracker: x, Metrics: NewMetrics(), Wake: x.freed, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		x.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	open := model.Rules{Inbound: []model.Rule{{Action: model.ActionAllow}}, Outbound: []model.Rule{{Action: model.ActionAllow}}}
	x.write(board.Doubts{}, put(model.ProfileRulesKey{Profile: "open"}, open), pod("a", "cali1", "10.0.0.1"), pod("b", "cali2", "10.0.0.2"))
	return x
}

func put(key model.Key, value any) model.Entry {
	return model.Entry{Path: key.Path(), Key: key, Value: value, Revision: 1, Created: 1}
}

// pod returns an endpoint that may do anything.
func pod(name, iface, addr string) model.Entry {
	return put(model.WorkloadEndpointKey{Host: "h", Orchestrator: "cni", Workload: name, Endpoint: "eth0"}, model.WorkloadEndpoint{
		State: model.StateActive, Name: iface, ProfileIDs: []string{"open"}, IPv4Nets: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(addr), 32)}})
}

// deny returns a policy for all that denies these matches and allows the rest.
func deny(name string, denied ...model.Match) model.Entry {
	p := model.Policy{Selector: "all()", Types: []model.Direction{model.Inbound}}
	for _, m := range denied {
		p.Inbound = append(p.Inbound, model.Rule{Action: model.ActionDeny, Match: m})
	}
	p.Inbound = append(p.Inbound, model.Rule{Action: model.ActionAllow})
	return put(model.PolicyKey{Tier: "default", Policy: name}, p)
}

// write changes etcd, and waits for the resulting work.
func (x *cutting) write(w board.Doubts, entries ...model.Entry) {
	x.t.Helper()
	x.engine.Update(entries...)
	if err := x.policy.State.Apply(x.engine.Flush()); err != nil {
		x.t.Fatal(err)
	}
	x.Add(w)
	time.Sleep(2 * time.Second) // of the rest after another walk
	synctest.Wait()
}

func (x *cutting) set(table ...conntrack.Tracked) { x.with(func() { x.table = table }) }

// with changes what the kernel does, or inspects it.
func (x *cutting) with(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change()
}

// expect checks which connections are left, by the client's port, and what the firewall drops.
func (x *cutting) expect(name string, left []uint16, cut ...nft.Flow) {
	x.t.Helper()
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	var ports []uint16
	for _, t := range x.table {
		ports = append(ports, max(t.SrcPort, t.DstPort))
	}
	if diff := cmp.Diff(left, ports); diff != "" {
		x.t.Errorf("%s: connections (-want +got):\n%s", name, diff)
	}
	want, got := map[nft.Flow]bool{}, map[nft.Flow]bool{}
	for _, f := range cut {
		want[f] = true
	}
	for f := range x.cut {
		got[f] = true
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		x.t.Errorf("%s: the firewall drops (-want +got):\n%s", name, diff)
	}
}

// tcp returns a connection from one address to another.
func tcp(src string, srcPort uint16, dst string, dstPort uint16) conntrack.Tracked {
	a, b := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	return conntrack.Tracked{Timeout: time.Hour, Connection: conntrack.Connection{
		Protocol: model.ProtocolTCP, Src: a, Dst: b, SrcPort: srcPort, DstPort: dstPort,
		ReplySrc: b, ReplyDst: a, ReplySrcPort: dstPort, ReplyDstPort: srcPort,
	}}
}

func pickedUp(t conntrack.Tracked) conntrack.Tracked {
	t.PickedUp = true
	return t
}

// backOf returns the flow of a connection's replies.
func backOf(t conntrack.Tracked) nft.Flow { return answers(began(t.Connection)) }

func to(port uint16) model.Match {
	return model.Match{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: port, Max: port}}}
}

// TestCut adds and removes policies that deny running connections.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t)
		a := board.Doubts{Suspects: map[netip.Addr]struct{}{netip.MustParseAddr("10.0.0.1"): {}}}
		runs, denied, others := tcp("10.0.0.1", 1000, "10.0.0.2", 80), tcp("10.0.0.1", 1001, "10.0.0.2", 81), tcp("192.0.2.1", 1002, "198.51.100.1", 81)
		dns := tcp("10.0.0.1", 1003, "10.0.0.2", 81)
		dns.Protocol, dns.Timeout = model.ProtocolUDP, 30*time.Second
		x.set(runs, denied, others, dns)
		x.write(a, deny("no-81", to(81), model.Match{Protocol: model.ProtocolUDP, DstPorts: to(81).DstPorts}))
		x.expect("denied", []uint16{1000, 1002}, backOf(denied), backOf(dns))
		if got := [2]time.Duration{x.cut[backOf(denied)], x.cut[backOf(dns)]}; got != [2]time.Duration{time.Hour, leastCut} {
			t.Errorf("the flows are cut for %v", got)
		}
		x.write(a, deny("no-82", to(81), to(82)))
		x.expect("by another as well", []uint16{1000, 1002}, backOf(denied), backOf(dns))
		x.write(board.Doubts{Suspects: map[netip.Addr]struct{}{netip.MustParseAddr("10.0.0.9"): {}}}, deny("no-81"), deny("no-82"))
		x.expect("allowed again, and nobody is suspect", []uint16{1000, 1002}, backOf(denied), backOf(dns))
		x.write(a)
		x.expect("allowed again", []uint16{1000, 1002})

		// Neither side may begin anew: there is nothing to drop.
		x.set(denied, others)
		x.write(board.Doubts{All: true}, put(model.PolicyKey{Tier: "default", Policy: "a-nothing"}, model.Policy{Selector: "all()"}))
		x.expect("with nothing allowed", []uint16{1002})
	})
}

// TestPolicyChanges removes a policy while the tracker's table is walked: connections that the others allow go on.
func TestPolicyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t)
		x.write(board.Doubts{}, deny("no-81", to(81)), deny("no-82", to(82)))
		x.set(tcp("10.0.0.1", 1000, "10.0.0.2", 80))
		x.during = func() {
			x.engine.Update(model.Entry{Path: model.PolicyKey{Tier: "default", Policy: "no-81"}.Path(), Key: model.PolicyKey{Tier: "default", Policy: "no-81"}})
			if err := x.policy.State.Apply(x.engine.Flush()); err != nil {
				t.Error(err)
			}
		}
		x.write(board.Doubts{All: true})
		x.expect("allowed", []uint16{1000})
	})
}

// TestPickedUp: for connections that began while the tracker was off, and whose replies it saw first, the ports tell who is the client.
func TestPickedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t)
		reversed, known := pickedUp(tcp("10.0.0.2", 81, "10.0.0.1", 40000)), tcp("10.0.0.2", 81, "10.0.0.1", 40001)
		high, low := pickedUp(tcp("10.0.0.2", 81, "10.0.0.1", 1000)), pickedUp(tcp("10.0.0.2", 40002, "10.0.0.1", 40003))
		allowed := pickedUp(tcp("10.0.0.2", 80, "10.0.0.1", 40004))
		x.set(reversed, known, high, low, allowed)
		x.write(board.Doubts{All: true}, deny("no", to(81), to(40002)))
		x.expect("denied", []uint16{40001, 1000, 40003, 40004}, began(reversed.Connection))
	})
}

// TestMissed makes walks miss a connection that policy denies: later ones find it. Walks repeat only as long as they find something.
func TestMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t)
		var hidden []conntrack.Tracked
		x.during = func() {
			x.with(func() {
				if len(hidden) > 0 {
					x.table, hidden = append(x.table, hidden[0]), hidden[1:]
				}
			})
		}
		x.set(tcp("10.0.0.1", 1000, "10.0.0.2", 81), tcp("10.0.0.1", 1001, "10.0.0.2", 80))
		for i := range uint16(3) {
			hidden = append(hidden, tcp("10.0.0.1", 1002+i, "10.0.0.2", 81))
		}
		suspect := board.Doubts{Suspects: map[netip.Addr]struct{}{netip.MustParseAddr("10.0.0.1"): {}}}
		cuts := []nft.Flow{backOf(tcp("10.0.0.1", 1000, "10.0.0.2", 81))}
		for _, c := range hidden {
			cuts = append(cuts, backOf(c))
		}
		x.write(suspect, deny("no-81", to(81)))
		x.expect("walk by walk", []uint16{1001}, cuts...)
		if x.walks != 6 { // four that find one, one that finds none, and one to be sure
			t.Errorf("%d walks", x.walks)
		}
		x.with(func() { x.walks = 0 })
		hidden = []conntrack.Tracked{tcp("10.0.0.1", 1005, "10.0.0.2", 81)}
		x.write(suspect)
		time.Sleep(time.Minute)
		x.expect("a second later", []uint16{1001}, append(cuts, backOf(tcp("10.0.0.1", 1005, "10.0.0.2", 81)))...)
		if x.walks != 4 {
			t.Errorf("%d walks, and it was to be nothing, something, nothing, nothing", x.walks)
		}
	})
}

// TestDeniedForEver makes a denied connection reappear after each walk: the walks get rarer.
func TestDeniedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t)
		x.clings = true
		x.set(tcp("10.0.0.1", 1000, "10.0.0.2", 81))
		x.write(board.Doubts{All: true}, deny("no-81", to(81)))
		time.Sleep(time.Hour)
		synctest.Wait()
		if x.walks < 60 || x.walks > 80 {
			t.Errorf("%d walks in an hour", x.walks)
		}
		x.with(func() { x.walks = 0 })
		x.set()
		time.Sleep(time.Hour)
		synctest.Wait()
		if x.walks != 2 {
			t.Errorf("%d walks when it was gone", x.walks)
		}
		// What isn't translated for other reasons is there again as well.
		x.set(tcp("10.0.0.1", 1001, "203.0.113.1", 53))
		pool := netip.MustParsePrefix("10.0.0.0/24")
		x.with(func() { x.walks = 0 })
		x.write(board.Doubts{Masquerades: true}, put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool, Masquerade: true}))
		time.Sleep(time.Hour)
		synctest.Wait()
		if x.walks != 2 {
			t.Errorf("%d walks for what is not masqueraded", x.walks)
		}
	})
}

// TestHeardLater covers connections that began while the firewall had a hole, and were silent when it was repaired.
func TestHeardLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t)
		x.write(board.Doubts{}, deny("no-81", to(81)))
		x.Add(board.Doubts{Hole: true})
		began := time.Now()
		for i, after := range silencePauses {
			heard := tcp("10.0.0.1", uint16(40000+i), "10.0.0.2", 81)
			synctest.Wait()
			x.set(heard)
			time.Sleep(time.Until(began.Add(after)) + time.Second)
			if synctest.Wait(); len(x.table) > 0 {
				t.Errorf("%v after the hole: not cut", after)
			}
		}
	})
}

// TestRefused makes the firewall refuse the rules that keep a connection from starting again: the connection goes on until the firewall
// accepts them.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t)
		denied := tcp("10.0.0.1", 1001, "10.0.0.2", 81)
		x.set(denied)
		x.with(func() { x.refuse = errors.New("no") })
		x.write(board.Doubts{All: true}, deny("no-81", to(81)))
		x.expect("refused", []uint16{1001}, backOf(denied))
		x.with(func() { x.refuse = nil })
		time.Sleep(retryPause)
		x.expect("taken", nil, backOf(denied))
	})
}

// TestLost removes an address: its next holder waits until the connections are deleted.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t)
		a := netip.MustParseAddr("10.0.0.1")
		x.set(tcp("192.0.2.1", 1000, "10.0.0.1", 80), tcp("192.0.2.1", 1001, "10.0.0.2", 80))
		x.with(func() { x.fail = errors.New("no") })
		x.Add(board.Doubts{Lost: []netip.Addr{a}})
		if synctest.Wait(); x.walks != 0 {
			t.Error("it walks at once, for what is in no hurry")
		}
		if !x.Deleting([]netip.Addr{a}) || x.Deleting([]netip.Addr{netip.MustParseAddr("10.0.0.2")}) {
			t.Error("Deleting doesn't know what is to be deleted")
		}
		if synctest.Wait(); x.walks != 1 || !x.Deleting([]netip.Addr{a}) {
			t.Errorf("asked for it, it walked %d times, and is still deleting: %t", x.walks, x.Deleting([]netip.Addr{a}))
		}
		x.with(func() { x.fail = nil })
		time.Sleep(retryPause)
		x.expect("deleted", []uint16{1001})
		if len(x.freed) != 1 || x.Deleting([]netip.Addr{a}) {
			t.Errorf("that was said %d times", len(x.freed))
		}
	})
}

// TestFailsafe closes a host by a host endpoint. Connections older than the tracker, and those of fail-safe ports, go on: the tracker may
// have seen the reply first.
func TestFailsafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t)
		etcd, ssh := pickedUp(tcp("192.0.2.9", 2379, "198.51.100.1", 50000)), pickedUp(tcp("198.51.100.1", 22, "192.0.2.9", 50001))
		web, known := pickedUp(tcp("192.0.2.9", 80, "198.51.100.1", 50002)), tcp("192.0.2.9", 2379, "198.51.100.1", 50003)
		x.set(etcd, ssh, web, known)
		x.write(board.Doubts{All: true}, put(model.HostEndpointKey{Host: "h", Endpoint: "1"}, model.HostEndpoint{Name: "eth0"}))
		x.expect("fail-safe ports", []uint16{50000, 50001}) // the known one is deleted, and its port stays open

		x.write(board.Doubts{}, put(model.PolicyKey{Tier: "default", Policy: "in"}, model.Policy{Selector: "has(up)", Types: []model.Direction{model.Inbound}, Inbound: []model.Rule{{Action: model.ActionAllow}}}),
			put(model.HostEndpointKey{Host: "h", Endpoint: "1"}, model.HostEndpoint{Name: "eth0", Labels: map[string]string{"up": ""}}))
		out, far := tcp("198.51.100.1", 22, "192.0.2.9", 5000), tcp("198.51.100.1", 80, "192.0.2.9", 5001)
		x.set(out, far)
		x.write(board.Doubts{All: true})
		x.expect("from a fail-safe port, which stays open", nil, backOf(far))
	})
}

// TestICMP: policy denies ICMP queries by type and code.
func TestICMP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := func(kind, code uint8, id uint16) conntrack.Tracked {
			q := tcp("10.0.0.1", id, "10.0.0.2", 0)
			q.Protocol, q.ICMPType, q.ICMPCode = model.ProtocolICMP, kind, code
			return q
		}
		kind, code := uint8(13), uint8(0)
		for name, test := range map[string]struct {
			match model.Match
			want  []uint16
		}{
			"timestamps of code 0": {model.Match{ICMPType: &kind, ICMPCode: &code}, []uint16{1, 3, 4}},
			"timestamps":           {model.Match{ICMPType: &kind}, []uint16{1, 4}},
		} {
			x := newCutting(t)
			x.set(ask(8, 0, 1), ask(13, 0, 2), ask(13, 1, 3), ask(17, 0, 4))
			test.match.Protocol = model.ProtocolICMP
			x.write(board.Doubts{All: true}, deny("no", test.match))
			x.expect(name, test.want)
		}
	})
}

// TestTranslated: connections that began before one of their addresses was translated are forgotten, so that they begin anew; the others
// are left alone.
func TestTranslated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t)
		outer := func(inner string, port uint16, replied bool) conntrack.Tracked {
			c := tcp("10.0.0.2", port, "192.0.2.1", 80)
			c.ReplySrc, c.Replied = netip.MustParseAddr(inner), replied
			return c
		}
		x.set(outer("192.0.2.1", 1001, false), outer("192.0.2.1", 1002, true), outer("10.0.0.1", 1003, false), outer("10.0.0.9", 1004, true), tcp("10.0.0.2", 1005, "192.0.2.2", 80))
		leads := func(name, iface, addr string) {
			ext, inner := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr(addr)
			e := pod(name, iface, addr)
			spec := e.Value.(model.WorkloadEndpoint)
			spec.IPv4NAT = []model.NAT{{IntIP: inner, ExtIP: ext}}
			e.Value = spec
			x.write(board.Doubts{Outer: map[netip.Addr]netip.Addr{ext: inner}}, e)
		}
		leads("a", "cali1", "10.0.0.1")
		x.expect("an outer address is new", []uint16{1003, 1005})
		// It leads elsewhere while what it led to is still to be judged once more.
		x.Add(board.Doubts{Outer: map[netip.Addr]netip.Addr{netip.MustParseAddr("192.0.2.1"): netip.MustParseAddr("10.0.0.1")}})
		time.Sleep(gatherTime + time.Millisecond)
		x.engine.Update(pod("a", "cali1", "10.0.0.1"))
		x.set(outer("10.0.0.1", 1003, false), outer("10.0.0.9", 1004, true))
		leads("c", "cali3", "10.0.0.9")
		time.Sleep(time.Minute)
		x.expect("it leads to another", []uint16{1004})

		pool := netip.MustParsePrefix("10.0.0.0/24")
		out := func(port uint16) conntrack.Tracked { return tcp("10.0.0.1", port, "203.0.113.1", 80) }
		answered, masqueraded := out(1002), out(1003)
		answered.Replied, masqueraded.ReplyDst = true, netip.MustParseAddr("198.51.100.9")
		x.set(out(1001), answered, masqueraded, tcp("10.0.0.1", 1004, "10.0.0.2", 80), tcp("203.0.113.1", 1005, "10.0.0.1", 80))
		x.write(board.Doubts{Masquerades: true}, put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool}))
		x.expect("a pool that doesn't masquerade", []uint16{1001, 1002, 1003, 1004, 1005})
		x.write(board.Doubts{Masquerades: true}, put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool, Masquerade: true}))
		x.expect("it masquerades", []uint16{1002, 1003, 1004, 1005})
	})
}
