// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/test/netns"
	"github.com/google/go-cmp/cmp"
)

// besideRig is a workload with a link of ours and an earlier one of another plugin.
type besideRig struct {
	*testing.T
	ns    *Namespace
	net   Net
	undo  func() error
	first int // index of the other link
}

// newBesideRig creates the other link with iproute2's commands, and then ours.
func newBesideRig(t *testing.T, net Net, commands ...string) *besideRig {
	t.Helper()
	r := &besideRig{T: t, ns: newPod(t), net: net}
	if _, _, err := CreateVeth(r.ns, Veth{HostName: "cali0", PodName: "net0"}); err != nil {
		t.Fatal(err)
	}
	if err := Configure(r.ns, Net{IfName: "net0", Addrs: addrs("10.0.0.1", "fd00::1"), IPForward: true, DefaultV4: true, DefaultV6: true}); err != nil {
		t.Fatal(err)
	}
	r.within(func() {
		for _, c := range commands {
			netns.IP(t, strings.Fields(c)...)
		}
	})
	r.first = r.read("net0").Index
	var err error
	if _, r.undo, err = CreateVeth(r.ns, Veth{HostName: "cali1", PodName: "net1"}); err != nil {
		t.Fatal(err)
	}
	r.configure(r.ns)
	return r
}

func (r *besideRig) within(fn func()) { r.Helper(); netns.Within(r, r.ns, fn) }

func (r *besideRig) configure(ns *Namespace) {
	r.Helper()
	if err := Configure(ns, r.net); err != nil {
		r.Fatal(err)
	}
}

func (r *besideRig) read(name string) State {
	r.Helper()
	state, err := Read(r.ns, name)
	if err != nil {
		r.Fatal(err)
	}
	return state
}

// rules returns iproute2's rules of both families, without the kernel's own.
func (r *besideRig) rules() (out []string) {
	r.Helper()
	r.within(func() {
		for _, family := range []string{"-4", "-6"} {
			for _, line := range netns.IP(r, family, "rule") {
				if !strings.HasSuffix(line, "from all lookup local") && !strings.Contains(line, "from all lookup main") && !strings.Contains(line, "from all lookup default") {
					out = append(out, line)
				}
			}
		}
	})
	return out
}

// leaves checks through which link a packet from the address leaves; an unspecified address is the kernel's choice.
func (r *besideRig) leaves(from string, want int) {
	r.Helper()
	a := netip.MustParseAddr(from)
	got := 0
	if !a.IsUnspecified() {
		got = r.ns.leavesBy(a)
	} else if route, ok := r.ns.conn.Lookup(far(a.Is4()), 0); ok {
		got = route.Index
	}
	if got != want {
		r.Errorf("from %s: by link %d, want %d", from, got, want)
	}
}

