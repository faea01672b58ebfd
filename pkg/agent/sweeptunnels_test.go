// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// TestTunnelsCut: what a workload began before there was a tunnel, and only that may
// send now, is cut.
func TestTunnelsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		vxlan, other := tcp("10.0.0.1", 1000, "192.0.2.2", 4789), tcp("10.0.0.1", 1001, "192.0.2.2", 4789)
		vxlan.Protocol = model.ProtocolUDP
		vxlan.ReplyDst = netip.MustParseAddr("192.0.2.1") // it is masqueraded
		tell := func(t policy.Tunnels) {
			x.handover.Tell(router.News{Tunnels: t})
			synctest.Wait()
			time.Sleep(time.Second)
		}
		x.set(vxlan, other)
		tell(policy.Tunnels{IPIP: true})
		x.expectCut("IPIP alone", []uint16{4789, 4789})
		tell(policy.Tunnels{VXLANPort: 4789, IPIP: true})
		if left := x.left(); len(left) != 1 || x.table[0].Protocol != model.ProtocolTCP {
			t.Errorf("connections of ports %v are left: want that of TCP alone", left)
		}
	})
}
