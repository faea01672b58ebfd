// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bgp

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// bird is a BIRD 2 in a host's namespace.
type bird struct {
	tb   testing.TB
	host *host
	dir  string
	cmd  *exec.Cmd
	log  *syncBuffer
}

// startBIRD starts BIRD with these sessions. The rest of its configuration is always the same.
func (h *host) startBIRD(tb testing.TB, sessions string) *bird {
	tb.Helper()
	b := &bird{tb: tb, host: h, dir: tb.TempDir()}
	conf := fmt.Sprintf("log stderr all;\nrouter id %s;\nprotocol device {}\n%s", h.v4, sessions)
	if err := os.WriteFile(filepath.Join(b.dir, "bird.conf"), []byte(conf), 0o600); err != nil {
		tb.Fatal(err)
	}
	b.start()
	tb.Cleanup(func() {
		b.kill()
		if tb.Failed() {
			tb.Logf("BIRD's log:\n%s", b.log)
		}
	})
	return b
}

func (b *bird) start(args ...string) {
	b.tb.Helper()
	b.log = new(syncBuffer)
	b.cmd = exec.Command("bird", append(args, "-f", "-c", filepath.Join(b.dir, "bird.conf"), "-s", filepath.Join(b.dir, "ctl"), "-P", filepath.Join(b.dir, "pid"))...)
	b.cmd.Stderr = b.log
	in(b.tb, b.host.ns, b.cmd.Start)
}

func (b *bird) kill() {
	b.tb.Helper()
	if err := b.cmd.Process.Kill(); err != nil {
		b.tb.Error(err)
	}
	_ = b.cmd.Wait() // it was killed, which is an error
}

// birdc returns the output of birdc.
func (b *bird) birdc(command string) string {
	b.tb.Helper()
	out, err := exec.Command("birdc", append([]string{"-r", "-s", filepath.Join(b.dir, "ctl")}, strings.Fields(command)...)...).CombinedOutput()
	if err != nil {
		return "birdc: " + string(out) // it isn't up yet
	}
	return string(out)
}

// learns returns the prefixes that BIRD has from neighbours, with next hops.
func (b *bird) learns() []string {
	b.tb.Helper()
	var list []string
	for line := range strings.Lines(b.birdc("show route where source = RTS_BGP")) {
		f := strings.Fields(line)
		switch {
		case len(f) > 1 && strings.Contains(f[0], "/"):
			list = append(list, f[0])
		case len(f) > 1 && f[0] == "via" && len(list) > 0:
			list[len(list)-1] += " via " + f[1]
		}
	}
	slices.Sort(list)
	return list
}

func (b *bird) mustLearn(want ...string) {
	b.tb.Helper()
	becomes(b.tb, "BIRD learns", want, b.learns)
}

// topOfRack is BIRD as an eBGP neighbour with a password over both families, with graceful restart.
func topOfRack(password string) string {
	s := "protocol static { ipv4; route 10.1.9.0/24 unreachable; route 0.0.0.0/0 unreachable; route 172.16.0.0/12 unreachable; }\n" +
		"protocol static { ipv6; route fd01:0:0:9::/64 unreachable; }\n"
	for _, f := range []struct{ name, local, remote string }{{"ipv4", "10.0.0.2", "10.0.0.1"}, {"ipv6", "fd00::2", "fd00::1"}} {
		s += fmt.Sprintf(`protocol bgp agent_%[1]s {
	local %[2]s as 65001;
	neighbor %[3]s as 64512;
	password "%[4]s";
	hold time 9; connect retry time 2; error wait time 1, 2;
	graceful restart on; graceful restart time 60;
	%[1]s { import all; export where source = RTS_STATIC; };
}
`, f.name, f.local, f.remote, password)
	}
	return s
}

