// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// TestSettingsFileUnread: nothing of an unreadable file is used, and that is reported.
func TestSettingsFileUnread(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.file = h.dir
	h.start()
	h.ready()
	_, got := h.fetch(h.health, "/debug/invalid")
	if !strings.Contains(got, "setting "+h.dir+"\n") || !strings.Contains(got, "not a file\n  used    what stands elsewhere, and the defaults") {
		t.Error(got)
	}
}

// TestSettingsLive changes settings in etcd while an agent runs.
func TestSettingsLive(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	file := filepath.Join(h.dir, "felix.cfg")
	if err := os.WriteFile(file, []byte("[global]\nReportingTTLSecs = 60\nEndpointReportingDelaySecs = never\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.felix = map[string]string{"ROUTEREFRESHINTERVAL": "often"}
	h.file = file
	h.start()
	h.ready()
	invalid := func() string {
		_, body := h.fetch(h.health, "/debug/invalid")
		return body
	}
	if got := invalid(); strings.Count(got, "setting ") != 3 || !strings.Contains(got, "setting FELIX_ROUTEREFRESHINTERVAL\n") ||
		!strings.Contains(got, "setting "+file+"\n") || !strings.Contains(got, "setting "+file+": EndpointReportingDelaySecs\n") {
		t.Errorf("what is wrong from the start:\n%s", got)
	}
	global := func(name, text string) { h.put(model.GlobalConfigKey{Name: name}, model.Text(text)) }
	local := func(name, text string) { h.put(model.HostConfigKey{Host: h.name, Name: name}, model.Text(text)) }

	// wrong, seen, put right, gone
	global("DefaultEndpointToHostAction", "maybe")
	h.until("report of a setting", func() bool {
		return h.metric("calico_node_invalid_objects") == 4 && strings.Contains(invalid(), "setting /calico/v1/config/DefaultEndpointToHostAction\n")
	})
	global("DefaultEndpointToHostAction", "ACCEPT")
	h.until("its end", func() bool {
		return h.metric("calico_node_invalid_objects") == 3 && !strings.Contains(invalid(), "/calico/v1/")
	})

	// an endpoint that cannot be is there as well
	p := h.newPod(1)
	p.wire()
	h.mustPass(p.key, p.put())
	h.until("status up", func() bool { return h.get(p.statusKey()) == model.EndpointUp })
	name := p.spec.Name
	p.spec.Name = "eth0"
	p.put()
	h.until("report of an endpoint", func() bool { return strings.Contains(invalid(), "object "+p.key.Path()+"\n") })
	p.spec.Name = name
	h.mustPass(p.key, p.put())
	h.until("its end", func() bool { return !strings.Contains(invalid(), "object ") })

	// reports on endpoints, off and on
	global("EndpointReportingEnabled", "false")
	h.until("no status", func() bool { return h.get(p.statusKey()) == nil })
	local("EndpointReportingEnabled", "true")
	h.until("status again", func() bool { return h.get(p.statusKey()) == model.EndpointUp })

	// reports on the host: none, then often
	status := model.StatusKey{Host: h.name}
	h.until("a lease of the file's 60 s", func() bool { return h.leaseTTL(status) == 60 })
	global("ReportingIntervalSecs", "0")
	h.until("no status of the host", func() bool { return h.get(status) == nil })
	global("ReportingIntervalSecs", "1")
	h.until("status of the host", func() bool { return h.get(status) != nil })
	first := h.get(status).(model.Status)
	h.until("a report each second", func() bool { return h.get(status).(model.Status).Uptime-first.Uptime >= 2*time.Second })

	// and on another lease, without the status ever going
	h.put(model.HostConfigKey{Host: h.name, Name: "ReportingTTLSecs"}, model.Text("45")) // the file is stronger
	h.until("nothing else is wrong", func() bool { return strings.Count(invalid(), "setting ") == 3 })
	if got := h.leaseTTL(status); got != 60 {
		t.Errorf("lease of %d s, want the file's 60 still", got)
	}
}

// TestSettingsOfServing runs without flags that say where to serve.
func TestSettingsOfServing(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.health, h.metrics = "", ""
	global := func(name, text string) { h.put(model.GlobalConfigKey{Name: name}, model.Text(text)) }
	global("ReportingTTLSecs", "30")
	global("ReportingIntervalSecs", "1")
	h.start()
	h.health, h.metrics = "127.0.0.1:9099", "127.0.0.1:9091"
	h.ready()
	status := model.StatusKey{Host: h.name}
	h.until("the lease that etcd asks for", func() bool { return h.leaseTTL(status) == 30 })
	global("ReportingTTLSecs", "45")
	h.until("another", func() bool { return h.leaseTTL(status) == 45 })
	if h.get(status) == nil {
		t.Error("with the former lease the status went")
	}

	global("HealthPort", "9100")
	h.health = "127.0.0.1:9100"
	h.ready()
	if code, _ := h.fetch("127.0.0.1:9099", "/readiness"); code != 0 {
		t.Errorf("at the former address: %d", code)
	}
	if h.metric("calico_node_invalid_objects") != 0 {
		t.Error("something is wrong")
	}
	global("PrometheusMetricsEnabled", "false")
	h.until("no metrics", func() bool { code, _ := h.fetch(h.metrics, "/metrics"); return code == 0 })
}

// leaseTTL returns the granted time of a key's lease in seconds, 0 = no lease.
func (h *host) leaseTTL(key model.Key) int64 {
	h.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{h.etcd.Addr()}})
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = client.Close() }() // it only read
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit)
	defer cancel()
	got, err := client.Get(ctx, key.Path())
	if err != nil {
		h.Fatal(err)
	}
	if len(got.Kvs) == 0 || got.Kvs[0].Lease == 0 {
		return 0
	}
	lease, err := client.TimeToLive(ctx, clientv3.LeaseID(got.Kvs[0].Lease))
	if err != nil {
		h.Fatal(err)
	}
	return lease.GrantedTTL
}
