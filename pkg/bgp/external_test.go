// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/long"
)

// outside adds the other host as an eBGP neighbour in another AS.
func (h *host) outside(d Desired, other *host, as model.ASNumber) plan.Neighbour {
	n := plan.Neighbour{Address: other.v4, AS: as, Local: h.v4, Kind: plan.FromGlobal, MaxPrefixes: 50000}
	d.Neighbours[n.Address] = n
	return n
}

// pair returns two hosts in AS 64512 and 65001 that are neighbours by eBGP.
func pair(t *testing.T) (a, b *host, da, db Desired) {
	t.Helper()
	f := newFabric(t)
	a, b = f.host(t, 1), f.host(t, 2)
	da, db = a.desired(), b.desired()
	db.Speaker.AS = 65001
	a.outside(da, b, 65001)
	b.outside(db, a, 64512)
	return a, b, da, db
}

func TestImport(t *testing.T) {
	t.Parallel()
	a, b, da, db := pair(t)
	n := da.Neighbours[b.v4]
	n.Import = filterList("reject 10.1.7.0/24", "accept 192.168.0.0/16", "accept 0.0.0.0/0")
	a.has(da, "10.1.1.0/26")
	// Our own prefix, a default route, one outside the pools, some inside.
	b.has(db, "10.1.1.0/26", "0.0.0.0/0", "10.1.2.0/26", "10.1.7.0/26", "172.16.0.0/16", "192.168.1.0/24", "10.0.0.0/8")
	sa, sb := a.start(t), b.start(t)
	sa.apply(da)
	sb.apply(db)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2", "10.1.7.0/26 via 10.0.0.2")
	before := sa.look().Status

	// The neighbour's own filters come first; a default route isn't accepted even then.
	da.Neighbours[b.v4] = n
	sa.apply(da)
	sa.mustLearn("10.0.0.0/8 via 10.0.0.2", "10.1.2.0/26 via 10.0.0.2", "172.16.0.0/16 via 10.0.0.2", "192.168.1.0/24 via 10.0.0.2")
	n.Import = nil
	da.Neighbours[b.v4] = n
	da.Speaker.Import = []netip.Prefix{prefix("10.1.2.0/24")}
	sa.apply(da)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")

	// A block that is given up here and taken there is learned from there.
	da.Speaker.Import = []netip.Prefix{prefix("10.1.0.0/16")}
	delete(da.Advertisements, prefix("10.1.1.0/26"))
	sa.apply(da)
	sa.mustLearn("10.1.1.0/26 via 10.0.0.2", "10.1.2.0/26 via 10.0.0.2", "10.1.7.0/26 via 10.0.0.2")
	a.has(da, "10.1.1.0/26")
	sa.apply(da)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2", "10.1.7.0/26 via 10.0.0.2")
	sameSessions(t, before, sa.look().Status)
}

func TestExport(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	a, b, c := f.host(t, 1), f.host(t, 2), f.host(t, 3)
	da, db, dc := a.desired(), b.desired(), c.desired()
	dc.Speaker.AS = 65001
	a.meets(da, b)
	b.meets(db, a)
	n := a.outside(da, c, 65001)
	a.meets6(da, b)
	b.meets6(db, a)
	c.outside(dc, a, 64512)
	b.has(db, "10.1.2.0/26")
	c.has(dc, "10.1.3.0/26")
	a.has(da, "10.1.1.0/26", "10.1.1.64/26")
	tunnelled := prefix("10.1.1.64/26")
	da.Advertisements[tunnelled] = plan.Advertisement{Prefix: tunnelled, NextHop: a.v4, NoMesh: true}
	sa, sb, sc := a.start(t), b.start(t), c.start(t)
	sa.apply(da)
	sb.apply(db)
	sc.apply(dc)
	// Only the other's own; the prefix that goes by a tunnel in the mesh is missing.
	sb.mustLearn("10.1.1.0/26 via 10.0.0.1")
	sc.mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.1.64/26 via 10.0.0.1")
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2", "10.1.3.0/26 via 10.0.0.3")
	becomes(t, "sent", []int{1, 2, 0}, func() (sent []int) {
		for _, p := range sa.look().Status {
			sent = append(sent, p.Sent)
		}
		return sent
	})
	sa.mustBe("10.0.0.2 established", "10.0.0.3 established", "fd00::2 established")
	before := sa.look().Status

	da.Advertisements[tunnelled] = plan.Advertisement{Prefix: tunnelled, NextHop: a.v4}
	n.Export = filterList("accept 10.1.1.64/26", "reject 10.1.0.0/16")
	da.Neighbours[c.v4] = n
	sa.apply(da)
	sb.mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.1.64/26 via 10.0.0.1")
	sc.mustLearn("10.1.1.64/26 via 10.0.0.1")
	da.Advertisements[tunnelled] = plan.Advertisement{Prefix: tunnelled, NextHop: a.v4, NoMesh: true}
	sa.apply(da)
	sb.mustLearn("10.1.1.0/26 via 10.0.0.1")
	sameSessions(t, before, sa.look().Status)
}

