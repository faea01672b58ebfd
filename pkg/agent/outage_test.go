// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestRestartTouchesNothing kills an agent while packets flow, and changes etcd
// while none runs.
func TestRestartTouchesNothing(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	first := h.spawn()
	h.ready()
	p, gone := h.addPod(1), h.addPod(2)
	stop := p.flood(eventually.Limit)
	h.kill(first)

	// Nothing is removed before etcd says that it can be trusted.
	h.put(model.ReadyKey{}, model.Ready(false))
	second := h.spawn()
	h.unready("/calico/v1/Ready is not true")
	if n := h.metric("calico_node_kernel_writes_total"); n != 0 {
		t.Errorf("writes before Ready: %v", n)
	}
	h.put(model.ReadyKey{}, model.Ready(true))
	h.ready()
	if n := h.metric("calico_node_kernel_writes_total"); n != 0 {
		t.Errorf("writes of an agent that found all right: %v", n)
	}
	if err := h.terminate(second); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}

	h.remove(gone.key)
	h.track(gone.spec.IPv4Nets[0].Addr().String(), "192.0.2.1")
	h.spawn()
	h.ready()
	if got := h.ip("route", "show", gone.spec.IPv4Nets[0].Addr().String()); got != "" {
		t.Errorf("route of an endpoint that went meanwhile: %q", got)
	}
	h.until("report of an endpoint that went meanwhile is gone", func() bool { return h.get(gone.statusKey()) == nil })
	h.until("connections of an endpoint that went meanwhile are gone", func() bool { return h.tracked() == 0 })
	n, err := stop()
	if err != nil || n == 0 {
		t.Errorf("packets across restarts: %d came back, then: %v", n, err)
	}
}

// TestEtcdOutage stops etcd, changes the kernel, and starts etcd again.
func TestEtcdOutage(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.start()
	p := h.addPod(1)
	h.until("status up", func() bool { return h.get(p.statusKey()) == model.EndpointUp })
	reported := h.revision(p.statusKey())
	writes := h.metric("calico_node_kernel_writes_total")
	stop := p.flood(time.Second) // it will lose some

	h.stopEtcd()
	h.ip("route", "del", "10.65.0.1")
	h.until("a request ahead of etcd is told why it waits", func() bool {
		err := h.ask(p.key, reported+1000, 2*time.Second)
		return err != nil && strings.Contains(err.Error(), "has not come yet") && strings.Contains(err.Error(), ": no change in etcd is heard of since ")
	})
	h.until("route is repaired without etcd", func() bool { return h.ip("route", "show", "10.65.0.1") != "" })
	if _, err := stop(); err == nil {
		t.Log("the route was back before a packet was lost")
	}
	stop = p.flood(eventually.Limit)
	h.startEtcd()
	q := h.addPod(2)
	h.until("status of the new one", func() bool { return h.get(q.statusKey()) == model.EndpointUp })
	h.ready()
	if got := h.revision(p.statusKey()); got != reported {
		t.Errorf("status of the old one was written again at %d, was %d", got, reported)
	}
	if got := h.metric("calico_node_drift_repaired_total"); got != 1 {
		t.Errorf("repairs: %v, want the one route", got)
	}
	if got := h.metric("calico_node_kernel_writes_total"); got > 2*writes+1 {
		t.Errorf("writes: %v, with one endpoint %v", got, writes)
	}
	if _, err := stop(); err != nil {
		t.Errorf("packets while etcd came back: %v", err)
	}
}

// TestReadyFalse empties etcd while an agent runs.
func TestReadyFalse(t *testing.T) {
	long.Test(t)
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.start()
	h.addPod(1)
	h.raw(clientv3.OpDelete(model.Root, clientv3.WithPrefix()))
	h.unready("Ready is not true")
	h.ip("route", "del", "10.65.0.1")
	h.until("what was programmed is kept", func() bool { return h.ip("route", "show", "10.65.0.1") != "" })
	if status, _ := h.fetch(h.health, "/liveness"); status != http.StatusOK {
		t.Errorf("liveness: %d", status)
	}
	h.put(model.ReadyKey{}, model.Ready(true))
	h.until("what etcd doesn't hold is removed", func() bool { return h.ip("route", "show", "10.65.0.1") == "" })
}

