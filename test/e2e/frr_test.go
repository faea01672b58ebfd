// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/test/routing"
)

// frrSecret has no blanks, which FRR doesn't take.
const frrSecret = "password-without-blanks"

// frrRack is to FRR what birdRack is to BIRD.
func frrRack(r *lab.Router, i int, host *lab.Host, other *lab.Router) string {
	conf := fmt.Sprintf(`router bgp %d
 bgp router-id %s
 no bgp ebgp-requires-policy
 no bgp network import-check
 no bgp default ipv4-unicast
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 bgp graceful-restart restart-time 60
`, 65000+i, r.Uplinks()[0])
	for f := range 2 {
		conf += fmt.Sprintf(" neighbor %s remote-as %d\n", other.Uplinks()[f], 65003-i)
		conf += fmt.Sprintf(" neighbor %[1]s remote-as %[2]d\n neighbor %[1]s password %[3]s\n", host.Addrs()[f], 64600+i, frrSecret)
		for _, n := range []string{other.Uplinks()[f].String(), host.Addrs()[f].String()} {
			conf += fmt.Sprintf(" neighbor %[1]s timers 3 9\n neighbor %[1]s timers connect 1\n neighbor %[1]s advertisement-interval 0\n", n)
		}
	}
	for f, family := range []string{"ipv4", "ipv6"} {
		conf += fmt.Sprintf(" address-family %s unicast\n  neighbor %s activate\n  neighbor %s activate\n", family, other.Uplinks()[f], host.Addrs()[f])
		if f == 0 && i == 1 {
			for _, p := range []string{inPool, filtered, foreign, "0.0.0.0/0"} {
				conf += "  network " + p + "\n"
			}
		}
		conf += " exit-address-family\n"
	}
	return conf
}

// TestTopOfRackFRR has FRR as the switch of each of two racks.
func TestTopOfRackFRR(t *testing.T) {
	r := newRacks(t, frrSecret, func(r *lab.Router, i int, host *lab.Host, other *lab.Router) routing.Neighbour {
		return routing.StartFRR(t, r.Namespace(), frrRack(r, i, host, other))
	})
	r.check()
	// bgpd 8.4 says that it has told everything when it hasn't heard yet what its
	// neighbours have, so that the other rack loses a route that is still good. The
	// host of this rack keeps what it had.
	t.Run("the switch restarts", func(t *testing.T) {
		f := r.switches[0].(*routing.FRR)
		stop := r.watch(r.hosts[0])
		f.Kill()
		f.Start()
		r.settled()
		for _, m := range stop() {
			t.Errorf("it left: %s", m)
		}
		r.Reaches(r.pods[0], r.pods[1])
	})
}
