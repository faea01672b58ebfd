// SPDX-License-Identifier: Apache-2.0

package reentry

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// host is a keeper beside an etcd.
type host struct {
	*etcd.Server
	*Pods
	links    []link.Link
	leads    map[string]netip.Addr // the route by a link, by its name
	entered  counter
	run      string
	vars     string
	restored bool // the next snapshot is of an etcd that was
}

var pool = netip.MustParsePrefix("10.0.0.0/24")

func newHost(t *testing.T) *host {
	h := &host{Server: etcd.New(t), run: t.TempDir(), vars: t.TempDir()}
	h.setUp()
	h.start()
	return h
}

// start starts an agent.
func (h *host) start() {
	h.Pods = New(Config{
		Node: "a", RunDir: h.run, VarDir: h.vars, Etcd: h.Store, Links: func() ([]link.Link, error) { return h.links, nil },
		LeadsTo: func(l link.Link, addrs []netip.Addr) bool { return slices.Contains(addrs, h.leads[l.Name]) },
		Naming:  mailbox.NewValue(""), Health: health.New("calico-test"), Problems: problems.New(slog.New(slog.DiscardHandler)),
		Logger: slog.New(slog.DiscardHandler), Entered: &h.entered, Settle: 20 * time.Millisecond,
	})
}

// counter is used as Config.Entered.
type counter struct {
	prometheus.Counter
	n atomic.Int32
}

func (c *counter) Inc() { c.n.Add(1) }

func (h *host) setUp() {
	h.Put(model.ReadyKey{}, model.Ready(true))
	h.Put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool, IPAM: true})
}

// wipe empties etcd.
func (h *host) wipe() {
	h.Helper()
	entries := h.all()
	for len(entries) > 0 {
		var keys []model.Key
		for ; len(entries) > 0 && len(keys) < 100; entries = entries[1:] {
			keys = append(keys, entries[0].Key)
		}
		h.Remove(keys...)
	}
}

func (h *host) all() []model.Entry {
	h.Helper()
	s, err := h.Store.Read(context.Background(), model.PrefixRange(model.Root))
	if err != nil {
		h.Fatal(err)
	}
	return s.Entries()
}

// snapshot delivers all of etcd to the keeper, with the revisions of its keys lowered by back, as if etcd's own had been raised.
func (h *host) snapshot(back int64) error {
	h.Helper()
	s, err := h.Store.Read(context.Background(), model.PrefixRange(model.Root))
	if err != nil {
		h.Fatal(err)
	}
	restored := h.restored
	h.restored = false
	entries := s.Entries()
	for i := range entries {
		entries[i].Revision -= back
	}
	return h.Update(context.Background(), model.Update{Revision: s.Revision, Resync: true, Restored: restored, Entries: entries})
}

func key(name string) model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: "a", Orchestrator: "k8s", Workload: "ns." + name, Endpoint: "eth0"}
}

// add does what an ADD does on a node.
func (h *host) add(node, name, container string, addr string) {
	h.Helper()
	k := key(name)
	k.Host = node
	a := netip.MustParseAddr(addr)
	h.allocate(node, name, container, a, model.Put{Key: k, Value: model.WorkloadEndpoint{
		State: model.StateActive, Name: "cali" + name, MAC: model.MAC{2, 0, 0, 0, 0, 1}, ContainerID: container, PodUID: "uid-" + container,
		ProfileIDs: []string{"net"}, IPv4Nets: []netip.Prefix{netip.PrefixFrom(a, 32)}, Labels: map[string]string{"app": name},
	}})
	if node == "a" {
		h.links = append(h.links, link.Link{Name: "cali" + name, Alias: link.WorkloadAlias + "net." + container + ".eth0"})
	}
}

