// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/model"
)

// onHost has 198.51.100.1 be the host's own, and all others beyond eth0.
func onHost(x *cutting) {
	x.system.ways = func() ways {
		return testWays(func(to, _ netip.Addr) ([]string, error) {
			if to == netip.MustParseAddr("198.51.100.1") {
				return []string{""}, nil
			}
			return []string{"eth0"}, nil
		})
	}
}

// TestCutFailsafe has a host endpoint close a host whose connections ran before the
// tracker did: it has seen first who answers. The agent's own to etcd goes on.
func TestCutFailsafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, onHost)
		etcd, ssh, web := tcp("192.0.2.9", 2379, "198.51.100.1", 50000), tcp("198.51.100.1", 22, "192.0.2.9", 50001), tcp("192.0.2.9", 80, "198.51.100.1", 50002)
		known := tcp("192.0.2.9", 2379, "198.51.100.1", 50003)
		for _, c := range []*conntrack.Tracked{&etcd, &ssh, &web} {
			c.PickedUp = true
		}
		x.set(etcd, ssh, web, known)
		x.write(put(model.HostEndpointKey{Host: "h", Endpoint: "1"}, model.HostEndpoint{Name: "eth0"}, 1))
		x.expectCut("fail-safe ports", []uint16{50000, 50001}) // the known one is deleted, and its port stays open
	})
}

// TestCutFailsafeBack has connections cut that the host began from ports which others
// may always call: these stay open to whom it was connected to.
func TestCutFailsafeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, onHost)
		ports := model.HostConfigKey{Host: "h", Name: "FailsafeInboundHostPorts"}
		ssh, web, alt := tcp("198.51.100.1", 22, "192.0.2.9", 5000), tcp("198.51.100.1", 80, "192.0.2.9", 5001), tcp("198.51.100.1", 8022, "192.0.2.9", 5002)
		x.set(ssh, web, alt)
		x.write(put(model.PolicyKey{Tier: "default", Policy: "in"}, model.Policy{Selector: "has(up)", Types: []model.Direction{model.Inbound}, Inbound: []model.Rule{{Action: model.ActionAllow}}}, 1),
			put(model.HostEndpointKey{Host: "h", Endpoint: "1"}, model.HostEndpoint{Name: "eth0", Labels: map[string]string{"up": ""}}, 1))
		x.expectCut("denied", nil, backOf(web), backOf(alt))
		x.write(put(ports, model.Text("tcp:22,tcp:8022"), 1))
		x.expectCut("another port becomes fail-safe", nil, backOf(web))
		x.write(put(ports, model.Text("tcp:80"), 1))
		x.expectCut("others do", nil, backOf(ssh), backOf(alt))
	})
}

// TestCutICMP has policy deny queries of ICMP by type and code.
func TestCutICMP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newCutting(t, func(*cutting) {})
		ask := func(kind, code uint8) conntrack.Tracked {
			q := tcp("10.0.0.1", 0, "10.0.0.2", 0)
			q.Protocol, q.ICMPType, q.ICMPCode = model.ProtocolICMP, kind, code
			return q
		}
		all := []conntrack.Tracked{ask(8, 0), ask(13, 0), ask(13, 1), ask(17, 0)}
		x.set(slices.Clone(all)...)
		deny := func(name string, m model.Match, want ...conntrack.Tracked) {
			t.Helper()
			m.Protocol = model.ProtocolICMP
			x.policy("no", m)
			synctest.Wait()
			var left []conntrack.Tracked
			x.tracker.mu.Lock()
			left = slices.Clone(x.tracker.table)
			x.tracker.mu.Unlock()
			if !slices.EqualFunc(left, want, func(a, b conntrack.Tracked) bool { return a.Connection == b.Connection }) {
				t.Errorf("%s: %v", name, left)
			}
			time.Sleep(2 * maxSweepRest)
		}
		kind, code := uint8(13), uint8(0)
		deny("timestamps of code 0", model.Match{ICMPType: &kind, ICMPCode: &code}, all[0], all[2], all[3])
		deny("timestamps", model.Match{ICMPType: &kind}, all[0], all[3])
		echo := uint8(8)
		deny("echo", model.Match{ICMPType: &echo}, all[3])
		x.expectCut("nothing can begin by an answer", x.left())
	})
}
