// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/plan"
)

// TestRouterLooksAgain has BGP look, at each audit, at a prefix whose best path is of no use, and at
// no other.
func TestRouterLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := learnedFrom("192.0.2.2", "10.2.2.0/26")
		bad.Paths[0].NextHop = netip.MustParseAddr("198.51.100.1")
		bad.Paths = append(bad.Paths, plan.Path{NextHop: netip.MustParseAddr("192.0.2.2"), Peer: netip.MustParseAddr("192.0.2.2"), Rank: 1})
		c := newCrossroads(t, func(c *crossroads) { c.learned = []plan.Learned{learnedFrom("192.0.2.2", "10.2.1.0/26"), bad} })
		c.expect(t, "both are routed", "whole ["+throughTun+", "+byBGP+", 10.2.2.0/26 via 192.0.2.2 dev eth0 src 192.0.2.1, "+ownRoutes+"] 0s")
		time.Sleep(c.params.RefreshInterval + time.Second)
		synctest.Wait()
		if got := fmt.Sprint(c.again); got != "[10.2.2.0/26]" {
			t.Errorf("looked at again: %s", got)
		}
	})
}