// allocate does what an ADD of calico-ipam does: under another main plugin there is nothing else to write.
func (h *host) allocate(node, name, container string, a netip.Addr, puts ...model.Put) {
	h.Helper()
	request := ipam.Request{Host: node, Handle: "net." + container + ".eth0", Addrs: []netip.Addr{a}, Now: time.Now(), Attributes: map[string]string{
		"node": node, "network": "net", "orchestrator": "k8s", "workload": key(name).Workload, "namespace": "ns", "pod": name,
	}}
	_, err := h.Store.Transact(context.Background(), ipam.FirstRead(request), func(v *model.View) (model.Change, error) {
		p := ipam.NewPlan(v)
		if _, err := p.Assign(request); err != nil {
			return model.Change{}, err
		}
		change := p.Change()
		change.Puts = append(change.Puts, puts...)
		return change, nil
	})
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) endpoint(name string) model.WorkloadEndpoint {
	h.Helper()
	e, _ := h.Get(key(name)).(model.WorkloadEndpoint)
	return e
}

func (h *host) mustBeReplaced(back int64) {
	h.Helper()
	if err := h.snapshot(back); !errors.Is(err, ErrReplaced) {
		h.Fatalf("a replaced etcd: %v", err)
	}
	if err := h.snapshot(0); err != nil {
		h.Fatalf("and read anew: %v", err)
	}
	if why := h.Pods.Held(); why != "" {
		h.Errorf("pods are held: %s", why)
	}
	h.Check()
}

func (h *host) mustUpdate() {
	h.Helper()
	for range 2 { // the first makes the GUID
		if err := h.snapshot(0); err != nil {
			h.Fatal(err)
		}
	}
}

// TestMadeAnew: living pods are entered again, and nothing else.
func TestMadeAnew(t *testing.T) {
	for name, restart := range map[string]bool{"agent goes on": false, "agent starts": true} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.add("a", "one", "c1", "10.0.0.1")
			h.add("a", "two", "c2", "10.0.0.2")
			h.add("a", "dead", "c3", "10.0.0.3")
			h.mustUpdate()
			guid := h.Get(guidKey)
			before := h.endpoint("one")
			h.links = h.links[:2]
			h.wipe()
			h.setUp()
			if restart {
				h.start()
			}
			h.mustBeReplaced(0)
			if got := h.endpoint("one"); !got.Equal(before) {
				t.Errorf("endpoint: %+v, was %+v", got, before)
			}
			if held := h.Server.Held("net.c2.eth0"); len(held) != 1 || held[0].String() != "10.0.0.2" {
				t.Errorf("held: %v", held)
			}
			if h.Get(key("dead")) != nil || len(h.Server.Held("net.c3.eth0")) > 0 || h.entered.n.Load() != 2 {
				t.Errorf("%d endpoints are entered", h.entered.n.Load())
			}
			if h.Get(model.ProfileRulesKey{Profile: "net"}) == nil {
				t.Error("the network's profile isn't there")
			}
			if now := h.Get(guidKey); now == nil || now == guid {
				t.Errorf("GUID %v, was %v", now, guid)
			}
		})
	}
}

// TestYoung recreates an etcd whose revisions stay lower than those of the one before, for long after the pods are entered in it.
func TestYoung(t *testing.T) {
	h := newHost(t)
	for range 50 {
		h.Put(model.ReadyKey{}, model.Ready(true))
	}
	h.add("a", "one", "c1", "10.0.0.1")
	h.mustUpdate()
	h.Server = etcd.New(t)
	h.Pods.Etcd = h.Store
	h.setUp()
	h.mustBeReplaced(0)
	guid := h.Get(guidKey)
	h.start()
	h.mustUpdate()
	if now := h.Get(guidKey); now != guid || h.entered.n.Load() != 1 {
		t.Errorf("GUID %v, was %v; %d endpoints are entered", now, guid, h.entered.n.Load())
	}
}

// TestRestored restores a backup without some pods, and with others that have gone since. Before this host reads it, others may have
// written so much that the revision is beyond the last one that this host saw.
func TestRestored(t *testing.T) {
	for name, back := range map[string]int64{"behind": 100, "beyond": 0} {
		t.Run(name, func(t *testing.T) { testRestored(t, back) })
	}
}

