// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// TestEndpointLife follows one endpoint from etcd into the kernel and out again.
func TestEndpointLife(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	leaks := goleak.IgnoreCurrent()
	stop := h.start()
	h.ready()
	h.until("status of the host", func() bool { return h.get(model.StatusKey{Host: h.name}) != nil })

	p := h.addPod(1)
	v4, v6 := podAddrs(1)
	for _, c := range []struct{ family, addr string }{{"-4", v4.String()}, {"-6", v6.String()}} {
		if got := h.ip(c.family, "route", "show", c.addr); !strings.HasPrefix(got, c.addr+" dev cali1 proto 80 scope link") && c.family == "-4" ||
			!strings.HasPrefix(got, c.addr+" dev cali1 proto 80") {
			t.Errorf("route: %q", got)
		}
		if got := h.ip(c.family, "neigh", "show", c.addr); !strings.HasPrefix(got, c.addr+" dev cali1 lladdr "+p.spec.MAC.String()+" PERMANENT") {
			t.Errorf("neighbour: %q", got)
		}
	}
	want := map[string]string{
		"ipv4/conf/cali1/rp_filter": "1", "ipv4/conf/cali1/route_localnet": "0", "ipv4/conf/cali1/proxy_arp": "1",
		"ipv4/conf/cali1/forwarding": "1", "ipv4/conf/cali1/accept_source_route": "0", "ipv4/neigh/cali1/proxy_delay": "0",
		"ipv6/conf/cali1/proxy_ndp": "1", "ipv6/conf/cali1/accept_ra": "0", "ipv6/conf/cali1/forwarding": "1",
	}
	got := map[string]string{}
	for path := range want {
		got[path] = h.sysctl(path)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sysctls (-want +got):\n%s", diff)
	}
	if err := p.ping(); err != nil {
		t.Errorf("host to pod: %v", err)
	}
	h.until("status up", func() bool { return h.get(p.statusKey()) == model.EndpointUp })

	// connections of its address, and one of another's, which stays
	h.track(v4.String(), "192.0.2.1")
	h.track("192.0.2.2", v4.String())
	h.track("192.0.2.2", "192.0.2.1")
	h.remove(p.key)
	h.until("route is gone", func() bool { return h.ip("-4", "route", "show", v4.String()) == "" })
	h.until("IPv6 route is gone", func() bool { return h.ip("-6", "route", "show", v6.String()) == "" })
	h.until("neighbours are gone", func() bool { return h.ip("neigh", "show", "dev", "cali1", "nud", "permanent") == "" })
	h.until("connections are gone", func() bool { return h.tracked() == 1 })
	h.until("status is gone", func() bool { return h.get(p.statusKey()) == nil })

	stop()
	if got := h.get(model.StatusKey{Host: h.name}); got == nil {
		t.Error("the host's status is not in etcd: others would take the host for dead")
	}
	if got := h.get(model.LastStatusKey{Host: h.name}); got == nil {
		t.Error("the host's last status is not in etcd")
	}
	if _, err := os.Stat(filepath.Join(h.dir, "run", socketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
	var leak error
	for deadline := time.Now().Add(eventually.Limit); ; {
		leak = goleak.Find(leaks, goleak.IgnoreAnyFunction("github.com/calico-go/calico/pkg/agent.(*testPod).make.func2"))
		if leak == nil || time.Now().After(deadline) {
			break
		}
	}
	if leak != nil {
		t.Error(leak)
	}
}

// TestFiles checks the files that the agent leaves for the plugin.
func TestFiles(t *testing.T) {
	h := newHost(t)
	h.ip("link", "add", "up0", "mtu", "1400", "type", "veth", "peer", "name", "up1")
	t.Cleanup(func() { h.ip("link", "del", "up0") })
	h.ip("link", "set", "up0", "up")
	h.ip("link", "set", "up1", "up")
	h.ip("route", "add", "default", "dev", "up0")
	h.felix = map[string]string{"routerefreshinterval": "3600"} // what follows is noticed, not found at the next look
	h.put(model.HostMetadataKey{Host: h.name}, model.HostMetadata{Labels: map[string]string{"rack": "1"}})
	h.put(model.ReadyKey{}, model.Ready(true))
	h.start()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(h.dir, "var", name))
		if err != nil {
			return ""
		}
		return string(b)
	}
	h.until("nodename", func() bool { return read(nodenameName) == "host-1\n" })
	h.until("MTU", func() bool { return read(mtuName) == "1400\n" })
	h.ip("link", "set", "up0", "mtu", "1300")
	h.until("MTU follows the link", func() bool { return read(mtuName) == "1300\n" })
	h.ip("link", "set", "up0", "mtu", "1350")
	h.until("MTU follows the link up", func() bool { return read(mtuName) == "1350\n" })
	h.ready()
	p := h.newPod(1)
	p.put()
	h.until("an endpoint without interface is down", func() bool { return h.get(p.statusKey()) == model.EndpointDown })
	want := model.HostMetadata{Labels: map[string]string{"rack": "1"}}
	if diff := cmp.Diff(want, h.get(model.HostMetadataKey{Host: h.name})); diff != "" {
		t.Errorf("metadata that was there (-want +got):\n%s", diff)
	}
	h.remove(model.HostMetadataKey{Host: h.name})
	h.until("metadata is made again", func() bool { return h.get(model.HostMetadataKey{Host: h.name}) != nil })
}

