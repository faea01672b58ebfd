// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
)

// tracker is a connection tracker that does what it is told.
type tracker struct {
	mu    sync.Mutex
	table []conntrack.Tracked
	fail  error
}

func (x *tracker) set(table ...conntrack.Tracked) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.table = table
}

func (x *tracker) fails(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fail = err
}

func (x *tracker) connections(keep func(conntrack.Connection) bool) (kept []conntrack.Tracked, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range x.table {
		if keep(t.Connection) {
			kept = append(kept, t)
		}
	}
	return kept, x.fail
}

func (x *tracker) delete(list []conntrack.Tracked) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := len(x.table)
	x.table = slices.DeleteFunc(x.table, func(t conntrack.Tracked) bool {
		return slices.ContainsFunc(list, func(o conntrack.Tracked) bool { return o.Connection == t.Connection })
	})
	return before - len(x.table), nil
}

// left are the client's ports of the connections that are still there.
func (x *tracker) left() (ports []uint16) {
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range x.table {
		ports = append(ports, max(t.SrcPort, t.DstPort))
	}
	return ports
}

// tcp is a connection from one address to another.
func tcp(src string, srcPort uint16, dst string, dstPort uint16) conntrack.Tracked {
	a, b := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	return conntrack.Tracked{Timeout: 5 * time.Minute, Connection: conntrack.Connection{
		Protocol: model.ProtocolTCP, Src: a, Dst: b, SrcPort: srcPort, DstPort: dstPort,
		ReplySrc: b, ReplyDst: a, ReplySrcPort: dstPort, ReplyDstPort: srcPort,
	}}
}

// backOf is what the other side of a connection sends.
func backOf(t conntrack.Tracked) nft.Flow { return answers(began(t.Connection)) }

// cutting is a loop with two pods that may do anything.
type cutting struct {
	*clockwork
	*tracker
	t        *testing.T
	revision int64
}

func newCutting(t *testing.T, prepare func(*cutting)) *cutting {
	x := &cutting{tracker: &tracker{}, t: t, revision: 1}
	x.clockwork = startClockwork(t, func(c *clockwork) {
		c.system.connections, c.system.deleteConnections = x.connections, x.delete
		x.clockwork = c
		prepare(x)
	})
	open := model.Rules{Inbound: []model.Rule{{Action: model.ActionAllow}}, Outbound: []model.Rule{{Action: model.ActionAllow}}}
	a, b := testSpec("cali1", "10.0.0.1"), testSpec("cali2", "10.0.0.2")
	a.ProfileIDs, b.ProfileIDs = []string{"open"}, []string{"open"}
	x.write(put(model.ProfileRulesKey{Profile: "open"}, open, 2), put(testKey("a"), a, 2), put(testKey("b"), b, 2))
	return x
}

// write has etcd change, and waits for what comes of it.
func (x *cutting) write(entries ...model.Entry) {
	x.revision++
	for i := range entries {
		if entries[i].Revision != 0 {
			entries[i].Revision = x.revision
		}
	}
	x.updates <- model.Update{Revision: x.revision, Entries: entries}
	synctest.Wait()
}

// policy has a policy for all come, that allows what it doesn't deny.
func (x *cutting) policy(name string, deny ...model.Match) {
	p := model.Policy{Selector: "all()", Types: []model.Direction{model.Inbound}}
	for _, m := range deny {
		p.Inbound = append(p.Inbound, model.Rule{Action: model.ActionDeny, Match: m})
	}
	p.Inbound = append(p.Inbound, model.Rule{Action: model.ActionAllow})
	x.write(put(model.PolicyKey{Tier: "default", Policy: name}, p, 1))
}

func (x *cutting) drop(name string) {
	key := model.PolicyKey{Tier: "default", Policy: name}
	x.write(model.Entry{Path: key.Path(), Key: key})
}

// expectCut says which connections are left, and what the firewall drops.
func (x *cutting) expectCut(name string, left []uint16, cut ...nft.Flow) {
	x.t.Helper()
	if diff := cmp.Diff(left, x.left()); diff != "" {
		x.t.Errorf("%s: connections (-want +got):\n%s", name, diff)
	}
	want := map[nft.Flow]bool{}
	for _, f := range cut {
		want[f] = true
	}
	got := map[nft.Flow]bool{}
	x.wallside.set(func() {
		for f := range x.wallside.cut {
			got[f] = true
		}
	})
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		x.t.Errorf("%s: the firewall drops (-want +got):\n%s", name, diff)
	}
}

func to(port uint16) model.Match {
	return model.Match{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: port, Max: port}}}
}