func testRestored(t *testing.T, back int64) {
	h := newHost(t)
	h.mustUpdate()
	h.add("a", "old", "c1", "10.0.0.1")
	h.add("a", "gone", "c2", "10.0.0.2")
	h.links = h.links[:1]
	backup := h.all()
	h.Remove(key("gone"), model.HandleKey{ID: "net.c2.eth0"}, model.HandleKey{ID: "net.c1.eth0"}, key("old"), model.BlockKey{CIDR: netip.MustParsePrefix("10.0.0.0/26")})
	h.links = nil
	h.add("a", "old", "c1", "10.0.0.1")
	h.add("a", "late", "c3", "10.0.0.2") // as gone had
	h.mustUpdate()
	guid := h.Get(guidKey)
	h.wipe()
	for _, e := range backup {
		h.Put(e.Key, e.Value)
	}
	h.restored = back == 0
	h.mustBeReplaced(back)
	if held := h.Server.Held("net.c3.eth0"); len(held) != 1 || held[0].String() != "10.0.0.2" || h.endpoint("late").ContainerID != "c3" {
		t.Errorf("late has %v", held)
	}
	if h.Get(key("gone")) != nil || h.endpoint("old").ContainerID != "c1" {
		t.Error("what is dead is there, or what lives isn't")
	}
	if now := h.Get(guidKey); now == nil || now == guid {
		t.Errorf("GUID %v, was %v: who was down doesn't notice", now, guid)
	}
}

// TestRestoredBorrowed: dead addresses are found in another host's block, too.
func TestRestoredBorrowed(t *testing.T) {
	h := newHost(t)
	h.mustUpdate()
	h.add("b", "theirs", "c1", "10.0.0.1")
	h.add("a", "gone", "c2", "10.0.0.2")
	h.links = nil
	h.mustUpdate()
	h.mustBeReplaced(100)
	if h.Get(key("gone")) != nil || len(h.Server.Held("net.c2.eth0")) > 0 {
		t.Error("what is dead is there")
	}
	if len(h.Server.Held("net.c1.eth0")) != 1 {
		t.Error("what another host has is not")
	}
}

// TestRestoredOtherPlugins: containers of other main plugins have addresses of calico-ipam, but no endpoint and no link of ours. None of
// these addresses is freed, though nothing shows that they are in use.
func TestRestoredOtherPlugins(t *testing.T) {
	h := newHost(t)
	h.mustUpdate()
	h.add("a", "gone", "c1", "10.0.0.1")
	h.allocate("a", "ptp", "c2", netip.MustParseAddr("10.0.0.2"))
	h.links = []link.Link{{Name: "veth1", Kind: "veth"}}
	h.mustUpdate()
	h.mustBeReplaced(100)
	if len(h.Server.Held("net.c2.eth0")) != 1 {
		t.Error("an address of another main plugin's container is free")
	}
	if h.Get(key("gone")) != nil || len(h.Server.Held("net.c1.eth0")) > 0 {
		t.Error("what is dead is there")
	}
}

// older makes some pods look as an older version of Calico left them: the kernel doesn't say whose a link is, and the handles differ.
func (h *host) older() {
	h.Helper()
	h.leads = map[string]netip.Addr{}
	for i, l := range h.links {
		h.links[i] = link.Link{Name: l.Name, Kind: "veth", Up: true}
	}
	b := h.Get(block).(model.Block)
	for i, a := range b.Attributes {
		older := strings.TrimSuffix(a.HandleID, ".eth0")
		h.Remove(model.HandleKey{ID: a.HandleID})
		h.Put(model.HandleKey{ID: older}, model.Handle{ID: older, Blocks: map[netip.Prefix]int{block.CIDR: 1}})
		b.Attributes[i] = model.Attributes{HandleID: older}
	}
	h.Put(block, b)
	for _, name := range []string{"one", "two"} {
		h.leads["cali"+name] = h.endpoint(name).Addrs()[0]
	}
}