// TestGate asks the gate early, late, and wrongly.
func TestGate(t *testing.T) {
	h := newHost(t)
	h.start()
	p := h.newPod(1)
	refused := func(what string, err error, reason string) {
		t.Helper()
		var rejected *gate.RejectedError
		if !errors.As(err, &rejected) || rejected.Retry || !strings.Contains(rejected.Reason, reason) {
			t.Errorf("%s: %v, want a refusal with %q", what, err, reason)
		}
	}
	revision := p.put()
	h.waits("before Ready", p.key, revision, "/calico/v1/Ready is not true in etcd")
	h.put(model.ReadyKey{}, model.Ready(true))
	h.ready()
	h.waits("without an interface", p.key, revision, "endpoint "+p.key.Path()+" is not programmed: ")
	h.waits("at a revision to come", p.key, revision+100, "has not come yet, the latest is ")
	passed := make(chan error)
	go func() { passed <- h.ask(p.key, revision, eventually.Limit) }()
	h.until("somebody waits", func() bool { return h.metric("calico_node_gate_waiting") >= 1 })
	p.wire()
	if err := <-passed; err != nil {
		t.Errorf("once the interface was there: %v", err)
	}

	q := h.newPod(2)
	q.wire()
	q.spec.IPv4Nets = p.spec.IPv4Nets
	revision = q.put()
	refused("address of another", h.ask(q.key, revision, eventually.Limit), "address 10.65.0.1 belongs to an older endpoint, "+p.key.Path())
	h.until("status error", func() bool { return h.get(q.statusKey()) == model.EndpointError })
	h.until("one object is invalid", func() bool { return h.metric("calico_node_invalid_objects") == 1 })
	if got := h.ip("route", "show", "10.65.0.1"); !strings.Contains(got, "dev cali1") {
		t.Errorf("the older endpoint lost its route: %q", got)
	}
	h.remove(p.key)
	h.until("report clears", func() bool { return h.metric("calico_node_invalid_objects") == 0 })
	h.mustPass(q.key, revision)
	h.until("the other one's interface has the route", func() bool { return strings.Contains(h.ip("route", "show", "10.65.0.1"), "dev cali2") })

	q.spec.Name = "eth0"
	refused("name of no workload", h.ask(q.key, q.put(), eventually.Limit), "begins with cali")
	h.remove(q.key)
	h.until("report of the deleted is gone", func() bool { return h.get(q.statusKey()) == nil })
	refused("deleted", h.ask(q.key, revision, eventually.Limit), "has been deleted")
	other := q.key
	other.Host = "host-2"
	refused("of another host", h.ask(other, 1, eventually.Limit), "host-2")
}

// TestDrift changes by hand what the agent keeps.
func TestDrift(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.felix = map[string]string{"routerefreshinterval": "1"}
	h.start()
	p := h.addPod(1)
	const addr = "10.65.0.1"

	// Each is counted before the next is made: two that come together count as one.
	counted := func(repairs float64) {
		t.Helper()
		h.until("repair is counted", func() bool { return h.metric("calico_node_drift_repaired_total") >= repairs })
	}
	h.ip("route", "del", addr)
	h.until("route is back", func() bool { return h.ip("route", "show", addr) != "" })
	counted(1)
	h.ip("neigh", "del", addr, "dev", "cali1")
	h.until("neighbour is back", func() bool { return strings.Contains(h.ip("neigh", "show", addr), "PERMANENT") })
	counted(2)
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/cali1/proxy_arp", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	h.until("sysctl is back", func() bool { return h.sysctl("ipv4/conf/cali1/proxy_arp") == "1" })
	counted(3)
	h.ip("route", "add", "10.65.9.9", "dev", "cali1", "proto", "80")
	h.until("a route that nobody wants is gone", func() bool { return h.ip("route", "show", "10.65.9.9") == "" })
	counted(4)
	h.ip("link", "set", "cali1", "down")
	h.until("status down", func() bool { return h.get(p.statusKey()) == model.EndpointDown })
	h.ip("link", "set", "cali1", "up")
	h.until("status up", func() bool { return h.get(p.statusKey()) == model.EndpointUp })
	// The kernel may take a second to see that the pod's end has its carrier back.
	h.until("host to pod", func() bool { return p.pingWithin(time.Second) == nil })
}

// track adds a connection to the host's table.
func (h *host) track(source, destination string) {
	h.Helper()
	out, err := exec.Command("conntrack", "-I", "-p", "udp", "-s", source, "-d", destination,
		"--sport", "1000", "--dport", "2000", "--timeout", "300").CombinedOutput()
	if err != nil {
		h.Fatalf("conntrack -I: %v: %s", err, out)
	}
}

func (h *host) tracked() int {
	h.Helper()
	out, err := exec.Command("conntrack", "-L", "-p", "udp", "--sport", "1000").Output()
	if err != nil {
		h.Fatalf("conntrack -L: %v", err)
	}
	return strings.Count(string(out), "\n")
}