// TestGarbage writes nonsense to etcd.
func TestGarbage(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.start()
	p := h.addPod(1)
	garbage := map[string]string{
		p.key.Path(): `{"state":`,
		"/calico/v1/host/host-1/workload/cni/c2/endpoint/eth0": string(bytes.Repeat([]byte("\x00\xff"), 1<<19)),
		"/calico/v1/host/host-1/workload/what":                 "1",
		"/calico/v1/host/host-1/metadata":                      "[]",
		"/calico/v1/host/host-1/endpoint/eth0":                 "{",
		"/calico/v1/host/host-2/bird_ip":                       "172.18.0.256",
		"/calico/v1/config/InterfacePrefix":                    "cali,,tap",
		"/calico/v1/config/Other":                              "no matter",
	}
	for path, value := range garbage {
		h.raw(clientv3.OpPut(path, value))
	}
	h.until("all are reported", func() bool { return h.metric("calico_node_invalid_objects") == 7 })
	h.until("an endpoint that doesn't parse loses its route", func() bool { return h.ip("route", "show", "10.65.0.1") == "" })
	h.until("status error", func() bool { return h.get(p.statusKey()) == model.EndpointError })
	h.raw(clientv3.OpDelete("/calico/v1/host/", clientv3.WithPrefix()))
	h.put(model.GlobalConfigKey{Name: "InterfacePrefix"}, model.Text("tap,cali"))
	h.mustPass(p.key, p.put())
	h.until("reports clear", func() bool { return h.metric("calico_node_invalid_objects") == 0 })

	h.until("status up", func() bool { return h.get(p.statusKey()) == model.EndpointUp })

	// Another prefix takes the access from the endpoints that had the old one.
	h.put(model.HostConfigKey{Host: h.name, Name: "InterfacePrefix"}, model.Text("tap"))
	h.until("status error", func() bool { return h.get(p.statusKey()) == model.EndpointError })
	h.remove(model.HostConfigKey{Host: h.name, Name: "InterfacePrefix"})
	h.until("status up", func() bool { return h.get(p.statusKey()) == model.EndpointUp })
	h.remove(model.GlobalConfigKey{Name: "InterfacePrefix"})
	if err := p.ping(); err != nil {
		t.Errorf("host to pod: %v", err)
	}
}

// TestBindFailure takes the ports before the agent does.
func TestBindFailure(t *testing.T) {
	h := newHost(t)
	h.health = h.etcd.Addr()
	err := Run(context.Background(), h.config(), testEnv(t))
	if err == nil || !strings.Contains(err.Error(), "flag -health (CALICO_HEALTH_ADDRESS): serve health on "+h.health) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("Run: %v", err)
	}
}

func TestRouteOfAnother(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.felix = map[string]string{"routerefreshinterval": "1"}
	h.start()
	p := h.newPod(1)
	p.wire()
	h.ip("route", "add", "10.65.0.1", "dev", "lo")
	revision := p.put()
	h.until("status error", func() bool { return h.get(p.statusKey()) == model.EndpointError })
	h.waits("while the route leads elsewhere", p.key, revision, "there is a route by lo that is not ours")
	h.ip("route", "del", "10.65.0.1", "dev", "lo")
	h.mustPass(p.key, revision)
	if got := h.ip("route", "show", "proto", "80", "10.65.0.1"); !strings.Contains(got, "cali1") {
		t.Errorf("route: %q, protocol %d", got, link.RouteProtocol)
	}
}

// raw runs an operation in etcd that the store would refuse.
func (h *host) raw(op clientv3.Op) {
	h.Helper()
	h.client(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Do(ctx, op)
		return err
	})
}

// TestWithoutEtcd starts an agent before etcd, and stops one after it.
func TestWithoutEtcd(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	p := h.newPod(1)
	p.wire()
	revision := p.put()
	h.stopEtcd()
	stop := h.start()
	away := "etcd has not been read yet: read "
	h.unready(away)
	h.unready(h.config().Store.Endpoints[0])
	h.until("what is invalid isn't known", func() bool {
		_, body := h.fetch(h.health, "/debug/invalid")
		return strings.HasPrefix(body, "host etcd\n") && strings.Contains(body, away)
	})
	h.startEtcd()
	h.mustPass(p.key, revision)
	h.ready()
	h.stopEtcd()
	stop()
	if err := p.ping(); err != nil {
		t.Errorf("with neither agent nor etcd: %v", err)
	}
}
