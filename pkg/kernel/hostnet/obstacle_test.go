// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// mustFind finds obstacles, and removes each by the command that it names.
func mustFind(t *testing.T, o *Obstacles) (sysctls []string) {
	t.Helper()
	found, err := o.Find([]string{"cali"})
	if err != nil {
		t.Error(err)
	}
	for _, f := range found {
		name := f.What
		if f.Led != (strings.HasPrefix(f.What, "routes of") && (f.Pods4 || f.Pods6)) {
			t.Errorf("%s: led away: %t", f.What, f.Led)
		}
		if f.Maybe != strings.HasSuffix(f.What, ".rp_filter") {
			t.Errorf("%s: may be nothing: %t", f.What, f.Maybe)
		}
		if f.Pods4 || f.Pods6 {
			name += " pods"
		}
		sysctls = append(sysctls, name)
		_, command, _ := strings.Cut(f.Text, ": run ")
		command, _, _ = strings.Cut(command, ",")
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	return sysctls
}

// TestObstacles: settings of the host that stop workloads' packets are found, and harmless ones aren't.
func TestObstacles(t *testing.T) {
	for _, c := range []struct {
		name  string
		apply func()
		want  []string
	}{
		{"nothing", func() {}, nil},
		{"default route", func() {
			netns.IP(t, "route", "add", "default", "via", "192.0.2.9")
			netns.SetSysctl(t, "ipv4/conf/up0/forwarding", "0")
		}, []string{"net.ipv4.conf.up0.forwarding"}},
		{"several next hops", func() {
			netns.IP(t, "route", "add", "default", "nexthop", "via", "192.0.2.9", "nexthop", "via", "192.0.2.10")
			netns.SetSysctl(t, "ipv4/conf/up0/forwarding", "0")
		}, []string{"net.ipv4.conf.up0.forwarding"}},
		{"other hosts' blocks", func() {
			netns.IP(t, "route", "add", "192.168.1.0/26", "via", "192.0.2.9", "proto", "81")
			netns.SetSysctl(t, "ipv4/conf/up0/forwarding", "0")
		}, []string{"net.ipv4.conf.up0.forwarding"}},
		{"no router", func() { netns.SetSysctl(t, "ipv4/conf/up0/forwarding", "0") }, nil},
		{"a workload", func() { netns.SetSysctl(t, "ipv4/conf/cali1/forwarding", "0") }, nil},
		{"gateway answered by proxy", func() {
			netns.IP(t, "route", "add", "default", "via", "192.0.2.9")
			netns.IP(t, "route", "del", "local", "169.254.1.1", "table", "local")
			netns.SetSysctl(t, "ipv4/conf/all/arp_ignore", "1")
		}, nil},
		{"gateway of the host's own", func() { netns.SetSysctl(t, "ipv4/conf/all/arp_ignore", "1") }, []string{"net.ipv4.conf.all.arp_ignore pods"}},
	} {
		netns.Host(t, func() {
			pods.Uplink(t)
			h := newHostPath(t)
			p := pods.Wire(t, 1)
			if _, err := h.Apply(context.Background(), []hostpath.Endpoint{{Interface: p.Interface, MAC: p.MAC, Addrs: p.Addrs, Active: true}}); err != nil {
				t.Error(err)
			}
			c.apply()
			var o Obstacles
			if diff := cmp.Diff(c.want, mustFind(t, &o)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
			if got := mustFind(t, &o); got != nil {
				t.Errorf("%s, mended: %v", c.name, got)
			}
		})
	}
}

// TestDiverted: rules that lead packets for workloads away are found; those of VPN clients that don't aren't.
func TestDiverted(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules []string // of IPv4 and IPv6
		want  []string
	}{
		{"an exit node", []string{"priority 5270 lookup 52"}, []string{"routes of IPv4 pods", "routes of IPv6 pods"}},
		{"refused", []string{"priority 5270 unreachable"}, []string{"routes of IPv4 pods", "routes of IPv6 pods"}},
		{"of what comes from workloads", []string{"from 10.65.0.0/16 priority 9 lookup 52"}, []string{"routes of IPv4 pods"}},
		{"refused to workloads", []string{"from 10.65.0.0/16 priority 9 blackhole"}, []string{"routes of IPv4 pods"}},
		{"to one of them", []string{"to 10.65.0.1 priority 9 lookup 52"}, []string{"routes of IPv4"}},
		{"marked packets", []string{"fwmark 0x80000/0xff0000 priority 5210 lookup 52"}, nil},
		{"unmarked ones, after main's routes", []string{"not fwmark 0xca6c priority 9 lookup 52", "priority 8 lookup main suppress_prefixlength 0"}, nil},
		{"unmarked ones", []string{"not fwmark 0xca6c priority 9 lookup 52", "fwmark 1 priority 3 lookup 52"}, []string{"routes of IPv4 pods", "routes of IPv6 pods"}},
		{"main's rule is gone", []string{"del priority 32766"}, []string{"routes of IPv4 pods"}}, // without others' rules IPv6 asks none (fib6_has_custom_rules)
		{"main's rule is gone, and there is another's", []string{"del priority 32766", "fwmark 0x80000/0xff0000 priority 5210 lookup 52"}, []string{"routes of IPv4 pods", "routes of IPv6 pods"}},
		{"main's rule is elsewhere", []string{"priority 100 lookup main", "del priority 32766"}, nil},
		{"default's rule is gone, and has no routes", []string{"del priority 32767"}, nil},
		{"default's rule is gone", []string{"route add default dev up0 table default", "del priority 32767"}, []string{"rule of table default of IPv4", "rule of table default of IPv6"}},
		{"from the host's address", []string{"from 192.0.2.1 priority 9 lookup 52"}, nil},
	} {
		netns.Host(t, func() {
			pods.Uplink(t)
			h := newHostPath(t)
			var eps []hostpath.Endpoint
			for i := range 2 {
				p := pods.Wire(t, i+1)
				eps = append(eps, hostpath.Endpoint{Interface: p.Interface, MAC: p.MAC, Addrs: p.Addrs, Active: true})
			}
			if _, err := h.Apply(context.Background(), eps); err != nil {
				t.Error(err)
			}
			for _, family := range []string{"-4", "-6"} {
				netns.IP(t, family, "route", "add", "default", "dev", "up0", "table", "52")
				for _, r := range c.rules {
					switch {
					case strings.HasPrefix(r, "route "):
						netns.IP(t, append([]string{family}, strings.Fields(r)...)...)
					case r == "del priority 32767" && family == "-6": // IPv6 has none by itself
					case strings.HasPrefix(r, "del "):
						netns.IP(t, append([]string{family, "rule"}, strings.Fields(r)...)...)
					case family == "-4" || !strings.Contains(r, "."):
						netns.IP(t, append([]string{family, "rule", "add"}, strings.Fields(r)...)...)
					}
				}
			}
			var o Obstacles
			if diff := cmp.Diff(c.want, mustFind(t, &o)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
			if got := mustFind(t, &o); got != nil {
				t.Errorf("%s, mended: %v", c.name, got)
			}
		})
	}
}

// TestTurn: a round asks about some of many addresses. Each is asked about in time, and one that was diverted in each round.
func TestTurn(t *testing.T) {
	for n, rounds := range map[int]int{1: 1, maxAsked: 1, maxAsked + 1: 2, 1000: 42} {
		routes := map[netip.Addr]int{}
		for i := range n {
			routes[netip.AddrFrom4([4]byte{10, 0, byte(i / 256), byte(i)})] = 1
		}
		asked := map[netip.Addr]bool{}
		gone := netip.MustParseAddr("10.1.0.0")
		again := []netip.Addr{netip.MustParseAddr("10.0.0.0"), gone}
		for round := range rounds {
			picked := turn{round: round, lost: again}.pick(routes)
			if len(picked) > maxAsked || !slices.Contains(picked, again[0]) || slices.Contains(picked, gone) {
				t.Errorf("%d addresses, round %d: %v", n, round, picked)
			}
			for _, a := range picked {
				asked[a] = true
			}
		}
		if len(asked) != n {
			t.Errorf("%d addresses: %d are asked about in %d rounds", n, len(asked), rounds)
		}
	}
}

// TestFiltered: strict rp_filter is an obstacle if it drops packets in two rounds in a row.
func TestFiltered(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		netns.IP(t, "route", "del", "192.0.2.0/24")
		netns.SetSysctl(t, "ipv4/conf/up0/rp_filter", "1")
		near, err := link.Find("up0")
		if err != nil {
			t.Error(err)
			return
		}
		far := pods.New(t)
		netns.IP(t, "link", "set", "up1", "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), far.Fd()))
		netns.Within(t, far, func() {
			netns.IP(t, "link", "set", "up1", "up")
			netns.IP(t, "addr", "add", "192.0.2.9/24", "dev", "up1")
			netns.IP(t, "neigh", "add", "192.0.2.1", "lladdr", near.MAC.String(), "dev", "up1") // nor is ARP answered
		})
		var o Obstacles
		drop := func() {
			t.Helper()
			before := netstat(t)
			netns.Within(t, far, func() {
				c, err := net.Dial("udp4", netip.MustParseAddrPort("192.0.2.1:9").String())
				if err == nil {
					_, err = c.Write([]byte("x"))
					_ = c.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
			eventually.True(t, "a packet is dropped", func() bool {
				return netstat(t) != before
			})
		}
		var got [][]string
		for _, drops := range []bool{true, false, true, true, true, true, false, true} {
			if drops {
				drop()
			}
			got = append(got, mustFind(t, &o))
			netns.SetSysctl(t, "ipv4/conf/up0/rp_filter", "1") // that was mended
		}
		found := []string{"net.ipv4.conf.up0.rp_filter"}
		if diff := cmp.Diff([][]string{nil, nil, nil, found, found, found, nil, nil}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// netstat returns the namespace's counter of packets that rp_filter dropped.
func netstat(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "awk '/^TcpExt:/ { for (i = 1; i <= NF; i++) if ($i == \"IPReversePathFilter\") at = i; else if (at && i == at) print $i }' /proc/net/netstat").Output()
	if err != nil || len(out) == 0 {
		t.Fatalf("rp_filter's counter: %q, %v", out, err)
	}
	return string(out)
}