// TestOlderVersions covers pods of an older version of Calico: those whose links have routes to their addresses are entered in a recreated
// etcd, with a handle that their DEL knows, and in a restored one they are as they were. Another's link with such a name is left alone.
func TestOlderVersions(t *testing.T) {
	h := newHost(t)
	h.add("a", "one", "c1", "10.0.0.1")
	h.add("a", "two", "c2", "10.0.0.2")
	h.older()
	h.leads["calitwo"] = netip.MustParseAddr("10.0.0.9")
	h.mustUpdate()
	h.mustBeReplaced(100)
	if h.Get(model.HandleKey{ID: "net.c1"}) == nil || h.Get(model.HandleKey{ID: "net.c2"}) == nil || h.endpoint("two").ContainerID != "c2" {
		t.Error("what etcd had of them is not there")
	}
	before := h.endpoint("one")
	h.wipe()
	h.setUp()
	h.mustBeReplaced(0)
	if got := h.endpoint("one"); !got.Equal(before) || len(h.Server.Held("c1")) != 1 {
		t.Errorf("%+v has %v; it was %+v", got, h.Server.Held("c1"), before)
	}
	if h.Get(key("two")) != nil || h.entered.n.Load() != 1 {
		t.Errorf("%d endpoints are entered", h.entered.n.Load())
	}
	h.expectListed(nil)
	h.change(free(1))
	h.expectListed(nil)
	if len(h.Server.Held("c1")) != 1 {
		t.Error("the audit doesn't know it")
	}
	h.links = nil
	h.mustUpdate()
	h.mustBeReplaced(100)
	if h.Get(key("one")) != nil || len(h.Server.Held("c1")) > 0 {
		t.Error("what is dead is there")
	}
}

// said returns what the ledger has about a re-entry.
func (h *host) said() string {
	for _, p := range h.Problems.All() {
		if p.Path == part {
			return p.Reason
		}
	}
	return ""
}

// TestTaken: an address that another host's pod has is not taken from it, and the others go on. The conflict is listed until one of the two
// pods is gone.
func TestTaken(t *testing.T) {
	h := newHost(t)
	h.add("a", "one", "c1", "10.0.0.1")
	h.add("a", "two", "c2", "10.0.0.2")
	h.add("a", "three", "c3", "10.0.0.3")
	h.mustUpdate()
	h.wipe()
	h.setUp()
	h.add("b", "thief", "c9", "10.0.0.1")
	h.add("b", "other", "c8", "10.0.0.3")
	if err := h.snapshot(0); !errors.Is(err, ErrReplaced) {
		t.Fatal(err)
	}
	h.mustUpdate()
	h.Check()
	if h.Get(key("one")) != nil || h.endpoint("two").ContainerID != "c2" || len(h.Server.Held("net.c9.eth0")) != 1 {
		t.Error("not what could be entered is")
	}
	for range 2 {
		if said := h.said(); !strings.Contains(said, "10.0.0.1") || !strings.Contains(said, "10.0.0.3") {
			t.Errorf("problems: %q", said)
		}
		if h.audit(h.Context()) {
			t.Error("all is in order")
		}
	}
	thief := key("thief")
	thief.Host = "b"
	if err := h.free(h.Context(), thief, "c9"); err != nil {
		t.Fatal(err)
	}
	if h.audit(h.Context()) || !strings.Contains(h.said(), "10.0.0.3") || strings.Contains(h.said(), "10.0.0.1") {
		t.Errorf("problems: %q", h.said())
	}
	if len(h.Server.Held("net.c1.eth0")) != 1 || h.endpoint("one").ContainerID != "c1" {
		t.Error("it isn't entered though its address is free")
	}
	h.links = h.links[:2]
	h.expectListed(nil)
	if said := h.said(); said != "" {
		t.Errorf("problems: %q", said)
	}
	h.Check()
}

// TestNextSandbox: the endpoint of a pod's next sandbox is not overwritten.
func TestNextSandbox(t *testing.T) {
	h := newHost(t)
	h.add("a", "one", "c1", "10.0.0.1")
	former := living{key("one"), h.endpoint("one"), "net", "net.c1.eth0"}
	h.add("a", "one", "c2", "10.0.0.2")
	if err := h.enter(h.Context(), former, true); err != nil || h.endpoint("one").ContainerID != "c2" {
		t.Errorf("%+v, %v", h.endpoint("one"), err)
	}
}

