// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

func nat(inner, outer string) model.NAT {
	return model.NAT{IntIP: netip.MustParseAddr(inner), ExtIP: netip.MustParseAddr(outer)}
}

// TestExtIPOfHost: an ext_ip that is one of the host's addresses takes no connections away from the host.
func TestExtIPOfHost(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.world(250, "ether0", "198.51.100.1/24")
	h.ip("addr", "add", "2001:db8:77::1/64", "dev", "ether0", "nodad")
	h.start()
	h.ready()
	invalid := func() string {
		_, body := h.fetch(h.health, "/debug/invalid")
		return body
	}
	// The workload behind an address answers. The host has no such port, and says so.
	ask := func(addr string, within time.Duration) error { return dialEcho(t, addr, within) }
	p := h.newPod(1)
	p.wire()
	p.spec.IPv4NAT = []model.NAT{nat("10.65.0.1", "198.51.100.1"), nat("10.65.0.1", "10.99.0.9")}
	p.spec.IPv6NAT = []model.NAT{nat("fd00::1", "2001:db8:77::1"), nat("fd00::1", "2001:db8:99::9")}
	h.mustPass(p.key, p.put())
	h.until("status up", func() bool { return h.get(p.statusKey()) == model.EndpointUp })
	if err := p.ping(); err != nil {
		t.Errorf("the workload: %v", err)
	}
	for _, addr := range []string{"10.99.0.9", "2001:db8:99::9"} {
		h.until("the NAT that is in order, of "+addr, func() bool { return ask(addr, eventually.Limit/9) == nil })
	}
	for _, addr := range []string{"198.51.100.1", "2001:db8:77::1"} {
		if err := ask(addr, eventually.Limit); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("what was for %s of the host did not come to it: %v", addr, err)
		}
	}
	h.until("report of the other", func() bool {
		got := invalid()
		return strings.Contains(got, "object "+p.key.Path()+"\n") && strings.Contains(got, "ext_ip 198.51.100.1 of int_ip 10.65.0.1 is an address of this host, on ether0") &&
			strings.Contains(got, "ext_ip 2001:db8:77::1 of int_ip fd00::1 is an address of this host, on ether0")
	})
	p.spec.IPv4NAT, p.spec.IPv6NAT = p.spec.IPv4NAT[1:], p.spec.IPv6NAT[1:]
	h.mustPass(p.key, p.put())
	h.until("the end of the report", func() bool { return !strings.Contains(invalid(), "object /") })

	// The address comes to the host later, and goes.
	h.ip("addr", "add", "10.99.0.9/32", "dev", "ether0")
	h.until("report of it", func() bool { return strings.Contains(invalid(), "ext_ip 10.99.0.9 ") })
	h.until("the host has what is for it", func() bool { return errors.Is(ask("10.99.0.9", eventually.Limit/9), syscall.ECONNREFUSED) })
	if err := p.ping(); err != nil {
		t.Errorf("the workload, then: %v", err)
	}
	h.ip("addr", "del", "10.99.0.9/32", "dev", "ether0")
	h.until("the end of the report", func() bool { return !strings.Contains(invalid(), "object /") })
	h.until("the workload has it again", func() bool { return ask("10.99.0.9", eventually.Limit/9) == nil })
}

// dialEcho connects to the echo server of a workload behind an address; the error is nil if it answers within the time.
func dialEcho(t *testing.T, addr string, within time.Duration) error {
	t.Helper()
	conn, err := net.Dial("udp", net.JoinHostPort(addr, "7"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return exchange(conn.(*net.UDPConn), "hello", within)
}
