// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/long"
)

// TestRestart: a speaker ends, gracefully and not. What its neighbours learned from it stays all the time; what it no longer
// has when it is back then goes.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*speaker){"closed": (*speaker).close, "killed": (*speaker).kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t)
			a, b, dead := f.host(t, 1), f.host(t, 2), f.host(t, 3)
			da, db := a.desired(), b.desired()
			// Longer than anything here takes: routes must not stay just because the restart is quick.
			da.Speaker.RestartTime, db.Speaker.RestartTime = time.Hour, time.Hour
			for _, over := range []func(*host, Desired, *host) plan.Neighbour{(*host).meets, (*host).meets6} {
				over(a, da, b)
				over(b, db, a)
				over(a, da, dead) // this neighbour never comes up, and everything goes on
			}
			a.has(da, "10.1.1.0/26", "10.1.1.64/26", "fd01:0:0:1::/122")
			b.has(db, "10.1.2.0/26")
			sa, sb := a.start(t), b.start(t)
			sb.apply(db)
			sa.apply(da)
			all := []string{"10.1.1.0/26 via 10.0.0.1", "10.1.1.64/26 via 10.0.0.1", "fd01:0:0:1::/122 via fd00::1"}
			sb.mustLearn(all...)
			end(sa)

			// Watch what b has learned until the sessions are up again and the difference is applied.
			since := time.Now()
			gone := prefix("10.1.1.64/26")
			delete(da.Advertisements, gone)
			sa = a.start(t)
			sa.apply(da)
			kept := fmt.Sprint([]string{all[0], all[2]})
			becomes(t, "after the restart", "only what is still there", func() string {
				got := fmt.Sprint(sb.learns())
				if got != fmt.Sprint(all) && got != kept {
					t.Fatalf("in the restart: %s", got)
				}
				for _, p := range sb.look().Status {
					if p.State != Established || p.Since.Before(since) {
						return "still restarting"
					}
				}
				if got == kept {
					return "only what is still there"
				}
				return got
			})
			sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
			if sa.look().Complete {
				t.Error("all is learned, but one neighbour hasn't been heard")
			}
			delete(da.Neighbours, dead.v4)
			delete(da.Neighbours, dead.v6)
			sa.apply(da)
			becomes(t, "complete", true, func() bool { return sa.look().Complete })
		})
	}
}

// TestListenElsewhere: a speaker restarts its sessions while it runs. What it learned stays until its neighbours have sent
// their routes again.
func TestListenElsewhere(t *testing.T) {
	long.Test(t)
	t.Parallel()
	f := newFabric(t)
	a, b, c := f.host(t, 1), f.host(t, 2), f.host(t, 3)
	da, db, dc := a.desired(), b.desired(), c.desired()
	da.Speaker.RestartTime, db.Speaker.RestartTime = time.Hour, time.Hour
	a.meets(da, b)
	a.meets(da, c)
	b.meets(db, a)
	c.meets(dc, a)
	b.has(db, "10.1.2.0/26", "10.1.2.64/26")
	c.has(dc, "10.1.3.0/26")
	sa, sb, sc := a.start(t), b.start(t), c.start(t)
	sa.apply(da)
	sb.apply(db)
	sc.apply(dc)
	stays, goes, third := "10.1.2.0/26 via 10.0.0.2", "10.1.2.64/26 via 10.0.0.2", "10.1.3.0/26 via 10.0.0.3"
	sa.mustLearn(stays, goes, third)

	// No neighbour connects once it is back, so all of this is from before.
	since := time.Now()
	ip(t, f.ns, "link set port1 down")
	da.Speaker.Listen = []netip.Addr{a.v4}
	sa.apply(da)
	if got := sa.look(); got.Complete || fmt.Sprint(sa.learns()) != fmt.Sprint([]string{stays, goes, third}) {
		t.Errorf("listening elsewhere: %s, complete %v", sa.learns(), got.Complete)
	}
	delete(da.Neighbours, c.v4) // what a neighbour said that is none any more goes at once
	sa.apply(da)
	if got := fmt.Sprint(sa.learns()); got != fmt.Sprint([]string{stays, goes}) {
		t.Errorf("without one neighbour: %s", got)
	}
	delete(db.Advertisements, prefix("10.1.2.64/26"))
	sb.apply(db)
	ip(t, f.ns, "link set port1 up")
	becomes(t, "a new session", true, func() bool {
		if got := sa.learns(); len(got) == 0 || got[0] != stays {
			t.Fatalf("in the restart: %s", got)
		}
		p := sa.peer(b.v4)
		return p.State == Established && p.Since.After(since)
	})
	sa.mustLearn(stays)
	becomes(t, "complete", true, func() bool { return sa.look().Complete })
}