// TestCut has policies come and go that deny what runs.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		runs, denied, others := tcp("10.0.0.1", 1000, "10.0.0.2", 80), tcp("10.0.0.1", 1001, "10.0.0.2", 81), tcp("192.0.2.1", 1002, "198.51.100.1", 81)
		x.set(runs, denied, others)
		x.policy("no-81", to(81))
		x.expectCut("denied", []uint16{1000, 1002}, backOf(denied))
		x.policy("no-82", to(81), to(82))
		x.expectCut("by another as well", []uint16{1000, 1002}, backOf(denied))
		x.drop("no-81")
		x.expectCut("no more by the one", []uint16{1000, 1002}, backOf(denied))
		x.drop("no-82")
		x.expectCut("allowed again", []uint16{1000, 1002})

		// It goes on, and the side that answered was first.
		again := tcp("10.0.0.2", 81, "10.0.0.1", 1001)
		x.set(runs, again, others)
		x.policy("other", to(83))
		x.expectCut("another policy", []uint16{1000, 1001, 1002})
		x.policy("no-81", to(81))
		x.expectCut("denied again", []uint16{1000, 1002}, backOf(denied))

		// The firewall was away, and the side that answers began it.
		x.set(runs, again, others)
		x.policy("other", to(84))
		x.expectCut("begun by the other side", []uint16{1000, 1002}, backOf(denied))

		b := testSpec("cali2", "10.0.0.3")
		b.ProfileIDs = []string{"open"}
		x.write(put(testKey("b"), b, 1))
		time.Sleep(time.Second)
		x.expectCut("an address goes", []uint16{1002})
		// Neither side may begin anew: there is nothing to remember.
		denied = tcp("10.0.0.1", 1001, "10.0.0.3", 81)
		x.set(denied, others)
		x.write(put(model.PolicyKey{Tier: "default", Policy: "a-nothing"}, model.Policy{Selector: "all()"}, 1))
		x.expectCut("with nothing allowed", []uint16{1002})
	})
}

// TestCutPickedUp has connections that began while the tracker was off, and of which it
// heard who answers first: their ports tell.
func TestCutPickedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		reversed, known := tcp("10.0.0.2", 81, "10.0.0.1", 40000), tcp("10.0.0.2", 81, "10.0.0.1", 40001)
		high, low := tcp("10.0.0.2", 81, "10.0.0.1", 1000), tcp("10.0.0.2", 40002, "10.0.0.1", 40003)
		allowed := tcp("10.0.0.2", 80, "10.0.0.1", 40004)
		for _, c := range []*conntrack.Tracked{&reversed, &high, &low, &allowed} {
			c.PickedUp = true
		}
		x.set(reversed, known, high, low, allowed)
		x.policy("no", to(81), to(40002))
		x.expectCut("denied", []uint16{40001, 1000, 40003, 40004}, began(reversed.Connection))
	})
}

// TestCutHeardLater has connections that began while the firewall had a hole, and were silent when it was mended.
func TestCutHeardLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		x.policy("no-81", to(81))
		time.Sleep(time.Hour)
		x.wallside.set(func() { x.wallside.repairs = 1 })
		x.wallside.tampered <- nft.Event{}
		synctest.Wait()
		var cut []nft.Flow
		for i, after := range rejudgePauses {
			heard := tcp("10.0.0.2", 81, "10.0.0.1", uint16(40000+i))
			heard.PickedUp = true
			x.set(heard)
			x.expectCut("silent", []uint16{heard.DstPort}, cut...)
			time.Sleep(after)
			cut = append(cut, began(heard.Connection))
			x.expectCut("heard", nil, cut...)
		}
	})
}

// TestCutNotTaken has the firewall refuse what could begin a connection anew: it
// goes on until the firewall has it.
func TestCutNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		denied := tcp("10.0.0.1", 1001, "10.0.0.2", 81)
		x.set(denied)
		x.wallside.set(func() { x.wallside.failCut = errors.New("no") })
		x.policy("no-81", to(81))
		time.Sleep(5 * time.Second)
		x.expectCut("refused", []uint16{1001}, backOf(denied))
		x.wallside.set(func() { x.wallside.failCut = nil })
		time.Sleep(10 * time.Second)
		x.expectCut("taken", nil, backOf(denied))
	})
}