func TestBIRD(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	a, top := f.host(t, 1), f.host(t, 2)
	const secret = "pass word with blanks"
	b := top.startBIRD(t, topOfRack(secret))
	d := a.desired()
	n := a.outside(d, top, 65001)
	n.PasswordFile = passwordFile(t, secret)
	d.Neighbours[n.Address] = n
	n6 := n
	n6.Address, n6.Local = top.v6, a.v6
	d.Neighbours[n6.Address] = n6
	a.has(d, "10.1.1.0/26", "10.1.1.64/26", "fd01:0:0:1::/122")
	s := a.start(t)
	s.apply(d)
	learned := []string{"10.1.9.0/24 via 10.0.0.2", "fd01:0:0:9::/64 via fd00::2"}
	s.mustLearn(learned...)
	all := []string{"10.1.1.0/26 via 10.0.0.1", "10.1.1.64/26 via 10.0.0.1", "fd01:0:0:1::/122 via fd00::1"}
	b.mustLearn(all...)
	becomes(t, "BIRD has sent all", true, func() bool { return s.look().Complete })

	// We restart, gracefully and not: BIRD keeps what it has, and drops afterwards what we no longer have.
	for i, end := range []func(*speaker){(*speaker).close, (*speaker).kill} {
		end(s)
		s = a.start(t)
		since := time.Now()
		if i == 1 {
			delete(d.Advertisements, prefix("10.1.1.64/26"))
		}
		s.apply(d)
		kept := []string{all[0], all[2]}
		becomes(t, "our sessions", true, func() bool {
			got := fmt.Sprint(b.learns())
			if got != fmt.Sprint(all) && (i == 0 || got != fmt.Sprint(kept)) {
				t.Fatalf("in our restart BIRD has: %s", got)
			}
			up := 0
			for _, p := range s.look().Status {
				if p.State == Established && p.Since.After(since) {
					up++
				}
			}
			return up == 2
		})
		s.mustLearn(learned...)
		becomes(t, "BIRD has sent all", true, func() bool { return s.look().Complete })
	}
	all = []string{all[0], all[2]}
	b.mustLearn(all...)

	// BIRD restarts: we keep what we have.
	before := s.peer(top.v4).Since
	b.kill()
	b.start("-R")
	becomes(t, "BIRD's session", true, func() bool {
		if got := fmt.Sprint(s.learns()); got != fmt.Sprint(learned) {
			t.Fatalf("in BIRD's restart we have: %s", got)
		}
		up := 0
		for _, p := range s.look().Status {
			if p.State == Established && p.Since.After(before) {
				up++
			}
		}
		return up == 2
	})
	b.mustLearn(all...)
	s.mustLearn(learned...)
	if strings.Contains(s.log.String(), secret) {
		t.Errorf("the log has the password:\n%s", s.log)
	}
}

// TestBIRDReflector: BIRD reflects between two hosts, and is a client of a host that reflects.
func TestBIRDReflector(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	rr, a, b, client := f.host(t, 1), f.host(t, 2), f.host(t, 3), f.host(t, 4)
	rr.startBIRD(t, `protocol bgp clients {
	local 10.0.0.1 as 64512;
	neighbor range 10.0.0.0/24 as 64512;
	dynamic name "client"; rr client; rr cluster id 1.0.0.1;
	ipv4 { import all; export all; };
}`)
	sessionToB := "protocol bgp b { local 10.0.0.4 as 64512; neighbor 10.0.0.3 as 64512; connect retry time 2; ipv4 { import all; export where source = RTS_STATIC; }; }\n"
	leaf := client.startBIRD(t, "protocol static { ipv4; route 10.1.4.0/26 unreachable; }\nprotocol direct { ipv4; }\n"+sessionToB)
	var speakers []*speaker
	for i, h := range []*host{a, b} {
		d := h.desired()
		n := h.meets(d, rr)
		n.Kind, n.Host = plan.FromOwn, ""
		d.Neighbours[n.Address] = n
		h.has(d, []string{"10.1.2.0/26", "10.1.3.0/26"}[i])
		if h == b {
			d.Speaker.ClusterID = netip.MustParseAddr("1.0.0.3")
			c := h.meets(d, client)
			c.Kind, c.Host, c.Client = plan.FromReflects, "", true
			d.Neighbours[c.Address] = c
		}
		s := h.start(t)
		s.apply(d)
		speakers = append(speakers, s)
	}
	speakers[0].mustLearn("10.1.3.0/26 via 10.0.0.3 from 10.0.0.1", "10.1.4.0/26 via 10.0.0.4 from 10.0.0.1")
	speakers[1].mustLearn("10.1.2.0/26 via 10.0.0.2 from 10.0.0.1", "10.1.4.0/26 via 10.0.0.4")
	leaf.mustLearn("10.1.2.0/26 via 10.0.0.2", "10.1.3.0/26 via 10.0.0.3")
	for _, s := range speakers { // whatever is reflected to whom it comes from
		if strings.Contains(s.log.String(), "not taken") {
			t.Errorf("an alarm for nothing:\n%s", s.log)
		}
	}
}

