// SPDX-License-Identifier: Apache-2.0

//go:build e2evm

package fabric

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// ipipState returns what host v must hold to reach the others through IPIP.
func (v *virtualHost) ipipState(all []*virtualHost) plan.State {
	st := v.plainState(nil)
	st.Tunnels = []plan.Tunnel{{Kind: plan.IPIP, Device: "tunl0", Local: v.addr4(), Parent: "eth0", Addr: v.tun4(), MTU: 1480}}
	for _, o := range all {
		if o != v {
			st.Routes[o.net4()] = plan.Route{
				Destination: o.net4(), Kind: plan.Unicast, Origin: plan.FromHost, Source: v.tun4(),
				Hops: []plan.Hop{{Gateway: o.addr4(), Device: "tunl0", OnLink: true}},
			}
		}
	}
	return st
}

// tunl0 reads the device, which must exist.
func tunl0(tb testing.TB) link.Link {
	tb.Helper()
	l, err := link.Find("tunl0")
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// TestIPIPBetweenHosts: pods talk through IPIP, whether the kernel created the tunl0 itself or not, and a second Apply finds nothing to do.
func TestIPIPBetweenHosts(t *testing.T) {
	for _, kernels := range []bool{true, false} {
		t.Run(map[bool]string{true: "the kernel's own", false: "made"}[kernels], func(t *testing.T) {
			fallback(t, kernels)
			netns.Host(t, func() {
				hosts := virtualHosts(t, 3)
				for _, v := range hosts {
					st := v.ipipState(hosts)
					mustHold(t, v.fabric, st)
					if r := mustHold(t, v.fabric, st); r.Writes != 0 {
						t.Errorf("host %d: a second Apply made %d writes", v.n, r.Writes)
					}
					netns.Within(t, v.ns, func() {
						if r := mustHold(t, newFabric(t), st); r.Writes != 0 || r.Repairs != 0 {
							t.Errorf("host %d: after a restart %d writes, %d repairs", v.n, r.Writes, r.Repairs)
						}
					})
				}
				for _, v := range hosts {
					for _, o := range hosts {
						if v == o {
							continue
						}
						before := packets(t, v)
						pods.Ping(t, v.pod, o.pod4())
						if packets(t, v) == before {
							t.Errorf("from host %d to %d: nothing went through tunl0", v.n, o.n)
						}
						pods.Echo(t, v.pod, o.pod, o.pod4())
						pods.Ping(t, v.ns, o.pod4()) // from the host itself, with the tunnel's address
					}
				}
			})
		})
	}
}

// packets returns how many packets the host's tunl0 has sent.
func packets(tb testing.TB, v *virtualHost) (n string) {
	tb.Helper()
	netns.Within(tb, v.ns, func() {
		lines := netns.IP(tb, "-s", "link", "show", "tunl0")
		n = strings.Fields(lines[len(lines)-1])[1]
	})
	return n
}

// fallback sets whether the kernel creates a tunl0 in each namespace itself.
func fallback(tb testing.TB, makes bool) {
	tb.Helper()
	const sysctl = "core/fb_tunnels_only_for_init_net"
	set := func(v string) {
		if err := rtnl.WriteSysctl(sysctl, v); err != nil {
			tb.Fatal(err)
		}
	}
	set(map[bool]string{true: "0", false: "1"}[makes])
	tb.Cleanup(func() { set("0") })
}

// TestIPIPComesAndGoes: when no pool wants IPIP any more the kernel's own tunl0 goes down, without address and alias, and one that we
// created is deleted. Both can be used again.
func TestIPIPComesAndGoes(t *testing.T) {
	for _, kernels := range []bool{true, false} {
		t.Run(map[bool]string{true: "the kernel's own", false: "made"}[kernels], func(t *testing.T) {
			fallback(t, kernels)
			netns.Host(t, func() {
				hosts := virtualHosts(t, 2)
				for range 3 {
					for _, v := range hosts {
						mustHold(t, v.fabric, v.ipipState(hosts))
					}
					pods.Ping(t, hosts[0].pod, hosts[1].pod4())
					for _, v := range hosts {
						mustHold(t, v.fabric, v.plainState(hosts))
						netns.Within(t, v.ns, func() {
							if !kernels {
								if l, err := link.Find("tunl0"); err == nil {
									t.Errorf("left: %+v", l.Alias)
								}
								return
							}
							if l := tunl0(t); l.Up || l.Alias != "" {
								t.Errorf("tunl0 is up: %v, alias %q", l.Up, l.Alias)
							}
							for _, a := range netns.IP(t, "addr", "show", "dev", "tunl0") {
								if strings.Contains(a, "inet ") {
									t.Errorf("an address is left: %s", a)
								}
							}
						})
						if r := mustHold(t, v.fabric, v.plainState(hosts)); r.Writes != 0 {
							t.Errorf("a second Apply without IPIP made %d writes", r.Writes)
						}
					}
					pods.Ping(t, hosts[0].pod, hosts[1].pod4())
				}
			})
		})
	}
}

// TestIPIPRepairs: changes by others to tunl0 are noticed, repaired, and reported.
func TestIPIPRepairs(t *testing.T) {
	fallback(t, false) // the parameters of the kernel's own can't be changed
	netns.Host(t, func() {
		hosts := virtualHosts(t, 2)
		for _, v := range hosts {
			mustHold(t, v.fabric, v.ipipState(hosts))
		}
		v := hosts[0]
		netns.Within(t, v.ns, func() {
			for _, harm := range [][]string{
				{"link", "set", "tunl0", "down"},
				{"link", "set", "tunl0", "mtu", "1300"},
				{"addr", "flush", "dev", "tunl0"},
				{"addr", "add", "10.9.9.9/32", "dev", "tunl0"},
				{"link", "set", "tunl0", "alias", "mine"},
				{"link", "set", "tunl0", "type", "ipip", "local", "192.0.2.1"},
				{"link", "del", "tunl0"},
				{"route", "del", "10.65.2.0/24"},
			} {
				netns.IP(t, harm...)
				if r := mustHold(t, v.fabric, v.ipipState(hosts)); r.Repairs == 0 {
					t.Errorf("%s: no repair", harm)
				}
				pods.Ping(t, v.pod, hosts[1].pod4())
			}
		})
	})
}

// TestIPIPNameTaken: a link of that name that is no IPIP tunnel belongs to another program: it stays, and the problem names it. So does a
// tunnel with a remote address.
func TestIPIPNameTaken(t *testing.T) {
	fallback(t, false)
	for _, foreign := range []string{"type dummy", "type ipip local 192.0.2.1 remote 192.0.2.9"} {
		netns.Host(t, func() {
			hosts := virtualHosts(t, 2)
			v := hosts[0]
			netns.Within(t, v.ns, func() {
				netns.IP(t, slices.Concat([]string{"link", "add", "tunl0"}, strings.Fields(foreign))...)
				r, err := v.fabric.Apply(t.Context(), v.ipipState(hosts))
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Problems) == 0 || r.Problems[0].Subject != "10.65.2.0/24" && r.Problems[0].Subject != "tunl0" {
					t.Errorf("%s: problems %v", foreign, r.Problems)
				}
				for _, p := range r.Problems {
					t.Logf("%s: %s: %v", foreign, p.Subject, p.Err)
				}
				if l := tunl0(t); l.Alias != "" || l.Up {
					t.Errorf("%s: it was touched: alias %q, up %v", foreign, l.Alias, l.Up)
				}
			})
		})
	}
}

