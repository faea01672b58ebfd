// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/routing"
)

// switches are two neighbours of host a, and what both lead to, by family.
var switches = []struct {
	addrs [2]string
	as    model.ASNumber
}{{[2]string{fabricV4, "fd00:fa:b::1"}, 65010}, {[2]string{"172.20.0.2", "fd00:fa:b::2"}, 65011}}

var beyondBoth = [2]string{"10.99.0.0/24", "fd99::/64"}

// TestTwoWays has two switches lead to the same: a host's route has both of them for next hops,
// and the other alone while one is away.
func TestTwoWays(t *testing.T) {
	r := routing.New(t, lab.Config{Hosts: []string{"a"}})
	a := r.Host("a")
	second := switches[1].addrs
	if err := r.Fabric().Do(func() error {
		out, err := exec.Command("ip", "addr", "add", second[0]+"/16", "dev", "fabric0").CombinedOutput()
		if err == nil {
			out, err = exec.Command("ip", "addr", "add", second[1]+"/64", "dev", "fabric0", "nodad").CombinedOutput()
		}
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var birds []*routing.BIRD
	for _, s := range switches {
		conf := "router id " + s.addrs[0] + ";\n"
		for f, family := range []string{"ipv4", "ipv6"} {
			peer := netip.MustParseAddr(s.addrs[f])
			r.Put(model.Put{Key: model.BGPPeerKey{Host: "a", IP: peer}, Value: model.BGPPeer{
				IP: peer, AS: s.as, Import: []model.RouteFilter{{CIDR: netip.MustParsePrefix(beyondBoth[f]), Action: "accept"}},
			}})
			conf += fmt.Sprintf(`protocol static { %[1]s; route %[2]s unreachable; }
protocol bgp a_%[1]s {
	local %[3]s as %[4]d; neighbor %[5]s as 64512; strict bind yes;
	connect delay time 1; connect retry time 1; error wait time 1, 2;
	%[1]s { import all; export all; };
}
`, family, beyondBoth[f], s.addrs[f], s.as, a.Addrs()[f])
		}
		birds = append(birds, routing.StartBIRD(t, r.Fabric(), conf))
	}
	leads := func(want func(prefix, from string, family int) string) {
		t.Helper()
		for f, prefix := range beyondBoth {
			want := want(prefix, a.Addrs()[f].String(), f)
			r.Until("the route "+want, func() error {
				if got := routesTo(prefix, r.Routes(a)); got != want {
					return fmt.Errorf("it is %q", got)
				}
				return nil
			})
		}
	}
	both := func(prefix, from string, f int) string {
		return fmt.Sprintf("%s src %s nexthop via %s dev eth0 nexthop via %s dev eth0", prefix, from, switches[0].addrs[f], switches[1].addrs[f])
	}
	leads(both)
	for away, bird := range birds {
		bird.Kill()
		leads(func(prefix, from string, f int) string {
			return fmt.Sprintf("%s via %s dev eth0 src %s", prefix, switches[1-away].addrs[f], from)
		})
		bird.Start()
		leads(both)
	}
}

// routesTo are the lines about a prefix, in one: of several next hops each has a line of its own.
func routesTo(prefix string, lines []string) string {
	var found []string
	ours := false
	for _, line := range lines {
		if !strings.HasPrefix(line, "nexthop ") {
			ours = strings.HasPrefix(line+" ", prefix+" ")
		}
		if ours {
			found = append(found, strings.TrimSuffix(strings.TrimSpace(line), " weight 1"))
		}
	}
	return strings.Join(found, " ")
}
