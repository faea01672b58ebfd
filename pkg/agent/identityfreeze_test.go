// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// learned matches the elements of sets that packets fill.
var learned = regexp.MustCompile(`(?m)^(\t\tflags [a-z,]*dynamic.*\n(?:\t\t[^\t].*\n)*?)\t\telements = \{[^}]*\}\n`)

// programmed returns as text all that an agent keeps in the kernel.
func (h *host) programmed() string {
	h.Helper()
	var all strings.Builder
	for _, args := range [][]string{
		{"ip", "-4", "route", "show", "table", "all", "proto", "80"}, {"ip", "-6", "route", "show", "table", "all", "proto", "80"},
		{"ip", "-4", "route", "show", "table", "all", "proto", "81"}, {"ip", "-6", "route", "show", "table", "all", "proto", "81"},
		{"ip", "neigh", "show", "nud", "permanent"}, {"ip", "-o", "link", "show", "type", "vxlan"},
		{"nft", "-s", "list", "ruleset"},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			h.Fatalf("%v: %v: %s", args, err, out)
		}
		if args[0] != "nft" { // which sorts by itself
			// The kernel's order of neighbours changes where its table, which is all namespaces', grows.
			out = []byte(strings.Join(slices.Sorted(strings.Lines(string(out))), ""))
		}
		_, _ = all.Write(learned.ReplaceAll(out, []byte("$1")))
	}
	return all.String()
}

// neighbour adds another host, with a block of its own.
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

// TestRefused: an agent whose name another host takes leaves the kernel as it is: its pods keep talking, and the other's objects have no
// effect, until the name is free.
func TestRefused(t *testing.T) {
	h := newHost(t)
	h.uplink("172.18.0.1/24")
	pool := vxlanPool("10.65.0.0/16")
	h.put(model.PoolKey{CIDR: pool.CIDR}, pool)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.neighbour("host-2", "172.18.0.2", "10.65.2.0/26")
	h.felix = map[string]string{"routerefreshinterval": "1", "reportingttlsecs": "300"}
	h.startWith(func(cfg *Config) { cfg.Methods[0] = method(t, 0, "interface=^up0$") })
	h.ready()
	mine, theirs := h.addPod(1), h.newPod(2)
	// All that comes of what etcd holds: the last is the block of the tunnel's address.
	eventually.Nil(t, "route to host-2, and the block of the tunnel's own address", func() error {
		now := h.programmed()
		for _, want := range []string{"10.65.2.0/26 via 172.18.0.2 dev vxlan.calico", "172.18.0.2 dev vxlan.calico lladdr", "elements = { 172.18.0.2 }", "\nblackhole "} {
			if !strings.Contains(now, want) {
				return fmt.Errorf("no %q in:\n%s", want, now)
			}
		}
		return nil
	})
	theirs.wire()
	h.until("the status of the pod", func() bool { return h.get(mine.statusKey()) == model.EndpointUp })
	before := h.programmed()
	h.etcd.LoseName(h.name, "172.18.0.9")
	h.unready("another host that is called " + h.name + " lives and has 172.18.0.9")

	// What the other has, and what it says of what this one has.
	revision := theirs.put()
	h.remove(mine.key, model.BlockKey{CIDR: netip.MustParsePrefix("10.65.2.0/26")})
	h.put(mine.statusKey(), model.EndpointError)
	h.neighbour("host-3", "172.18.0.3", "10.65.3.0/26")
	h.put(model.BGPHostKey{Host: h.name, Field: model.BGPHostIPv4}, model.Text("172.18.0.10"))
	h.unready("lives and has 172.18.0.10")
	h.until("the gate says so", func() bool {
		rejected, ok := errors.AsType[*gate.RejectedError](h.ask(theirs.key, revision, eventually.Limit))
		return ok && rejected.Retry && strings.Contains(rejected.Reason, "172.18.0.10")
	})
	if err := mine.ping(); err != nil {
		t.Errorf("its own pod: %v", err)
	}
	h.ip("route", "del", "10.65.0.1") // what is programmed is kept repaired
	h.until("route is back", func() bool { return h.ip("route", "show", "10.65.0.1") != "" })
	h.until("/debug/state says so", func() bool {
		status, body := h.fetch(h.health, "/debug/state?format=text")
		return status == http.StatusOK && strings.Contains(body, "# frozen\nanother host that is called "+h.name)
	})
	if diff := cmp.Diff(before, h.programmed()); diff != "" {
		t.Errorf("the kernel was changed (-before +now):\n%s", diff)
	}
	if got := h.get(mine.statusKey()); got != model.EndpointError {
		t.Errorf("the status of an endpoint, which the other says, is %v", got)
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
}