// TestReflector: a reflector connects two clients and a neighbour outside. Next hops stay, and only a reflector reflects.
func TestReflector(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	rr, a, b, c := f.host(t, 1), f.host(t, 2), f.host(t, 3), f.host(t, 4)
	drr, dc := rr.desired(), c.desired()
	dc.Speaker.AS = 65001
	drr.Speaker.ClusterID = netip.MustParseAddr("1.0.0.1")
	rr.outside(drr, c, 65001)
	c.outside(dc, rr, 64512)
	rr.has(drr, "10.1.1.0/26")
	c.has(dc, "10.1.4.0/26")
	var clients []*speaker
	for i, h := range []*host{a, b} {
		n := rr.meets(drr, h)
		n.Client, n.Kind = true, plan.FromReflects
		drr.Neighbours[h.v4] = n
		d := h.desired()
		n = h.meets(d, rr)
		n.Kind = plan.FromOwn
		d.Neighbours[rr.v4] = n
		h.has(d, []string{"10.1.2.0/26", "10.1.3.0/26"}[i])
		s := h.start(t)
		s.apply(d)
		clients = append(clients, s)
	}
	srr, sc := rr.start(t), c.start(t)
	srr.apply(drr)
	sc.apply(dc)
	clients[0].mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.3.0/26 via 10.0.0.3 from 10.0.0.1", "10.1.4.0/26 via 10.0.0.4 from 10.0.0.1")
	clients[1].mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.2.0/26 via 10.0.0.2 from 10.0.0.1", "10.1.4.0/26 via 10.0.0.4 from 10.0.0.1")
	sc.mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.2.0/26 via 10.0.0.2 from 10.0.0.1", "10.1.3.0/26 via 10.0.0.3 from 10.0.0.1")
	srr.mustLearn("10.1.2.0/26 via 10.0.0.2", "10.1.3.0/26 via 10.0.0.3", "10.1.4.0/26 via 10.0.0.4")
	clients[0].close()
}

// TestTwoReflectors: two reflectors are neighbours of each other; some clients have both, some one. All learn one another's
// prefixes and not their own, and what one withdraws is gone everywhere.
func TestTwoReflectors(t *testing.T) {
	long.Test(t)
	t.Parallel()
	for _, clusters := range [][]string{{"1.0.0.1", "1.0.0.1"}, {"1.0.0.1", "1.0.0.2"}} {
		f := newFabric(t)
		hosts := []*host{f.host(t, 1), f.host(t, 2), f.host(t, 3), f.host(t, 4)} // the first two reflect
		var desired []Desired
		for i, h := range hosts {
			d := h.desired()
			for j, other := range hosts {
				if i == j || i >= 2 && j >= 2 || i+j == 3 && i*j == 0 {
					continue // the last is a client of the second alone
				}
				n := h.meets(d, other)
				n.Kind, n.Client, n.Reflector = plan.FromGlobal, i < 2 && j >= 2, i < 2 && j < 2
				d.Neighbours[other.v4] = n
			}
			if i < 2 {
				d.Speaker.ClusterID = netip.MustParseAddr(clusters[i])
			}
			desired = append(desired, d)
		}
		hosts[0].has(desired[0], "10.1.1.0/26")
		hosts[2].has(desired[2], "10.1.3.0/26")
		var speakers []*speaker
		for i, h := range hosts {
			speakers = append(speakers, h.start(t))
			speakers[i].apply(desired[i])
		}
		for _, s := range speakers {
			becomes(t, s.name+" has its sessions", true, func() bool {
				for _, p := range s.look().Status {
					if p.State != Established {
						return false
					}
				}
				return true
			})
		}
		hosts[3].has(desired[3], "10.1.4.0/26")
		speakers[3].apply(desired[3])
		speakers[2].mustLearn("10.1.1.0/26 via 10.0.0.1 via 10.0.0.1 from 10.0.0.2", "10.1.4.0/26 via 10.0.0.4 from 10.0.0.1 via 10.0.0.4 from 10.0.0.2")
		speakers[3].mustLearn("10.1.1.0/26 via 10.0.0.1 from 10.0.0.2", "10.1.3.0/26 via 10.0.0.3 from 10.0.0.2")
		for _, p := range speakers[2].look().Status {
			if p.Refused > 0 {
				t.Errorf("clusters %s: %s sends a client %d routes of its own", clusters, p.Address, p.Refused)
			}
		}
		delete(desired[2].Advertisements, prefix("10.1.3.0/26"))
		speakers[2].apply(desired[2])
		speakers[0].mustLearn("10.1.4.0/26 via 10.0.0.4 from 10.0.0.2")
		speakers[1].mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.4.0/26 via 10.0.0.4")
		speakers[3].mustLearn("10.1.1.0/26 via 10.0.0.1 from 10.0.0.2")
		for _, s := range speakers {
			s.close()
		}
	}
}

