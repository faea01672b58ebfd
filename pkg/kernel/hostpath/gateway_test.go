// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// gateways returns the links that have HostGatewayLL and use it.
func gateways(tb testing.TB) (names []string) {
	tb.Helper()
	for _, line := range netns.IP(tb, "-6", "-o", "addr", "show", "to", link.HostGatewayLL().String(), "-dadfailed") {
		names = append(names, strings.Fields(line)[1])
	}
	slices.Sort(names)
	return names
}

// TestGatewayRepaired: a workload whose host end has lost all addresses can talk IPv6 again.
func TestGatewayRepaired(t *testing.T) {
	for _, repair := range []func(*Path, wired) error{
		func(h *Path, a wired) error {
			_, err := h.ApplySome(context.Background(), []Endpoint{a.endpoint}, nil)
			return err
		},
		// A repeated ADD, by another process.
		func(_ *Path, a wired) error {
			again, err := pod.OpenNamespace(pods.Path(a.ns))
			if err != nil {
				return err
			}
			defer again.Close()
			return pod.Configure(again, pod.Net{IfName: "eth0", Addrs: a.endpoint.Addrs, DefaultV4: true, DefaultV6: true})
		},
	} {
		netns.Host(t, func() {
			h := newHostPath(t)
			a, b := wire(t, 1), wire(t, 2)
			mustApply(t, h, a.endpoint, b.endpoint)
			pods.Echo(t, a.ns, b.ns, b.endpoint.Addrs[1])
			netns.IP(t, "-6", "addr", "flush", "dev", "cali1")
			netns.Within(t, a.ns, func() { netns.IP(t, "-6", "neigh", "flush", "all") })
			if err := repair(h, a); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"cali1", "cali2"}, gateways(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			pods.Echo(t, a.ns, b.ns, b.endpoint.Addrs[1])
			if r := mustApply(t, h, a.endpoint, b.endpoint); r.Writes != 0 {
				t.Errorf("%d writes were left", r.Writes)
			}
		})
	}
}

// TestGatewayOfOthers: a link that CreateVeth didn't create gets none, nor does one of an endpoint without IPv6.
func TestGatewayOfOthers(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1, netip.MustParseAddr("10.65.0.1"))
		netns.IP(t, "-6", "addr", "flush", "dev", "cali1")
		netns.IP(t, "link", "add", "cali2", "type", "veth", "peer", "name", "other")
		netns.IP(t, "link", "set", "cali2", "up")
		netns.IP(t, "link", "set", "other", "up")
		pods.AwaitSettled(t, "cali2")
		mustApply(t, h, a.endpoint, Endpoint{Interface: "cali2", Active: true, Addrs: []netip.Addr{netip.MustParseAddr("fd00::2")}})
		if got := gateways(t); got != nil {
			t.Errorf("%q have it", got)
		}
	})
}

// TestGatewayAnswers: a host without a default route answers workloads that ask for their gateway, whatever its links inherit. Of the
// settings for all links, which aren't ours, only arp_ignore prevents that: hostnet.Obstacles finds it.
func TestGatewayAnswers(t *testing.T) {
	for _, c := range []struct{ sysctl, value, want string }{
		{"default/arp_ignore", "8", "REACHABLE"}, {"all/arp_filter", "1", "REACHABLE"}, {"all/rp_filter", "2", "REACHABLE"}, {"all/arp_ignore", "1", "FAILED"},
	} {
		netns.Host(t, func() {
			netns.SetSysctl(t, "ipv4/conf/"+c.sysctl, c.value)
			h := newHostPath(t)
			a := wire(t, 1)
			mustApply(t, h, a.endpoint)
			netns.Within(t, a.ns, func() {
				ask, err := net.Dial("udp4", net.JoinHostPort(link.HostGateway().String(), "9"))
				if err == nil {
					_, err = ask.Write([]byte("who has it?"))
					_ = ask.Close()
				}
				if err != nil {
					t.Error(err)
					return
				}
				eventually.True(t, c.sysctl+"="+c.value+": the gateway is "+c.want, func() bool {
					return strings.Contains(strings.Join(netns.IP(t, "neigh", "show", link.HostGateway().String()), ""), c.want)
				})
			})
		})
	}
}
