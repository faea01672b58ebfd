// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/google/go-cmp/cmp"
)

// bridgeFDB returns a device's forwarding table as iproute2 prints it, but sorted: the kernel keeps no order.
func bridgeFDB(tb testing.TB, device string) []string {
	tb.Helper()
	out, err := exec.Command("bridge", "fdb", "show", "dev", device).CombinedOutput()
	if err != nil {
		tb.Fatalf("bridge fdb: %v: %s", err, out)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(lines)
	return lines
}

func TestVXLANBetweenHosts(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n, " hosts"), func(t *testing.T) {
			netns.Host(t, func() {
				hosts := virtualHosts(t, n)
				for _, v := range hosts {
					mustHold(t, v.fabric, v.vxlanState(hosts))
				}
				pingAll(t, hosts)
				for _, v := range hosts {
					if r := mustHold(t, v.fabric, v.vxlanState(hosts)); r.Writes != 0 {
						t.Errorf("host %d: a second Apply made %d writes", v.n, r.Writes)
					}
				}
			})
		})
	}
}

// pingAll pings from each pod and each host to each other pod.
func pingAll(t *testing.T, hosts []*virtualHost) {
	t.Helper()
	for _, a := range hosts {
		for _, b := range hosts {
			if a == b {
				continue
			}
			pods.Ping(t, a.pod, b.pod4())
			pods.Ping(t, a.pod, b.pod6())
			pods.Ping(t, a.ns, b.pod4())
			pods.Ping(t, a.ns, b.pod6())
		}
	}
}

func TestFabricHolds(t *testing.T) {
	netns.Host(t, func() {
		hosts := virtualHosts(t, 2)
		v := hosts[0]
		netns.Within(t, v.ns, func() {
			mustHold(t, v.fabric, v.vxlanState(hosts))
			want := []string{
				"blackhole 10.65.1.0/24 metric 1100",
				"10.65.2.0/24 via 192.0.2.2 dev vxlan.calico src 10.65.1.0 metric 1100 onlink",
				"blackhole fd00:1::/64 dev lo metric 1100 pref medium",
				"fd00:2::/64 via fe80::6406:ff:fe00:2 dev vxlan-v6.calico src fd00:1:: metric 1100 onlink pref medium",
				"192.0.2.2 lladdr 66:04:00:00:00:02 PERMANENT",
				`4: vxlan.calico inet 10.65.1.0/32 scope global vxlan.calico\ valid_lft forever preferred_lft forever`,
				"66:04:00:00:00:02 dst 192.0.2.2 self permanent",
				"fe80::6406:ff:fe00:2 lladdr 66:06:00:00:00:02 PERMANENT",
				`5: vxlan-v6.calico inet6 fd00:1::/128 scope global nodad \ valid_lft forever preferred_lft forever`,
				"66:06:00:00:00:02 dst 2001:db8::2 self permanent",
			}
			if diff := cmp.Diff(want, heldByFabric(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	})
}

// command runs iproute2's tools in the current namespace.
func command(tb testing.TB, args ...string) {
	tb.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		tb.Fatalf("%q: %v: %s", args, err, out)
	}
}

// withoutIndices removes the indexes of links from lines of `ip -o addr`: a recreated device has another.
func withoutIndices(lines []string) []string {
	for i, line := range lines {
		if _, rest, ok := strings.Cut(line, ": "); ok {
			lines[i] = rest
		}
	}
	return lines
}