// TestMultipath: two neighbours have equally good routes to a prefix.
func TestMultipath(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	a, b, c := f.host(t, 1), f.host(t, 2), f.host(t, 3)
	da := a.desired()
	sa := a.start(t)
	var tops []*speaker
	var desired []Desired
	for _, h := range []*host{b, c} {
		a.outside(da, h, 65001)
		d := h.desired()
		d.Speaker.AS = 65001
		h.outside(d, a, 64512)
		h.has(d, "10.1.9.0/24")
		s := h.start(t)
		s.apply(d)
		tops, desired = append(tops, s), append(desired, d)
	}
	sa.apply(da)
	sa.mustLearn("10.1.9.0/24 via 10.0.0.2 via 10.0.0.3")
	clear(desired[0].Advertisements)
	tops[0].apply(desired[0])
	sa.mustLearn("10.1.9.0/24 via 10.0.0.3")
	b.has(desired[0], "10.1.9.0/24")
	tops[0].apply(desired[0])
	sa.mustLearn("10.1.9.0/24 via 10.0.0.2 via 10.0.0.3")
	tops[1].apply(Desired{})
	sa.mustLearn("10.1.9.0/24 via 10.0.0.2")
}

// TestSecond: two neighbours have routes to a prefix, one better than the other. Changes of the worse one are reported along
// with the better one, and on request.
func TestSecond(t *testing.T) {
	long.Test(t)
	t.Parallel()
	f := newFabric(t)
	a, b, c := f.host(t, 1), f.host(t, 2), f.host(t, 3)
	da, db, dc := a.desired(), b.desired(), c.desired()
	db.Speaker.AS = 65001
	a.outside(da, b, 65001)
	b.outside(db, a, 64512)
	a.meets(da, c)
	c.meets(dc, a)
	b.has(db, "10.1.9.0/24")
	sa, sb, sc := a.start(t), b.start(t), c.start(t)
	sa.apply(da)
	sb.apply(db)
	sc.apply(dc)
	sa.mustLearn("10.1.9.0/24 via 10.0.0.2")
	sa.mustBe("10.0.0.2 established", "10.0.0.3 established")
	c.has(dc, "10.1.9.0/24")
	sc.apply(dc)
	sa.mustLearn("10.1.9.0/24 via 10.0.0.3 via 10.0.0.2 rank 1")
	becomes(t, "used", []int{0, 1}, func() []int { return []int{sa.peer(b.v4).Used, sa.peer(c.v4).Used} })
	sb.apply(Desired{})
	sa.mustBe("10.0.0.2 connecting", "10.0.0.3 established")
	becomes(t, "what is learned, when it is asked for", []string{"10.1.9.0/24 via 10.0.0.3"}, func() []string {
		sa.ask(order{Do: "again", Prefix: prefix("10.1.9.0/24")})
		return sa.learns()
	})
	sb.apply(db)
	sa.mustBe("10.0.0.2 established", "10.0.0.3 established")
	becomes(t, "and is there again", []string{"10.1.9.0/24 via 10.0.0.3 via 10.0.0.2 rank 1"}, func() []string {
		sa.ask(order{Do: "again", Prefix: prefix("10.1.9.0/24")})
		return sa.learns()
	})
	clear(dc.Advertisements)
	sc.apply(dc)
	sa.mustLearn("10.1.9.0/24 via 10.0.0.2")
}