// TestBecomesReflector: a host becomes the reflector of hosts with which it has sessions, and stops being it. What all have learned
// stays all the time.
func TestBecomesReflector(t *testing.T) {
	long.Test(t)
	t.Parallel()
	f := newFabric(t)
	a, b, c := f.host(t, 1), f.host(t, 2), f.host(t, 3)
	da, db, dc := a.desired(), b.desired(), c.desired()
	for _, d := range []*Desired{&da, &db, &dc} {
		d.Speaker.RestartTime = time.Hour
	}
	of := map[*host]Desired{a: da, b: db, c: dc}
	for h, d := range of {
		for other := range of {
			if h != other {
				h.meets(d, other)
			}
		}
	}
	a.has(da, "10.1.1.0/26")
	b.has(db, "10.1.2.0/26")
	c.has(dc, "10.1.3.0/26")
	sa, sb, sc := a.start(t), b.start(t), c.start(t)
	sa.apply(da)
	sb.apply(db)
	sc.apply(dc)
	routes := []string{"10.1.1.0/26 via 10.0.0.1", "10.1.2.0/26 via 10.0.0.2", "10.1.3.0/26 via 10.0.0.3"}
	of1, of2, of3 := []string{routes[1], routes[2]}, []string{routes[0], routes[2]}, []string{routes[0], routes[1]}
	sa.mustLearn(of1...)
	sb.mustLearn(of2...)
	sc.mustLearn(of3...)
	for _, client := range []bool{true, false} {
		da.Speaker.ClusterID = netip.Addr{}
		if client {
			da.Speaker.ClusterID = a.v4
		}
		for addr, n := range da.Neighbours {
			n.Client = client
			da.Neighbours[addr] = n
		}
		since := time.Now()
		becomes(t, "complete", true, func() bool { return sa.look().Complete })
		sa.apply(da)
		becomes(t, "new sessions", true, func() bool {
			for who, want := range map[*speaker][]string{sa: of1, sb: of2, sc: of3} {
				got := strings.Join(who.learns(), "\n")
				for _, route := range want { // a reflector may send it as well
					if !strings.Contains(got, route) {
						t.Fatalf("clients %v: %s isn't in %s", client, route, got)
					}
				}
			}
			for _, p := range sa.look().Status {
				if p.State != Established || p.Since.Before(since) {
					return false
				}
			}
			return sa.look().Complete
		})
	}
}

// TestReflects: a host becomes the reflector of two that know only it, while another neighbour is away or set up wrongly. The two learn
// of each other all the same, long before the wait for that neighbour is over.
func TestReflects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		as   model.ASNumber // of the other neighbour
		says string
	}{
		"one is down":    {64512, ""},
		"one is refused": {0, "BGP neighbour 10.0.0.4: it has no AS number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t)
			hosts := []*host{f.host(t, 1), f.host(t, 2), f.host(t, 3), f.host(t, 4)}
			a, absent := hosts[0], hosts[3]
			da := a.desired()
			da.Speaker.RestartTime = time.Hour
			a.has(da, "10.1.1.0/26")
			sa := a.start(t)
			var clients []*speaker
			for i, h := range hosts[1:3] {
				a.meets(da, h)
				d := h.desired()
				d.Speaker.RestartTime = time.Hour
				h.meets(d, a)
				h.has(d, fmt.Sprintf("10.1.%d.0/26", i+2))
				s := h.start(t)
				s.apply(d)
				clients = append(clients, s)
			}
			n := a.meets(da, absent)
			n.AS = c.as
			da.Neighbours[absent.v4] = n
			apply := func() {
				t.Helper()
				if got := sa.ask(order{Do: "apply", Desired: da}).Err; got != c.says {
					t.Fatalf("Apply says %q, want %q", got, c.says)
				}
			}
			apply()
			own, second, third := "10.1.1.0/26 via 10.0.0.1", "10.1.2.0/26 via 10.0.0.2", "10.1.3.0/26 via 10.0.0.3"
			sa.mustLearn(second, third)
			clients[0].mustLearn(own)
			clients[1].mustLearn(own)
			da.Speaker.ClusterID = a.v4
			for addr, n := range da.Neighbours {
				n.Client = true
				da.Neighbours[addr] = n
			}
			apply()
			clients[0].mustLearn(own, third+" from 10.0.0.1")
			clients[1].mustLearn(own, second+" from 10.0.0.1")
		})
	}
}

