// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// uplink adds a link with addresses to the host, until the test ends.
func (h *host) uplink(addrs ...string) {
	h.Helper()
	h.ip("link", "add", "up0", "type", "veth", "peer", "name", "far0")
	h.Cleanup(func() { h.ip("link", "del", "up0") })
	h.ip("link", "set", "far0", "up")
	for _, a := range addrs {
		args := []string{"addr", "add", a, "dev", "up0"}
		if netip.MustParsePrefix(a).Addr().Is6() {
			args = append(args, "nodad")
		}
		h.ip(args...)
	}
	h.ip("link", "set", "up0", "up")
}

// TestAgentIdentity: a whole agent finds its addresses on its links, and gives its tunnel an address, which the kernel then has.
func TestAgentIdentity(t *testing.T) {
	h := newHost(t)
	h.uplink("172.18.0.1/24", "fd18::1/64")
	pool := vxlanPool("10.65.0.0/24")
	h.put(model.PoolKey{CIDR: pool.CIDR}, pool)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.startWith(func(cfg *Config) { cfg.Methods[1] = method(t, 1, "interface=^up0$") })
	h.ready()
	h.until("addresses", func() bool {
		return h.etcd.Field(h.name, model.BGPHostIPv4) == "172.18.0.1" && h.etcd.Field(h.name, model.BGPHostNetworkV4) == "172.18.0.0/24" &&
			h.etcd.Field(h.name, model.BGPHostIPv6) == "fd18::1"
	})
	h.until("tunnel", func() bool {
		addr := h.etcd.Setting(h.name, vxlanConfig)
		return addr != "" && strings.Contains(h.ip("-o", "addr", "show"), " vxlan.calico inet "+addr+"/32 ")
	})
	h.remove(model.PoolKey{CIDR: pool.CIDR})
	h.until("no tunnel", func() bool {
		return h.etcd.Setting(h.name, vxlanConfig) == "" && len(h.etcd.Held(handleOf(plan.VXLAN4, h.name))) == 0
	})
	h.etcd.Check()
}

// TestNamesake: an agent that shares its name with another host lets no workload through its gate, and doesn't touch the other's status,
// until the other is gone.
func TestNamesake(t *testing.T) {
	h := newHost(t)
	h.uplink("172.18.0.1/24")
	theirs := h.newPod(1) // its interface is on the other host
	h.put(model.HostMetadataKey{Host: h.name}, model.HostMetadata{})
	h.put(model.BGPHostKey{Host: h.name, Field: model.BGPHostIPv4}, model.Text("172.18.0.2"))
	h.put(model.StatusKey{Host: h.name}, model.Status{Time: time.Now()})
	h.put(theirs.statusKey(), model.EndpointUp)
	theirs.put()
	h.put(model.ReadyKey{}, model.Ready(true))
	stop := h.startWith(func(cfg *Config) { cfg.Methods[0] = method(t, 0, "interface=^up0$") })
	reason := "another host that is called " + h.name + " lives and has 172.18.0.2"
	h.unready(reason)
	p := h.newPod(2)
	p.wire()
	revision := p.put()
	var rejected *gate.RejectedError
	if err := h.ask(p.key, revision, eventually.Limit); !errors.As(err, &rejected) || !rejected.Retry || !strings.Contains(err.Error(), reason) {
		t.Errorf("the gate says %v", err)
	}
	if got := h.get(theirs.statusKey()); got != model.EndpointUp {
		t.Errorf("the other host's workload is said to be %v", got)
	}
	if got := h.get(p.statusKey()); got != nil {
		t.Errorf("a workload that was not let through is said to be %v", got)
	}
	h.remove(model.StatusKey{Host: h.name})
	h.ready()
	h.mustPass(p.key, revision)
	h.until("the status of both", func() bool {
		return h.get(p.statusKey()) == model.EndpointUp && h.get(theirs.statusKey()) != model.EndpointUp
	})
	stop()
}

// TestStatusWhileNotReady: an agent that starts while the data isn't ready reports that the host is alive, so that others don't take it for
// dead once the data is ready.
func TestStatusWhileNotReady(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(false))
	h.start()
	h.until("status", func() bool { return h.get(model.StatusKey{Host: h.name}) != nil })
	h.put(model.ReadyKey{}, model.Ready(true))
	h.ready()
	if h.get(model.StatusKey{Host: h.name}) == nil {
		t.Error("the status is gone")
	}
}

func method(t testing.TB, family int, text string) plan.Method {
	t.Helper()
	m, err := plan.ParseMethod(text, family == 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func vxlanPool(cidr string) model.Pool {
	return model.Pool{CIDR: netip.MustParsePrefix(cidr), IPAM: true, VXLANMode: "always"}
}

const vxlanConfig = "IPv4VXLANTunnelAddr"

func handleOf(kind plan.TunnelKind, host string) string {
	return string(kind) + "-tunnel-addr-" + host
}