func TestPassword(t *testing.T) {
	long.Test(t)
	t.Parallel()
	const secret, other = "correct horse battery", "staple staple staple"
	a, b, da, db := pair(t)
	a.has(da, "10.1.1.0/26")
	b.has(db, "10.1.2.0/26")
	file := passwordFile(t, secret)
	na, nb := da.Neighbours[b.v4], db.Neighbours[a.v4]
	na.PasswordFile, nb.PasswordFile = file, passwordFile(t, secret)
	da.Neighbours[b.v4], db.Neighbours[a.v4] = na, nb
	sa, sb := a.startLogging(t, "debug"), b.startLogging(t, "debug")
	sa.apply(da)
	sb.apply(db)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")

	// The file has a wrong password: the session goes on, and no new one comes up.
	before := sa.look().Status
	if err := os.WriteFile(file, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"10.1.3.0/26", "10.1.4.0/26"} {
		a.has(da, p)
		sa.apply(da)
		becomes(t, "it is sent", true, func() bool { return slices.Contains(sb.learns(), p+" via 10.0.0.1") })
	}
	sameSessions(t, before, sa.look().Status)
	if n := strings.Count(sa.log.String(), "password file has changed"); n != 1 {
		t.Errorf("said %d times that the file changed:\n%s", n, sa.log)
	}
	clear(da.Advertisements)
	a.has(da, "10.1.1.0/26")
	sa.apply(da)
	sb.apply(Desired{})
	sb.apply(db)
	sa.mustLearn()
	becomes(t, "the error", true, func() bool {
		return strings.Contains(sa.peer(b.v4).Error, "timeout; it is down, or its password is not the one in "+file)
	})
	// The file is corrected, without an Apply.
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
	// Only one side wants a password.
	na.PasswordFile = ""
	da.Neighbours[b.v4] = na
	sa.apply(da)
	becomes(t, "the other side's error", true, func() bool { return strings.Contains(sb.peer(a.v4).Error, "connect: ") })
	nb.PasswordFile = ""
	db.Neighbours[a.v4] = nb
	sb.apply(db)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
	sb.mustLearn("10.1.1.0/26 via 10.0.0.1")

	// A missing file ends no session.
	na.PasswordFile = file + ".missing"
	da.Neighbours[b.v4] = na
	if got := sa.ask(order{Do: "apply", Desired: da}).Err; !strings.Contains(got, na.PasswordFile) {
		t.Errorf("Apply says %q", got)
	}
	if got := sa.states(); len(got) != 1 || got[0] != "10.0.0.2 established" {
		t.Errorf("after a missing file: %s", got)
	}
	for _, s := range []*speaker{sa, sb} {
		for _, p := range []string{secret, other} {
			if strings.Contains(s.log.String(), p) {
				t.Errorf("%s logs a password:\n%s", s.name, s.log)
			}
		}
	}
}

// TestWrongAS: a neighbour has another AS than is set. Each side reports it once, however its connections end.
func TestWrongAS(t *testing.T) {
	long.Test(t)
	t.Parallel()
	a, b, da, db := pair(t)
	a.outside(da, b, 65002)
	sa, sb := a.start(t), b.start(t)
	sa.apply(da)
	sb.apply(db)
	becomes(t, "the error", true, func() bool {
		return strings.Contains(sa.peer(b.v4).Error, "it is not in AS 65002")
	})
	becomes(t, "the other side's error", true, func() bool {
		return strings.Contains(sb.peer(a.v4).Error, "expect another AS number of us")
	})
	tries := counter(t, a.ns, "TcpActiveOpens")
	becomes(t, "it is tried twice more", true, func() bool { return counter(t, a.ns, "TcpActiveOpens") > tries+2 })
	for _, s := range []*speaker{sa, sb} {
		said := 0 // since it couldn't be connected to, or didn't answer, as where a process waits for its turn
		for line := range strings.Lines(s.log.String()) {
			switch {
			case strings.Contains(line, `error="connect: `), strings.Contains(line, noAnswer):
				said = 0
			case strings.Contains(line, "BGP session failed"):
				if said++; said == 2 {
					t.Errorf("%s: a reason was said again:\n%s", s.name, s.log)
				}
			}
		}
		becomes(t, "the trouble", troubleAS, func() Trouble { return s.look().Status[0].Trouble })
	}
	if strings.Contains(sa.log.String(), "session up") {
		t.Errorf("a session with a wrong AS:\n%s", sa.log)
	}
	a.outside(da, b, 65001)
	sa.apply(da)
	sa.mustBe("10.0.0.2 established")
}