// TestOtherPools: an address outside all pools belongs to another IPAM plugin.
func TestOtherPools(t *testing.T) {
	h := newHost(t)
	h.add("a", "one", "c1", "10.0.0.1")
	spec := h.endpoint("one")
	spec.IPv4Nets = []netip.Prefix{netip.MustParsePrefix("192.168.0.1/32")}
	h.Put(key("one"), spec)
	h.mustUpdate()
	h.wipe()
	h.setUp()
	h.mustBeReplaced(0)
	if said := h.said(); !h.endpoint("one").Equal(spec) || said != "" {
		t.Errorf("%+v; problems: %q", h.endpoint("one"), said)
	}
	h.expectListed(nil)
}

// TestHeld: nothing is entered, and no pod let in, before etcd is ready.
func TestHeld(t *testing.T) {
	h := newHost(t)
	h.add("a", "one", "c1", "10.0.0.1")
	h.mustUpdate()
	h.wipe()
	heard := make(chan error)
	go func() { heard <- h.snapshot(0) }()
	h.Until("pods are held", func() bool { return strings.HasSuffix(h.Pods.Held(), "/calico/v1/Ready is not true") })
	if n := len(h.all()); n != 0 {
		t.Errorf("%d keys are written", n)
	}
	h.setUp()
	if err := <-heard; !errors.Is(err, ErrReplaced) || h.endpoint("one").ContainerID != "c1" {
		t.Errorf("%v", err)
	}
}

// TestNewestDeleted: an etcd whose newest key was deleted hasn't been restored.
func TestNewestDeleted(t *testing.T) {
	h := newHost(t)
	h.add("a", "pod", "c1", "10.0.0.1")
	newest := model.PolicyKey{Tier: "default", Policy: "newest"}
	h.Put(newest, model.Policy{Selector: "all()"})
	h.mustUpdate()
	h.Remove(newest)
	s, err := h.Store.Read(context.Background(), model.KeyRange(newest))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Update(context.Background(), model.Update{Revision: s.Revision, Entries: []model.Entry{{Path: newest.Path(), Key: newest}}}); err != nil {
		t.Fatal(err)
	}
	h.mustUpdate()
	h.Put(newest, model.Policy{Selector: "all()"})
	h.mustUpdate()
	h.mustBeReplaced(100)
}

// TestImported empties etcd and imports an export of it, with its GUID: that must change, or a host that was down meanwhile would notice
// nothing.
func TestImported(t *testing.T) {
	h := newHost(t)
	h.mustUpdate()
	export, guid := h.all(), h.Get(guidKey)
	h.add("a", "late", "c1", "10.0.0.1")
	h.mustUpdate()
	h.wipe()
	heard := make(chan error)
	go func() { heard <- h.snapshot(0) }()
	h.Until("pods are held", func() bool { return h.Pods.Held() != "" })
	for _, e := range export {
		h.Put(e.Key, e.Value)
	}
	if err := <-heard; !errors.Is(err, ErrReplaced) || h.endpoint("late").ContainerID != "c1" {
		t.Errorf("%v", err)
	}
	if now := h.Get(guidKey); now == nil || now == guid {
		t.Errorf("GUID %v, was %v: who was down doesn't notice", now, guid)
	}
}

// TestReadGUID: a file that never reached the disk, or only in part, counts as missing.
func TestReadGUID(t *testing.T) {
	dir := t.TempDir()
	const guid = "0ead38fc343eb348f5578e2726de5260"
	for text, want := range map[string]string{"": "", "\n": "", string(make([]byte, 40)): "", guid[:16]: "", guid + "\n": guid} {
		if err := os.WriteFile(filepath.Join(dir, GUIDName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readGUID(dir); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// TestRecordSweeps: what an agent left that was killed while it wrote is removed, and is no endpoint.
func TestRecordSweeps(t *testing.T) {
	dir := t.TempDir()
	e := model.Entry{Path: key("one").Path(), Key: key("one"), Revision: 3, Value: model.WorkloadEndpoint{State: model.StateActive, Name: "cali1", ContainerID: "c"}}
	if err := openRecord(dir).take(key("one").Host, model.Update{Revision: 3, Entries: []model.Entry{e}}); err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(dir, recordName, ".0f.123")
	if err := os.WriteFile(torn, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := openRecord(dir); r.newest() != 3 || len(r.endpoints) != 1 {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(torn); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was torn: %v", err)
	}
}
