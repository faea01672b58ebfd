// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// programmed is all that an agent keeps in the kernel, as text.
func (h *host) programmed() string {
	h.Helper()
	var all strings.Builder
	for _, args := range [][]string{
		{"ip", "-4", "route", "show", "table", "all", "proto", "80"}, {"ip", "-6", "route", "show", "table", "all", "proto", "80"},
		{"ip", "-4", "route", "show", "table", "all", "proto", "81"}, {"ip", "-6", "route", "show", "table", "all", "proto", "81"},
		{"ip", "neigh", "show", "nud", "permanent"}, {"ip", "-o", "link", "show", "type", "vxlan"}, {"bridge", "fdb", "show", "dev", "vxlan.calico"},
		{"nft", "-s", "list", "ruleset"},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil && args[0] != "bridge" {
			h.Fatalf("%v: %v: %s", args, err, out)
		}
		if args[0] != "nft" { // which sorts by itself
			// The kernel's order of neighbours changes where its table, which is all namespaces', grows.
			out = []byte(strings.Join(slices.Sorted(strings.Lines(string(out))), ""))
		}
		_, _ = all.Write(out)
	}
	return all.String()
}

// neighbour is another host, with a block of its own.
func (h *host) neighbour(name, addr, block string) {
	h.Helper()
	h.put(model.HostMetadataKey{Host: name}, model.HostMetadata{})
	h.put(model.BGPHostKey{Host: name, Field: model.BGPHostIPv4}, model.Text(addr))
	h.put(model.StatusKey{Host: name}, model.Status{Time: time.Now()})
	h.put(model.HostConfigKey{Host: name, Name: vxlanConfig}, model.Text(netip.MustParsePrefix(block).Addr().String()))
	b := model.Block{CIDR: netip.MustParsePrefix(block), Affinity: name}
	for n := range 64 {
		b.Unallocated, b.Allocations = append(b.Unallocated, n), append(b.Allocations, model.Free)
	}
	h.put(model.BlockKey{CIDR: b.CIDR}, b)
}

