// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/garbage"
	"github.com/calico-go/calico/pkg/model"
)

var discard = slog.New(slog.DiscardHandler)

// asker is the controller as API and as Known.
type asker struct{ *controller }

func (a asker) Pod(_ context.Context, p garbage.Pod) (garbage.Look, error) { return a.podLook(p) }
func (a asker) Node(_ context.Context, name string) (garbage.Look, error)  { return a.nodeLook(name) }

type watches struct{ *controller }

func (k watches) Pod(p garbage.Pod) []string {
	known := k.pods
	if k.stale != nil {
		known = k.stale
	}
	if uid := known[p]; uid != "" {
		return []string{uid}
	}
	return nil
}

func (k watches) Node(name string) bool { return k.nodes[name] != "" }

func always() bool { return true }

// quiet runs one pass while nothing else happens.
func (c *controller) quiet() Report {
	c.Helper()
	r, err := c.Pass(context.Background())
	if err != nil {
		c.Fatal(err)
	}
	return r
}

func (w *world) held(c *container) bool { return w.get(model.HandleKey{ID: c.handle}).Exists() }

// TestPod: a pod leaves its addresses behind.
func TestPod(t *testing.T) {
	w := newWorld(t)
	c := w.controller(always)
	w.join("a")
	w.sync("a")
	pod := w.run(garbage.Pod{Namespace: "ns", Name: "web-0"}, "a")
	other := w.run(garbage.Pod{Namespace: "ns", Name: "web-1"}, "a")
	a := w.hosts["a"]

	step := func(name string, after time.Duration, candidates, released int) {
		t.Helper()
		w.now = w.now.Add(after)
		r := c.quiet()
		if r.Candidates != candidates || r.Released != released {
			t.Errorf("%s: %d candidates, %d released, want %d and %d; kept %v", name, r.Candidates, r.Released, candidates, released, r.Kept)
		}
	}
	n := len(pod.addrs)
	step("all live", 0, 0, 0)
	delete(w.pods, pod.pod)
	step("deleted by force, and running", time.Minute, n, 0)
	step("its agent still reports it", time.Hour, n, 0)
	delete(a.containers, pod.handle)
	w.report(a, true)
	w.apiAway = true
	if _, err := c.Pass(t.Context()); !errors.Is(err, errAway) || !w.held(pod) {
		t.Errorf("the API is away: %v", err)
	}
	w.apiAway = false
	step("the first look", time.Minute, n, 0)
	step("too early", garbage.PodGrace-time.Second, n, 0)
	step("gone", time.Second, n, n)
	step("all is done", time.Hour, 0, 0)
	if w.held(pod) || w.get(pod.key).Exists() || !w.held(other) || !w.get(other.key).Exists() {
		t.Error("not that pod's alone are gone")
	}

	// Another pod of the same name is on another host.
	delete(a.containers, other.handle)
	w.report(a, true)
	w.join("b")
	w.sync("b")
	again := w.run(other.pod, "b")
	step("another pod has the name", 0, len(other.addrs), 0)
	step("the former one is gone", garbage.PodGrace, len(other.addrs), len(other.addrs))
	if w.held(other) || !w.held(again) {
		t.Error("the wrong one of two pods is gone")
	}
}

// TestUnreported: an agent is set to report no endpoints.
func TestUnreported(t *testing.T) {
	w := newWorld(t)
	c := w.controller(always)
	w.join("a")
	w.sync("a")
	pod := w.run(garbage.Pod{Namespace: "ns", Name: "web-0"}, "a")
	w.remove(model.WorkloadStatusKey(pod.key))
	delete(w.pods, pod.pod)
	for range 3 {
		w.now = w.now.Add(time.Hour)
		if r := c.quiet(); r.Released != 0 || !w.held(pod) || len(r.Kept) != 1 || !strings.Contains(r.Kept[0].Why, "EndpointReportingEnabled") {
			t.Fatalf("%+v", r)
		}
	}
	w.report(w.hosts["a"], false)
	if r := c.quiet(); r.Released != len(pod.addrs) {
		t.Errorf("without an agent: %+v", r)
	}
}