// TestPodBeside: a workload's later link is reached, whatever the routes of the first, and takes nothing from that.
func TestPodBeside(t *testing.T) {
	dual := Net{IfName: "net1", Addrs: addrs("10.0.0.2", "10.0.0.3", "fd00::2"), DefaultV4: true, DefaultV6: true}
	custom := dual
	custom.DefaultV4, custom.DefaultV6 = false, false
	custom.Routes = []Route{{Dst: netip.MustParsePrefix("10.9.0.0/16")}}
	tests := []struct {
		name     string
		net      Net
		commands []string
	}{
		{"both with default routes", dual, nil},
		{"the first one's have metrics", dual, []string{
			"route replace default via 169.254.1.1 dev net0 metric 100", "route del default dev net0 metric 0",
			"-6 route replace default via fe80::1 dev net0 metric 100", "-6 route del default dev net0 metric 1024",
		}},
		{"of a great metric", dual, []string{
			"route replace default via 169.254.1.1 dev net0 metric 70000", "route del default dev net0 metric 0",
			"-6 route replace default via fe80::1 dev net0 metric 70000", "-6 route del default dev net0 metric 1024",
		}},
		{"without a default route", custom, nil},
		{"a rule of another's", dual, []string{"rule add from 10.0.0.2 lookup 100 pref 40000", "rule add from 10.1.1.1 lookup 80077 pref 5"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			netns.Host(t, func() {
				r := newBesideRig(t, test.net, test.commands...)
				var before []string
				for _, rule := range r.rules() {
					if !strings.HasPrefix(rule, fmt.Sprint(besidePriority)) {
						before = append(before, rule)
					}
				}
				again, err := OpenNamespace("/proc/self/fd/" + fdOf(r.ns))
				if err != nil {
					t.Fatal(err)
				}
				defer again.Close()
				for _, ns := range []*Namespace{nil, r.ns, again} { // made, and made again
					if ns != nil {
						r.configure(ns)
					}
					second := r.read("net1").Index
					for _, a := range r.net.Addrs {
						r.leaves(a.String(), second)
					}
					r.leaves("10.0.0.1", r.first)
					r.leaves("fd00::1", r.first)
					r.leaves("0.0.0.0", r.first)
					r.leaves("::", r.first)
					if got := r.rules(); len(got) != len(before)+3 {
						t.Errorf("rules %q", got)
					}
				}
				r.within(func() {
					for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
						if got, err := os.ReadFile("/proc/sys/net/" + name); err != nil || strings.TrimSpace(string(got)) != "1" {
							t.Errorf("%s is %s, %v: the first link's network wants it on", name, got, err)
						}
					}
				})
				if err := r.undo(); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before, r.rules()); diff != "" {
					t.Errorf("rules when the link is gone (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestPodBesideLeft: what is left of a link that others deleted is removed, with the next link or with DEL; and Read reports what is
// missing.
func TestPodBesideLeft(t *testing.T) {
	netns.Host(t, func() {
		r := newBesideRig(t, Net{IfName: "net1", Addrs: addrs("10.0.0.2", "fd00::2"), DefaultV4: true, DefaultV6: true})
		if got := r.read("net1").Astray; len(got) > 0 {
			t.Errorf("%v go astray", got)
		}
		r.within(func() {
			netns.IP(t, "rule", "del", "from", "10.0.0.2")
			netns.IP(t, "-6", "route", "flush", "table", fmt.Sprint(besideTable+r.read("net1").Index))
		})
		if diff := cmp.Diff([]string{"10.0.0.2", "fd00::2"}, textsOf(r.read("net1").Astray)); diff != "" {
			t.Errorf("astray (-want +got):\n%s", diff)
		}
		if got := r.read("net0").Astray; len(got) > 0 {
			t.Errorf("of the first link %v go astray", got)
		}
		r.configure(r.ns)
		if got := r.read("net1").Astray; len(got) > 0 {
			t.Errorf("%v go astray when it is configured again", got)
		}
		if err := link.Delete("cali1"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := CreateVeth(r.ns, Veth{HostName: "cali1", PodName: "net1"}); err != nil {
			t.Fatal(err)
		}
		r.net.Addrs = addrs("10.0.0.3", "fd00::3")
		r.configure(r.ns)
		if got := r.rules(); len(got) != 2 || !strings.Contains(got[0], "from 10.0.0.3") || !strings.Contains(got[1], "from fd00::3") {
			t.Errorf("rules %q", got)
		}
		if err := r.ns.deleteStaleRules(); err != nil || len(r.rules()) != 2 {
			t.Errorf("%v: the link is there, and the rules are %q", err, r.rules())
		}
		if err := link.Delete("cali1"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := r.ns.deleteStaleRules(); err != nil || len(r.rules()) != 0 {
				t.Errorf("%v: rules %q are left", err, r.rules())
			}
		}
	})
}

func textsOf(as []netip.Addr) (out []string) {
	for _, a := range as {
		out = append(out, a.String())
	}
	return out
}
