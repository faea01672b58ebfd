// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// world creates what is behind a link of the host's own.
func (h *host) world(n int, name string, subnet string) *testPod {
	h.Helper()
	w := h.newPod(n)
	net := netip.MustParsePrefix(subnet)
	w.spec.Name, w.spec.IPv4Nets = name, []netip.Prefix{netip.PrefixFrom(net.Addr().Next(), 32)}
	w.wire()
	h.ip("addr", "add", link.HostGateway().String()+"/32", "dev", name, "scope", "link")
	h.ip("addr", "add", subnet, "dev", name)
	return w
}

// TestInterfacePrefixLive: a prefix that covers the host's own links cuts off neither the host nor its workloads, whether the links existed
// before or come later.
func TestInterfacePrefixLive(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	ether := h.world(250, "ether0", "198.51.100.1/24")
	h.felix = map[string]string{"INTERFACEPREFIX": "ether"} // from the start
	stop := h.start()
	h.ready()
	first := h.addPod(1)
	invalid := func() string {
		_, body := h.fetch(h.health, "/debug/invalid")
		return body
	}
	well := func(what string, pods ...*testPod) {
		t.Helper()
		for _, p := range pods {
			if err := p.ping(); err != nil {
				t.Errorf("%s: %s: %v\n%s", what, p.spec.Name, err, invalid())
			}
		}
	}
	if got := invalid(); !strings.Contains(got, "setting FELIX_INTERFACEPREFIX\n") || !strings.Contains(got, "ether0 begins so") || !strings.Contains(got, `used    "cali", default`) {
		t.Errorf("nothing is said of the environment's prefix:\n%s", got)
	}
	well("from the start", ether, first)
	stop()

	h.felix = nil
	h.start()
	h.ready()
	key := model.GlobalConfigKey{Name: "InterfacePrefix"}
	for _, prefix := range []string{"ether", "cali,ether0", "lo"} {
		// Datagrams go on through the change.
		through := ether.flood(eventually.Limit)
		h.put(key, model.Text(prefix))
		h.until("report of "+prefix, func() bool {
			got := invalid()
			return strings.Contains(got, "setting "+key.Path()+"\n") && strings.Contains(got, `used    "cali", default`)
		})
		if _, err := through(); err != nil {
			t.Errorf("%s: the host's own link was closed: %v", prefix, err)
		}
		well(prefix, ether, first)
	}
	h.put(key, model.Text("cali,side"))
	h.until("the end of the report", func() bool { return !strings.Contains(invalid(), "setting /") })
	well("corrected", ether, first)

	// A link that comes later, and had no address at first.
	side := h.world(251, "side0", "203.0.113.1/24")
	h.until("report of it", func() bool { return strings.Contains(invalid(), "side0 begins so") })
	h.until("it passes", func() bool { return side.pingWithin(100*time.Millisecond) == nil })
	well("later", ether, first, side)
	h.ip("addr", "del", "203.0.113.1/24", "dev", "side0")
	h.ip("addr", "add", "203.0.113.1/24", "dev", "side0")
	well("its address gone and back", side)
	h.remove(key)
	h.until("the end of the report", func() bool { return !strings.Contains(invalid(), "setting /") })
	well("in the end", ether, first, side)
}