// TestCutAdopted starts where another agent has cut.
func TestCutAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied, allowed := tcp("10.0.0.1", 1001, "10.0.0.2", 81), tcp("10.0.0.1", 1001, "10.0.0.2", 80)
		deny := model.Policy{Selector: "all()", Types: []model.Direction{model.Inbound}, Inbound: []model.Rule{{Action: model.ActionDeny, Match: to(81)}, {Action: model.ActionAllow}}}
		open := model.Rules{Inbound: []model.Rule{{Action: model.ActionAllow}}, Outbound: []model.Rule{{Action: model.ActionAllow}}}
		a, b := testSpec("cali1", "10.0.0.1"), testSpec("cali2", "10.0.0.2")
		a.ProfileIDs, b.ProfileIDs = []string{"open"}, []string{"open"}
		c := startClockwork(t, func(c *clockwork) {
			c.wallside.cut[backOf(denied)], c.wallside.cut[backOf(allowed)] = 7, 0
			c.first = []model.Entry{put(model.ReadyKey{}, model.Ready(true), 1),
				put(testKey("a"), a, 1), put(testKey("b"), b, 1),
				put(model.ProfileRulesKey{Profile: "open"}, open, 1), put(model.PolicyKey{Tier: "default", Policy: "no"}, deny, 1)}
		})
		c.wallside.set(func() {
			if diff := cmp.Diff([]nft.Flow{backOf(denied)}, slices.Collect(maps.Keys(c.wallside.cut)), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("the firewall drops (-want +got):\n%s", diff)
			}
		})
		time.Sleep(tcpCut - time.Minute)
		c.wallside.set(func() {
			if len(c.wallside.cut) != 1 {
				t.Error("it is forgotten too early")
			}
		})
		time.Sleep(2 * time.Minute)
		c.wallside.set(func() {
			if len(c.wallside.cut) != 0 {
				t.Error("it is never forgotten")
			}
		})
	})
}

// TestCutEnds has cut connections live their time.
func TestCutEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(x *cutting) { x.cuts.least = time.Minute })
		short, long, sent := tcp("10.0.0.1", 1001, "10.0.0.2", 81), tcp("10.0.0.1", 1002, "10.0.0.2", 81), tcp("10.0.0.1", 1003, "10.0.0.2", 81)
		short.Timeout, long.Timeout, sent.Timeout = time.Second, 3*time.Minute, time.Second
		x.set(short, long, sent)
		x.policy("no-81", to(81))
		x.wallside.set(func() { x.wallside.cut[backOf(sent)] = 1 })
		time.Sleep(time.Minute - time.Second)
		x.expectCut("just before", nil, backOf(short), backOf(long), backOf(sent))
		time.Sleep(2 * time.Second)
		x.expectCut("the short one", nil, backOf(long), backOf(sent))
		time.Sleep(time.Minute)
		x.expectCut("one that was still sent", nil, backOf(long))
		time.Sleep(time.Minute)
		x.expectCut("the long one", nil)
	})
}

// TestCutStaysWithHolder has the cut flow forgotten with the address, and with nothing less.
func TestCutStaysWithHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		c := tcp("10.0.0.1", 1001, "10.0.0.2", 81)
		x.set(c)
		x.policy("no-81", to(81))
		x.expectCut("denied", nil, backOf(c))
		b := testSpec("cali2", "10.0.0.2")
		b.ProfileIDs = []string{"open"}
		b.State = model.StateInactive
		x.write(put(testKey("b"), b, 1))
		b.State = model.StateActive
		x.write(put(testKey("b"), b, 1))
		x.expectCut("inactive for a while", nil, backOf(c))
		x.write(gone(testKey("b")))
		x.expectCut("the endpoint is gone", nil)
	})
}

// TestLostAgain has the tracker refuse to tell of the connections of an address
// that went: its next holder waits until they are deleted.
func TestLostAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		x.set(tcp("192.0.2.1", 1000, "10.0.0.1", 80))
		x.tracker.fails(errors.New("no"))
		b := testKey("c")
		x.write(gone(testKey("a")), put(b, testSpec("cali3", "10.0.0.1"), 1))
		start := time.Now()
		time.AfterFunc(2500*time.Millisecond, func() { x.tracker.fails(nil) })
		if err := (gatekeeper{x.loop}).Wait(x.ctx, gate.Request{Endpoint: b, Revision: x.revision}); err != nil {
			t.Errorf("gate: %v", err)
		}
		if took := time.Since(start); took < 2500*time.Millisecond {
			t.Errorf("answered after %v, before the tracker was read", took)
		}
		x.expectCut("in the end", nil)
	})
}

// TestCutFirst has policy deny a flood and one who was answered: he is cut at once,
// before the many are judged.
func TestCutFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []conntrack.Connection
		x := newCutting(t, func(x *cutting) {
			x.system.deleteConnections = func(list []conntrack.Tracked) (int, error) {
				for _, c := range list {
					order = append(order, c.Connection)
				}
				return x.delete(list)
			}
		})
		var all []conntrack.Tracked
		for i := range maxReview {
			all = append(all, udp("10.0.0.1", uint16(i), "10.0.0.2", 53, false))
		}
		answered, stream := udp("10.0.0.1", 5000, "10.0.0.2", 53, true), tcp("10.0.0.1", 5000, "10.0.0.2", 53)
		stream.Replied = true
		x.set(append(all, answered, stream)...)
		x.policy("no", model.Match{})
		if synctest.Wait(); len(order) != len(all)+2 || order[0] != stream.Connection || order[1] != answered.Connection {
			t.Errorf("%d were cut, first %+v", len(order), order[:min(len(order), 2)])
		}
	})
}