// TestNever: addresses aren't a pod's, or don't say whose they are.
func TestNever(t *testing.T) {
	w := newWorld(t)
	c := w.controller(always)
	w.join("a")
	var kept []*container
	for i, without := range []string{"namespace", "workload", "node", "orchestrator"} {
		x := w.run(garbage.Pod{Namespace: "ns", Name: fmt.Sprint("p", i)}, "a")
		for _, e := range w.read(model.PrefixRange("/calico/ipam/v2/assignment/")) {
			b := e.Value.(model.Block)
			for j, at := range b.Attributes {
				if at.HandleID == x.handle {
					b.Attributes = slices.Clone(b.Attributes)
					b.Attributes[j].Secondary = maps.Clone(at.Secondary)
					delete(b.Attributes[j].Secondary, without)
					w.put(e.Key, b)
				}
			}
		}
		kept = append(kept, x)
		delete(w.hosts["a"].containers, x.handle)
		delete(w.pods, x.pod)
	}
	w.report(w.hosts["a"], false)
	for range 3 {
		c.quiet()
		w.now = w.now.Add(time.Hour)
	}
	for _, x := range kept {
		if !w.held(x) {
			t.Errorf("%s was freed", x.handle)
		}
	}
}

// TestNode: one Node goes, and one returns.
func TestNode(t *testing.T) {
	w := newWorld(t)
	c := w.controller(always)
	for _, name := range []string{"a", "b"} {
		w.join(name)
		w.sync(name)
	}
	for i := range 10 {
		w.run(garbage.Pod{Namespace: "ns", Name: fmt.Sprint("p", i)}, "a")
	}
	w.put(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4}, model.Text("192.0.2.1"))
	service := func(host string) model.Key {
		return model.NetworkServiceEndpointKey{Service: "vpn", Host: host, Name: "gw"}
	}
	for _, host := range []string{"a", "b"} {
		w.put(service(host), model.NetworkServiceEndpoint{Address: "192.0.2.1:5005"})
	}
	leave := func() {
		delete(w.nodes, "a")
		clear(w.pods)
		clear(w.hosts["a"].containers)
	}
	left := func() (n int) {
		for _, prefix := range []string{model.HostPrefix("a"), model.StatusPrefix("a"), model.AffinityPrefix("a"), model.BGPHostKey{Host: "a"}.Path()} {
			n += len(w.read(model.PrefixRange(prefix)))
		}
		return n
	}
	entry := func() bool { return w.get(model.HostMetadataKey{Host: "a"}).Exists() }
	leave()
	c.quiet()
	w.now = w.now.Add(time.Hour)
	if r := c.quiet(); !entry() || r.Hosts != 0 || r.Released != 0 {
		t.Fatalf("a host went whose agent lives: %+v", r)
	}
	w.report(w.hosts["a"], false)
	w.nodes["a"] = "another"
	c.quiet()
	delete(w.nodes, "a")
	c.quiet()
	w.now = w.now.Add(garbage.NodeGrace - time.Second)
	if r := c.quiet(); !entry() || r.Hosts != 0 {
		t.Fatalf("a host went whose Node was there a moment ago: %+v", r)
	}

	// The Node returns while the host is being deleted.
	w.now = w.now.Add(time.Second)
	all, steps := left(), 0
	w.meanwhile = func(*controller) {
		if left() < all && steps == 0 {
			steps++
			w.nodes["a"] = "another"
		}
	}
	if r := c.quiet(); r.Hosts != 0 || steps == 0 || !entry() {
		t.Fatalf("a host went whose Node returned: %+v", r)
	}
	delete(w.nodes, "a")
	c.quiet()
	w.now = w.now.Add(garbage.NodeGrace)

	// Its agent returns, between a step's read and its commit.
	w.put(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4}, model.Text("192.0.2.1"))
	inside := 0
	w.meanwhile = func(*controller) {
		if inside++; inside > 1 && !w.hosts["a"].agent && c.in {
			w.report(w.hosts["a"], true)
		}
	}
	if r := c.quiet(); r.Hosts != 0 || !w.hosts["a"].agent || !entry() || w.get(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4}).Value == nil {
		t.Fatalf("a host went whose agent returned: %+v", r)
	}
	w.meanwhile = func(*controller) {}
	w.report(w.hosts["a"], false)
	if r := c.quiet(); r.Hosts != 1 || left() != 0 {
		t.Errorf("%+v, left %d of %d: %v", r, left(), all, w.read(model.PrefixRange(model.HostPrefix("a"))))
	}
	if n := len(w.read(model.PrefixRange(model.HandlePrefix()))); n != 0 {
		t.Errorf("%d handles are left", n)
	}
	if w.get(service("a")).Exists() || !w.get(service("b")).Exists() {
		t.Error("endpoints of network services: want b's alone")
	}
}

