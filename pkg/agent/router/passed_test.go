// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// TestRouterLooksAgain: at each audit BGP re-examines a prefix whose best path is unusable, and no other.
func TestRouterLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := learnedFrom("192.0.2.2", "10.2.2.0/26")
		bad.Paths[0].NextHop = netip.MustParseAddr("198.51.100.1")
		bad.Paths = append(bad.Paths, plan.Path{NextHop: netip.MustParseAddr("192.0.2.2"), Peer: netip.MustParseAddr("192.0.2.2"), Rank: 1})
		c := newCrossroads(t, func(c *crossroads) { c.learned = []plan.Learned{learnedFrom("192.0.2.2", "10.2.1.0/26"), bad} })
		c.expect(t, "both are routed", "whole ["+throughTun+", "+byBGP+", 10.2.2.0/26 via 192.0.2.2 dev eth0 src 192.0.2.1, "+ownRoutes+"] 0s")
		time.Sleep(c.settings.Refresh + time.Second)
		synctest.Wait()
		if got := fmt.Sprint(c.again); got != "[10.2.2.0/26]" {
			t.Errorf("looked at again: %s", got)
		}
	})
}

// TestRouterKeepsWay: a block that contains etcd's address is not routed, from the moment the address is known.
func TestRouterKeepsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := netip.MustParseAddr("10.1.1.9")
		c := newCrossroads(t, func(c *crossroads) { c.etcd = map[netip.Addr]bool{netip.MustParseAddr("10.1.0.9"): false} })
		c.expect(t, "this host's block", "whole ["+throughTun+", blackhole 10.2.0.0/26] 0s")
		c.with(func() { c.etcd[etcd] = true })
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{testBlock("10.1.1.64/26", "o", 2)}})
		c.expect(t, "another's, in which it may be a workload, and is none", "some [10.1.1.64/26 via 192.0.2.2 dev vxlan.calico onlink, no 10.1.1.0/26] 0s")
		if _, ok := c.plan.State().Problems[plan.ProblemID{Kind: plan.HostInBlock, Subject: model.BlockKey{CIDR: prefix("10.1.1.0/26")}.Path()}]; !ok {
			t.Error("nothing is said of it")
		}
		c.Update(model.Update{Revision: 3, Entries: []model.Entry{put(
			model.WorkloadEndpointKey{Host: "o", Orchestrator: "k8s", Workload: "etcd", Endpoint: "eth0"},
			model.WorkloadEndpoint{State: model.StateActive, IPv4Nets: []netip.Prefix{netip.PrefixFrom(etcd, 32)}}, 3)}})
		c.expect(t, "and is one", "some ["+throughTun+"] 0s")
	})
}