// TestReflectsBesidePassword: a password file changes while sessions wait to restart for a reflector. The session with that neighbour
// keeps its password, as the neighbour has no other yet.
func TestReflectsBesidePassword(t *testing.T) {
	long.Test(t)
	t.Parallel()
	f := newFabric(t)
	a, client, signed, late := f.host(t, 1), f.host(t, 2), f.host(t, 3), f.host(t, 4)
	da := a.desired()
	speakers, desired := make(map[*host]*speaker), make(map[*host]Desired)
	file := passwordFile(t, "correct horse battery")
	for _, h := range []*host{client, signed, late} {
		d := h.desired()
		na, nh := a.meets(da, h), h.meets(d, a)
		if h == signed {
			na.PasswordFile, nh.PasswordFile = file, passwordFile(t, "correct horse battery")
		}
		da.Neighbours[h.v4], d.Neighbours[a.v4] = na, nh
		speakers[h], desired[h] = h.start(t), d
		speakers[h].apply(d)
	}
	sa := a.start(t)
	sa.apply(da)
	becomes(t, "complete", true, func() bool { return sa.look().Complete })
	before := sa.peer(signed.v4)
	// becomes sets whether there is a client, and waits for the result.
	becomes := func(is bool, meanwhile func()) {
		t.Helper()
		was := sa.peer(client.v4)
		n := da.Neighbours[client.v4]
		n.Client, da.Speaker.ClusterID = is, netip.Addr{}
		if is {
			da.Speaker.ClusterID = a.v4
		}
		da.Neighbours[client.v4] = n
		sa.apply(da)
		meanwhile()
		becomes(t, "a new session", true, func() bool {
			p := sa.peer(client.v4)
			return p.State == Established && p.Since.After(was.Since)
		})
		sameSessions(t, []PeerStatus{before}, []PeerStatus{sa.peer(signed.v4)})
	}
	if err := sa.ask(order{Do: "doubt", Prefix: netip.PrefixFrom(late.v4, 32)}).Err; err != "" { // it is coming up, so that all wait
		t.Fatal(err)
	}
	becomes(true, func() {
		if err := os.WriteFile(file, []byte("staple staple staple"), 0o600); err != nil {
			t.Fatal(err)
		}
		speakers[late].close()
		s := late.start(t)
		s.apply(desired[late])
	})
	becomes(false, func() {})
	if n := strings.Count(sa.log.String(), "password file has changed"); n != 1 {
		t.Errorf("said %d times that the file changed", n)
	}
}

// TestSettled: established sessions in every state. settled waits for none of them for ever.
func TestSettled(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		state sessionState
		want  bool
		due   time.Duration // 0 = nothing is
	}{
		"down":                   {sessionState{state: Connecting, since: now}, true, 0},
		"comes up":               {sessionState{state: OpenSent, since: now}, false, mute},
		"is to say all":          {sessionState{state: Established, since: ago(time.Second), progress: progress{says: true}}, false, settling - time.Second},
		"has said all":           {sessionState{state: Established, since: now, progress: progress{says: true, sentAll: true}}, true, 0},
		"doesn't say it in time": {sessionState{state: Established, since: ago(settling), progress: progress{says: true}}, true, 0},
		"never says it":          {sessionState{state: Established, since: ago(time.Second)}, false, quiet - time.Second},
		"has had its time":       {sessionState{state: Established, since: ago(quiet)}, true, settling - quiet},
	} {
		s := &sessions{table: map[netip.Addr]*sessionState{netip.MustParseAddr("10.0.0.2"): &c.state}}
		if got := s.settled(now); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
		due := c.due
		if due == 0 {
			due = time.Hour
		}
		if got := s.due(now); got != due+time.Millisecond {
			t.Errorf("%s: due in %s, want %s", name, got, due)
		}
	}
}

