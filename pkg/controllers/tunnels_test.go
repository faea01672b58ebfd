// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

// TestTunnels: nodes have the tunnel addresses in etcd, except unreadable ones. Their ports are protected there.
func TestTunnels(t *testing.T) {
	var protected []netip.Addr
	c := newClusterPolicies(new(controllers))
	c.protect = func(tunnels []netip.Addr) { protected = tunnels }
	c.setNode("a", kubepolicy.Node{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	c.setNode("b", kubepolicy.Node{})
	c.nodesSynced()
	if c.round(); !c.all {
		t.Error("policies were made before tunnels were known")
	}
	entry := func(host, name string, value any) model.Entry {
		e := model.Entry{Key: model.HostConfigKey{Host: host, Name: name}, Value: value}
		if value != nil {
			e.Revision = 1
		}
		return e
	}
	for _, step := range []struct {
		update model.Update
		want   string
		// protected are all tunnels of nodes.
		protected string
		same      bool
	}{
		{update: model.Update{Resync: true}, want: "[192.0.2.1] []", protected: "[]"},
		{update: model.Update{Resync: true}, want: "[192.0.2.1] []", protected: "[]", same: true},
		{update: model.Update{Entries: []model.Entry{
			entry("a", "IpInIpTunnelAddr", model.Text("10.0.0.2")), entry("a", "IPv4VXLANTunnelAddr", model.Text("10.0.0.1")),
			entry("b", "IPv6VXLANTunnelAddr", model.Text("fd00::1")), entry("c", "IpInIpTunnelAddr", model.Text("10.0.0.3")),
			entry("b", "Mtu", model.Text("10.0.0.4")),
		}}, want: "[192.0.2.1 10.0.0.1 10.0.0.2] [fd00::1]", protected: "[10.0.0.1 10.0.0.2 fd00::1]"},
		{update: model.Update{Entries: []model.Entry{entry("a", "IpInIpTunnelAddr", nil)}}, want: "[192.0.2.1 10.0.0.1] [fd00::1]", protected: "[10.0.0.1 fd00::1]"},
		{update: model.Update{Entries: []model.Entry{entry("b", "IPv6VXLANTunnelAddr", model.Text("::ffff:10.0.0.1"))}}, want: "[192.0.2.1 10.0.0.1] []", protected: "[10.0.0.1]"},
		{update: model.Update{Resync: true, Entries: []model.Entry{entry("b", "IpInIpTunnelAddr", model.Text("10.0.0.9"))}}, want: "[192.0.2.1] [10.0.0.9]", protected: "[10.0.0.9]"},
	} {
		c.update(step.update)
		nodes := c.withTunnels()
		if have := fmt.Sprint(nodes[0].Addrs, nodes[1].Addrs); have != step.want {
			t.Errorf("%+v: %s, want %s", step.update, have, step.want)
		}
		if c.round() == step.same {
			t.Errorf("%+v: policies made anew: %v", step.update, !step.same)
		}
		if have := fmt.Sprint(protected); have != step.protected {
			t.Errorf("%+v: protected at %s, want %s", step.update, have, step.protected)
		}
	}
	c.removeNode("b") // before etcd forgets it
	if c.round(); len(protected) > 0 {
		t.Errorf("the tunnel of a node that is gone is protected: %v", protected)
	}
}