// TestBrake: more goes at once than may.
func TestBrake(t *testing.T) {
	w := newWorld(t)
	c := w.controller(always)
	w.join("a")
	w.sync("a")
	for i := range 60 {
		w.run(garbage.Pod{Namespace: "ns", Name: fmt.Sprint("p", i)}, "a")
	}
	drop := func(from, to int) {
		for _, x := range w.hosts["a"].containers {
			var n int
			_, _ = fmt.Sscanf(x.pod.Name, "p%d", &n)
			if n >= from && n < to {
				delete(w.hosts["a"].containers, x.handle)
				delete(w.pods, x.pod)
			}
		}
		w.report(w.hosts["a"], true)
	}
	drop(0, 30)
	c.quiet()
	w.now = w.now.Add(garbage.PodGrace)
	const reason = "30 addresses of pool 10.0.0.0/24 would be freed at once, at most 16 may"
	r := c.quiet()
	if r.Blocked != reason || r.Released != 0 || len(r.Would) != 30 {
		t.Fatalf("blocked: %q, released %d, would do %d steps", r.Blocked, r.Released, len(r.Would))
	}
	// Another leader is blocked as well, and doesn't free a few either.
	next := w.controller(always)
	next.quiet()
	w.now = w.now.Add(garbage.PodGrace)
	if r := next.quiet(); r.Blocked != reason || r.Released != 0 {
		t.Fatalf("the next leader: %+v", r)
	}
	// More are gone when it is resumed: two that the brake counts, and others.
	drop(30, 32)
	next.quiet()
	w.now = w.now.Add(garbage.PodGrace)
	const more = "32 addresses of pool 10.0.0.0/24 would be freed at once, at most 16 may"
	if r := next.quiet(); r.Blocked != more || r.Released != 0 {
		t.Fatalf("two more are gone: %+v", r)
	}
	if b, err := Resume(t.Context(), next); err != nil || b.Reason != more {
		t.Fatalf("Resume: %+v, %v", b, err)
	}
	drop(32, 52)
	next.quiet() // frees the 32, and has its first look at the others
	if n := len(w.read(model.PrefixRange(model.HandlePrefix()))); n != 28 {
		t.Errorf("%d handles after it was resumed, want 28", n)
	}
	w.now = w.now.Add(garbage.PodGrace)
	if r := next.quiet(); !strings.HasPrefix(r.Blocked, "20 addresses") {
		t.Errorf("the allowance holds on: %+v", r)
	}
	if _, err := Resume(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	next.quiet()
	if _, err := Resume(t.Context(), next); !errors.Is(err, garbage.ErrNotBlocked) {
		t.Errorf("Resume of what isn't blocked: %v", err)
	}
	if n := len(w.read(model.PrefixRange(model.HandlePrefix()))); n != 8 {
		t.Errorf("%d handles at the end, want 8", n)
	}
}

// TestNodesBrake: more nodes go at once than may.
func TestNodesBrake(t *testing.T) {
	w := newWorld(t)
	c := w.controller(always)
	for i := range 5 {
		name := fmt.Sprint("n", i)
		w.join(name)
		w.sync(name)
		w.report(w.hosts[name], false)
		if i > 0 {
			delete(w.nodes, name)
		}
	}
	c.quiet()
	w.now = w.now.Add(garbage.NodeGrace)
	if r := c.quiet(); r.Blocked != "4 nodes would go at once, at most 3 may" || r.Hosts != 0 {
		t.Fatalf("%+v", r)
	}
	if _, err := Resume(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if r := c.quiet(); r.Hosts != 4 {
		t.Errorf("%+v", r)
	}
}

// TestSpareBlock: an empty block goes after two looks, if the host keeps another.
func TestSpareBlock(t *testing.T) {
	w := newWorld(t)
	c := w.controller(always)
	w.join("a")
	w.sync("a")
	var all []*container
	for i := range 12 {
		all = append(all, w.run(garbage.Pod{Namespace: "ns", Name: fmt.Sprint("p", i)}, "a"))
	}
	blocks := func() int { return len(w.read(model.PrefixRange(model.BlockPrefix(false)))) }
	for _, x := range all {
		delete(w.pods, x.pod)
		w.del(w.hosts["a"], x)
	}
	had := blocks()
	c.quiet()
	w.now = w.now.Add(garbage.PodGrace)
	if c.quiet(); blocks() != had-1 {
		t.Errorf("%d blocks, had %d", blocks(), had)
	}
	for range 3 {
		w.now = w.now.Add(garbage.PodGrace)
		c.quiet()
	}
	if blocks() != 1 {
		t.Errorf("%d blocks at the end, want the one that the host keeps", blocks())
	}
	w.run(garbage.Pod{Namespace: "ns", Name: "again"}, "a")
	for _, u := range c.quiet().Usage {
		if u.Pool.Addr().Is4() && (u.Allocated != 1 || u.Free != 255) {
			t.Errorf("usage: %+v", u)
		}
	}
}

// TestHistories: anything happens at any time. Nothing that lives is ever deleted, and in the end everything dead is gone.
func TestHistories(t *testing.T) {
	rounds := 120
	if testing.Short() {
		rounds = 30 // fewer don't come to everything below
	}
	counts := map[string]int{}
	for seed := range rounds {
		h := newHistory(t, uint64(seed), counts)
		h.run(150)
		h.settle()
	}
	for _, what := range []string{"released", "host", "blocked", "killed", "silent", errFenced.Error(), errAway.Error()} {
		if counts[what] == 0 {
			t.Errorf("no history had %q: %v", what, counts)
		}
	}
	t.Log(counts)
}

// TestTunnelOfDeadNode: the only block of a Node that is gone holds nothing but its tunnel's address, either without a handle, as
// in Calico before version 3.6, or with one, as since. All of it goes; an address that its setting doesn't name stays.
func TestTunnelOfDeadNode(t *testing.T) {
	block, addr := netip.MustParsePrefix("10.99.0.0/30"), netip.MustParseAddr("10.99.0.1")
	setting := model.HostConfigKey{Host: "a", Name: "IpInIpTunnelAddr"}
	for name, tt := range map[string]struct {
		attributes model.Attributes
		setting    string
		stays      bool
	}{
		"before 3.6":       {setting: addr.String()},
		"since 3.6":        {attributes: model.Attributes{HandleID: "ipip-tunnel-addr-a", Secondary: map[string]string{"node": "a", "type": "ipipTunnelAddress"}}, setting: addr.String()},
		"another's":        {setting: "10.99.0.2", stays: true},
		"of an older host": {stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.controller(always)
			for _, host := range []string{"a", "b"} {
				w.join(host)
				w.sync(host)
			}
			w.put(model.PoolKey{CIDR: netip.MustParsePrefix("10.99.0.0/24")}, model.Pool{CIDR: netip.MustParsePrefix("10.99.0.0/24"), IPAM: true, BlockSize: 30})
			change := model.Change{Puts: []model.Put{
				{Key: model.BlockKey{CIDR: block}, Value: model.Block{CIDR: block, Affinity: "a", Allocations: []int{model.Free, 0, model.Free, model.Free},
					Unallocated: []int{0, 2, 3}, Attributes: []model.Attributes{tt.attributes}}},
				{Key: model.AffinityKey{Host: "a", CIDR: block}, Value: model.Affinity{}},
			}}
			if id := tt.attributes.HandleID; id != "" {
				change.Puts = append(change.Puts, model.Put{Key: model.HandleKey{ID: id}, Value: model.Handle{ID: id, Blocks: map[netip.Prefix]int{block: 1}}})
			}
			if err := w.commit(change); err != nil {
				t.Fatal(err)
			}
			if tt.setting != "" {
				w.put(setting, model.Text(tt.setting))
			}
			delete(w.nodes, "a")
			w.report(w.hosts["a"], false)
			c.quiet()
			w.now = w.now.Add(garbage.NodeGrace)
			if r := c.quiet(); r.Hosts != 1 {
				t.Errorf("the host stays: %+v", r)
			}
			if there := w.get(model.BlockKey{CIDR: block}).Exists(); there != tt.stays {
				t.Errorf("its block is there: %t", there)
			}
			if n := len(w.read(model.PrefixRange(model.HandlePrefix()))) + len(w.read(model.PrefixRange(model.AffinityPrefix("a")))); n != 0 || !tt.stays && w.get(setting).Exists() {
				t.Errorf("%d handles and affinities, or its setting, are left", n)
			}
		})
	}
}