// TestRefused: an agent whose name another host has taken leaves the kernel as it is:
// its pods talk on, and nothing comes of what the other says. So it is where it was
// refused while it ran, and where it was when it started.
func TestRefused(t *testing.T) {
	for name, starts := range map[string]bool{"while it ran": false, "when it started": true} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.uplink("172.18.0.1/24")
			pool := vxlanPool("10.65.0.0/16")
			h.put(model.PoolKey{CIDR: pool.CIDR}, pool)
			h.put(model.ReadyKey{}, model.Ready(true))
			h.neighbour("host-2", "172.18.0.2", "10.65.2.0/26")
			h.felix = map[string]string{"routerefreshinterval": "1", "reportingttlsecs": "300"}
			onUplink := func(cfg *Config) { cfg.Methods[0] = method(t, 0, "interface=^up0$") }
			stop := h.startWith(onUplink)
			h.ready()
			mine, theirs := h.addPod(1), h.newPod(2)
			// All that comes of what etcd holds: the last is the block of the tunnel's address.
			h.until("the route to host-2, and the block of the tunnel's own address", func() bool {
				now := h.programmed()
				for _, want := range []string{"10.65.2.0/26 via 172.18.0.2 dev vxlan.calico", "172.18.0.2 dev vxlan.calico lladdr", " dst 172.18.0.2 ", "elements = { 172.18.0.2 }", "\nblackhole "} {
					if !strings.Contains(now, want) {
						return false
					}
				}
				return true
			})
			theirs.wire()
			h.until("the status of the pod", func() bool { return h.get(mine.statusKey()) == model.EndpointUp })
			before := h.programmed()
			if starts {
				stop()
			}
			h.etcd.LoseName(h.name, "172.18.0.9")
			if starts {
				stop = h.startWith(onUplink)
			}
			reason := "another host that is called " + h.name + " lives and has 172.18.0.9"
			h.unready(reason)

			// What the other has, and what it says of what this one has.
			revision := theirs.put()
			h.remove(mine.key, model.BlockKey{CIDR: netip.MustParsePrefix("10.65.2.0/26")})
			h.put(mine.statusKey(), model.EndpointError)
			h.neighbour("host-3", "172.18.0.3", "10.65.3.0/26")
			h.put(model.BGPHostKey{Host: h.name, Field: model.BGPHostIPv4}, model.Text("172.18.0.10"))
			h.unready("lives and has 172.18.0.10")
			h.until("the reason is said once", func() bool {
				_, body := h.fetch(h.health, "/readiness")
				return strings.Count(body, "another host that is called") == 1 && strings.Contains(body, "172.18.0.10")
			})
			var rejected *gate.RejectedError
			if err := h.ask(theirs.key, revision, patience); !errors.As(err, &rejected) || !rejected.Retry || !strings.Contains(err.Error(), "172.18.0.10") {
				t.Errorf("the gate says %v", err)
			}
			if err := mine.ping(); err != nil {
				t.Errorf("its own pod: %v", err)
			}
			if !starts { // it is kept repaired
				h.ip("route", "del", "10.65.0.1")
				h.until("route is back", func() bool { return h.ip("route", "show", "10.65.0.1") != "" })
			}
			want := "# frozen\nanother host that is called " + h.name
			if starts {
				want = "nothing of this is done"
			}
			h.until("/debug/state says so", func() bool { // who is busy for some seconds has no picture
				status, body := h.fetch(h.health, "/debug/state?format=text")
				return status == http.StatusOK && strings.Contains(body, want)
			})
			if diff := cmp.Diff(before, h.programmed()); diff != "" {
				t.Errorf("the kernel was changed (-before +now):\n%s", diff)
			}
			if got := h.get(mine.statusKey()); got != model.EndpointError {
				t.Errorf("the status of an endpoint, which the other says, is %v", got)
			}
			if got := h.metric(`calico_node_host_problems{what="NODENAME"}`); got != 1 {
				t.Errorf("the metric is %v", got)
			}

			// The name is free: the agent goes on by itself, with what etcd says now.
			h.remove(model.StatusKey{Host: h.name})
			h.ready()
			h.mustPass(theirs.key, revision)
			h.until("all is as etcd says", func() bool {
				now := h.programmed()
				return strings.Contains(now, "10.65.3.0/26") && !strings.Contains(now, "10.65.2.0/26") && h.ip("route", "show", "10.65.0.1") == ""
			})
			h.until("its address", func() bool {
				return h.etcd.Field(h.name, model.BGPHostIPv4) == "172.18.0.1" && h.get(mine.statusKey()) == nil
			})
			stop()
		})
	}
}

// TestReturnsElsewhere: an agent that was killed comes back to a host with another
// address, long before its former lease ends; its pod talked on, and the next is let in.
func TestReturnsElsewhere(t *testing.T) {
	h := newHost(t)
	h.uplink("172.18.0.1/24")
	h.put(model.ReadyKey{}, model.Ready(true))
	h.put(model.HostConfigKey{Host: h.name, Name: "ReportingTTLSecs"}, model.Text("3600"))
	t.Setenv("IP", "interface=^up0$")
	running := h.spawn()
	h.ready()
	h.until("its address", func() bool { return h.etcd.Field(h.name, model.BGPHostIPv4) == "172.18.0.1" })
	p := h.addPod(1)
	status := model.StatusKey{Host: h.name}
	h.until("status", func() bool { return h.get(status) != nil })
	first := h.leaseOf(status)
	h.kill(running)
	h.ip("addr", "add", "172.19.0.7/24", "dev", "up0")
	h.ip("addr", "del", "172.18.0.1/24", "dev", "up0")
	if h.leaseOf(status) != first {
		t.Fatal("the former lease has ended")
	}
	if err := p.ping(); err != nil {
		t.Errorf("while the agent is down: %v", err)
	}
	h.spawn()
	h.ready()
	h.addPod(2)
	h.until("its other address", func() bool {
		return h.etcd.Field(h.name, model.BGPHostIPv4) == "172.19.0.7" && h.leaseOf(status) != first
	})
	if err := p.ping(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