// TestPeerOptions: BIRD sends over IPv4 a route that has been in our AS, as a router between racks of one AS does. Over IPv6 it has a
// session with another AS of ours, in which it accepts packets only from its own network.
func TestPeerOptions(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	a, top := f.host(t, 1), f.host(t, 2)
	b := top.startBIRD(t, `
protocol static { ipv4; route 10.1.9.0/24 unreachable; }
protocol static { ipv6; route fd01:0:0:9::/64 unreachable; }
protocol bgp v4 {
	local 10.0.0.2 as 65001; neighbor 10.0.0.1 as 64512; connect retry time 2; error wait time 1, 2;
	ipv4 { import all; export filter { if source != RTS_STATIC then reject; bgp_path.prepend(64512); bgp_path.prepend(65001); accept; }; };
}
protocol bgp v6 {
	local fd00::2 as 65001; neighbor fd00::1 as 65099; ttl security on; connect retry time 2; error wait time 1, 2; hold time 90;
	ipv6 { import all; export where source = RTS_STATIC; };
}
`)
	d := a.desired()
	n := a.outside(d, top, 65001)
	d.Neighbours[n.Address] = n
	n6 := n
	n6.Address, n6.Local = top.v6, a.v6
	n6.Options = model.PeerOptions{LocalAS: 65099, TTLSecurity: 1, HoldTime: 12}
	d.Neighbours[n6.Address] = n6
	a.has(d, "10.1.1.0/26", "fd01:0:0:1::/122")
	s := a.start(t)
	s.apply(d)
	// Our routes come without the speaker's AS: the neighbour knows this host by the other AS.
	b.mustLearn("10.1.1.0/26 via 10.0.0.1", "fd01:0:0:1::/122 via fd00::1")
	s.mustLearn("fd01:0:0:9::/64 via fd00::2")
	if out := b.birdc("show protocols all v6"); !regexp.MustCompile(`Hold timer: +[0-9.]+/12\b`).MatchString(out) {
		t.Errorf("want a hold time of 12 s:\n%s", out)
	}

	n.Options.AllowedLocalAS = 1
	n.Local = netip.Addr{} // as with source_address None
	d.Neighbours[n.Address] = n
	d.Speaker.Communities = []model.Community{{CIDR: prefix("10.1.0.0/16"), Value: "64512:100"}, {CIDR: prefix("10.1.0.0/16"), Value: "64512:1:2"}, {CIDR: prefix("10.2.0.0/16"), Value: "64512:3"}}
	s.apply(d)
	s.mustLearn("10.1.9.0/24 via 10.0.0.2", "fd01:0:0:9::/64 via fd00::2")
	becomes(t, "communities", []string{"BGP.community: (64512,100)", "BGP.large_community: (64512, 1, 2)"}, func() (found []string) {
		for line := range strings.Lines(b.birdc("show route all 10.1.1.0/26")) {
			if strings.Contains(line, "community") {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return found
	})
}

// TestNextHopOfReflected: a reflector passes BIRD's route on to BIRD, with the next hop that the peer's options set.
func TestNextHopOfReflected(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	rr, from, to := f.host(t, 1), f.host(t, 2), f.host(t, 3)
	from.startBIRD(t, `protocol static { ipv4; route 10.1.2.0/26 unreachable; }
protocol bgp reflector { local 10.0.0.2 as 64512; neighbor 10.0.0.1 as 64512; connect retry time 2; ipv4 { import all; export where source = RTS_STATIC; next hop self; }; }
`)
	b := to.startBIRD(t, `protocol direct { ipv4; }
protocol bgp reflector { local 10.0.0.3 as 64512; neighbor 10.0.0.1 as 64512; connect retry time 2; ipv4 { import all; export none; }; }
`)
	d := rr.desired()
	d.Speaker.ClusterID = netip.MustParseAddr("1.0.0.1")
	for _, h := range []*host{from, to} {
		n := rr.meets(d, h)
		n.Kind, n.Host, n.Client = plan.FromOwn, "", true
		d.Neighbours[n.Address] = n
	}
	s := rr.start(t)
	s.apply(d)
	b.mustLearn("10.1.2.0/26 via 10.0.0.2")
	n := d.Neighbours[to.v4]
	n.Options.NextHop = model.NextHopSelf
	d.Neighbours[to.v4] = n
	s.apply(d)
	b.mustLearn("10.1.2.0/26 via 10.0.0.1")
}