// TestFormer: routes from before a restart stay as long as they should, and no longer.
func TestFormer(t *testing.T) {
	b, c := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	path := func(a netip.Addr) plan.Path { return plan.Path{NextHop: a, Peer: a} }
	both, again, one := prefix("10.1.1.0/26"), prefix("10.1.2.0/26"), prefix("10.1.3.0/26")
	var l learned
	l.set([]plan.Learned{{Prefix: both, Paths: []plan.Path{path(b), path(c)}}, {Prefix: again, Paths: []plan.Path{path(b)}}, {Prefix: one, Paths: []plan.Path{path(c)}}})
	l.retain()
	want := func(step string, want map[netip.Prefix]int) {
		t.Helper()
		got := map[netip.Prefix]int{}
		for p, r := range l.routes {
			got[p] = len(r.Paths)
		}
		if diff := cmp.Diff(want, got, comparers()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	l.set([]plan.Learned{{Prefix: both}}) // a look at the new table, which does not have it yet
	want("retained", map[netip.Prefix]int{both: 2, again: 1, one: 1})
	l.forgetFormer(map[netip.Addr]plan.Neighbour{b: {}})
	want("without a neighbour", map[netip.Prefix]int{both: 1, again: 1})
	l.set([]plan.Learned{{Prefix: again, Paths: []plan.Path{path(b)}}})
	l.setComplete(true)
	want("complete", map[netip.Prefix]int{again: 1})
	l.set([]plan.Learned{{Prefix: one, Paths: []plan.Path{path(c)}}})
	l.setComplete(true)
	want("learned since", map[netip.Prefix]int{again: 1, one: 1})
	l.retain()
	l.clear()
	want("cleared", map[netip.Prefix]int{})
	if len(l.former) > 0 {
		t.Errorf("kept: %v", l.former)
	}
}

// TestDead: hosts die. Their routes stay for their restart time and go then.
func TestDead(t *testing.T) {
	long.Test(t)
	t.Parallel()
	for _, restart := range []time.Duration{time.Hour, time.Second} {
		t.Run(restart.String(), func(t *testing.T) {
			t.Parallel()
			a, b, da, db := twoHosts(t)
			a.has(da, "10.1.1.0/26")
			da.Speaker.HoldTime, da.Speaker.KeepaliveTime, da.Speaker.RestartTime = 3*time.Second, time.Second, restart
			sa, sb := a.start(t), b.start(t)
			sa.apply(da)
			sb.apply(db)
			sb.mustLearn("10.1.1.0/26 via 10.0.0.1")
			sb.mustBe("10.0.0.1 established")
			ip(t, a.ns, "link set eth0 down") // not even the end of a connection is heard
			sb.mustBe("10.0.0.1 connecting")
			if restart == time.Second {
				sb.mustLearn()
			} else if got := sb.learns(); len(got) != 1 {
				t.Errorf("in the restart time: %v", got)
			}
			ip(t, a.ns, "link set eth0 up")
			sb.mustLearn("10.1.1.0/26 via 10.0.0.1")
		})
	}
}

// TestNoRestart: without graceful restart, or from a speaker that is silenced, routes go at once.
func TestNoRestart(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	a, b, c := f.host(t, 1), f.host(t, 2), f.host(t, 3)
	da, db, dc := a.desired(), b.desired(), c.desired()
	da.Speaker.RestartTime = 0
	b.meets(db, a)
	b.meets(db, c)
	a.meets(da, b)
	c.meets(dc, b)
	a.has(da, "10.1.1.0/26")
	c.has(dc, "10.1.3.0/26")
	sa, sb, sc := a.start(t), b.start(t), c.start(t)
	sa.apply(da)
	sb.apply(db)
	sc.apply(dc)
	sb.mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.3.0/26 via 10.0.0.3")
	sa.close()
	sb.mustLearn("10.1.3.0/26 via 10.0.0.3")
	sc.apply(Desired{})
	sb.mustLearn()
	if got := sc.look(); len(got.Status) != 0 || len(got.Learned) != 0 {
		t.Errorf("silenced: %+v", got)
	}
	sc.apply(dc) // and it can speak again
	sb.mustLearn("10.1.3.0/26 via 10.0.0.3")
}

// TestTerms changes what a running session can do without, and what it can't.
func TestTerms(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	a, b := f.host(t, 1), f.host(t, 2)
	da, db := a.desired(), b.desired()
	n := a.meets(da, b)
	b.meets(db, a)
	a.has(da, "10.1.1.0/26")
	b.has(db, "10.1.2.0/26")
	sa, sb := a.start(t), b.start(t)
	sa.apply(da)
	sb.apply(db)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
	before := sa.look().Status
	da.Speaker.HoldTime, da.Speaker.RestartTime, n.MaxPrefixes = 30*time.Second, 30*time.Second, 10
	da.Neighbours[b.v4] = n
	sa.apply(da)
	sa.apply(da)
	a.meets6(da, b) // another one
	sa.apply(da)
	delete(da.Neighbours, b.v6)
	sa.apply(da)
	sameSessions(t, before, sa.look().Status)
	sb.mustLearn("10.1.1.0/26 via 10.0.0.1")
	// A change of the listening address, or of the router id, restarts all sessions.
	da.Speaker.Listen, da.Speaker.RouterID = []netip.Addr{a.v4}, netip.MustParseAddr("9.9.9.9")
	sa.apply(da)
	becomes(t, "a new session", true, func() bool {
		p := sa.peer(b.v4)
		return p.State == Established && p.Since.After(before[0].Since)
	})
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
	// The limit holds from now on.
	for i := range 11 {
		b.has(db, fmt.Sprintf("10.1.2.%d/32", i))
	}
	sb.apply(db)
	sa.mustBe("10.0.0.2 flooded")
}

// TestFlood: a neighbour sends 100,000 prefixes. It is cut off, and others don't suffer.
func TestFlood(t *testing.T) {
	long.Test(t)
	t.Parallel()
	f := newFabric(t)
	a, b, c := f.host(t, 1), f.host(t, 2), f.host(t, 3)
	da, db, dc := a.desired(), b.desired(), c.desired()
	a.meets(da, b)
	limited := a.outside(da, c, 65001)
	limited.MaxPrefixes = 10000
	da.Neighbours[c.v4] = limited
	b.meets(db, a)
	dc.Speaker.AS = 65001
	c.outside(dc, a, 64512)
	a.has(da, "10.1.1.0/26")
	b.has(db, "10.1.2.0/26")
	for i := range 20000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		dc.Advertisements[p] = plan.Advertisement{Prefix: p, NextHop: c.v4}
	}
	c.has(dc, "10.1.3.0/26")
	sa, sb, sc := a.start(t), b.start(t), c.start(t)
	sa.apply(da)
	sb.apply(db)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
	before := sa.peer(b.v4).Since
	sc.apply(dc)
	becomes(t, "the flooding neighbour", Flooded, func() string { return sa.peer(c.v4).State })
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
	if p := sa.peer(c.v4); !strings.Contains(p.Error, "more than 10000") {
		t.Errorf("status says %q", p.Error)
	}
	becomes(t, "the log names it", true, func() bool { return strings.Contains(sa.log.String(), "BGP neighbour floods") })
	if p := sa.peer(b.v4); p.State != Established || p.Since != before {
		t.Errorf("the other session: %+v", p)
	}
	// It is left alone until it may send more.
	limited.MaxPrefixes = 200000
	da.Neighbours[c.v4] = limited
	sa.apply(da)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2", "10.1.3.0/26 via 10.0.0.3")
	becomes(t, "received and used", [2]int{20001, 1}, func() [2]int {
		p := sa.peer(c.v4)
		return [2]int{p.Received, p.Used}
	})
}