// TestIPIPModeChangesWithoutLoss: a pool goes from IPIP to VXLAN and to none, and back, and no packet is lost.
func TestIPIPModeChangesWithoutLoss(t *testing.T) {
	netns.Host(t, func() {
		hosts := virtualHosts(t, 2)
		a, b := hosts[0], hosts[1]
		state := func(v *virtualHost, mode int) plan.State {
			st := v.vxlanState(hosts)
			st.Tunnels = append(st.Tunnels, v.ipipState(hosts).Tunnels...)
			if mode > 0 {
				st.Routes = []plan.State{v.ipipState(hosts), v.plainState(hosts)}[mode-1].Routes
			}
			// VXLAN's address is another: an address is of one device.
			st.Tunnels[0].Addr = netip.AddrFrom4([4]byte{10, 65, byte(v.n), 1})
			for p, r := range st.Routes {
				if len(r.Hops) > 0 && r.Hops[0].Device == "vxlan.calico" {
					r.Source = st.Tunnels[0].Addr
					st.Routes[p] = r
				}
			}
			return st
		}
		for _, v := range hosts {
			mustHold(t, v.fabric, state(v, 0))
		}
		pods.Ping(t, a.ns, b.addr4())
		pods.Ping(t, a.pod, b.pod4())
		f := startFlood(t, a.pod, b.pod, b.pod4())
		for range 20 {
			for mode := range 3 {
				mustHold(t, a.fabric, state(a, mode))
				mustHold(t, b.fabric, state(b, mode))
			}
		}
		sent, lost := f.end()
		if t.Logf("%d of %d lost", lost, sent); lost > 0 {
			t.Errorf("%d of %d datagrams were lost while routes were replaced", lost, sent)
		}
	})
}
