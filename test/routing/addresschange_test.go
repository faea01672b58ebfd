// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-go/calico/test/long"
)

// TestAddressChanges gives a host another IPv4 address, and starts its agent anew:
// neither interrupts IPv6, and the neighbours know the host again.
func TestAddressChanges(t *testing.T) {
	long.Test(t)
	r := newRig(t)
	run := func(command ...string) {
		t.Helper()
		if out, err := r.b.Exec(r.Context(), command[0], command[1:]...); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	before := r.b.IPv4()
	routerID := "router id " + before.String() + ";"
	traffic := StartTraffic(t, r.here, r.far, true)
	run("sysctl", "-qw", "net.ipv4.conf.eth0.promote_secondaries=1")
	run("ip", "addr", "add", "172.20.1.22/16", "dev", "eth0")
	run("ip", "addr", "del", before.String()+"/16", "dev", "eth0")
	r.Until("a session by the new address", func() error {
		state := r.State(r.a)
		for line := range strings.Lines(state) {
			if strings.HasPrefix(line, "172.20.1.22 ") && strings.Contains(line, " established ") {
				return nil
			}
		}
		return fmt.Errorf("%s", state)
	})
	r.Established(r.b, 2)
	if err := r.b.Agent().Stop(); err != nil {
		t.Fatal(err)
	}
	if err := r.b.Agent().Start(r.Context()); err != nil {
		t.Fatal(err)
	}
	r.Established(r.b, 2)
	if state := r.State(r.b); !strings.Contains(state, routerID) {
		t.Errorf("not %q:\n%s", routerID, state)
	}
	r.Reaches(r.here, r.far)
	traffic.StopWhole()
}
