// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/doubles"
)

// crossroads is a router under a clock of the test, with a fake kernel and speaker: it tests when the router does what. test/fabric tests
// what happens to packets.
type crossroads struct {
	*Router
	kernelFabric doubles.Fabric
	start        time.Time
	ready        chan struct{}

	mu       sync.Mutex
	calls    []string
	losses   uint32 // of its link's carrier
	former   []plan.Route
	etcd     map[netip.Addr]bool
	learned  []plan.Learned
	again    []netip.Prefix // to look at
	complete bool
	said     []string   // to the speaker
	meshed   []string   // what it was told to tell the mesh, and when that changed
	routerID netip.Addr // by which it was told to speak
	disk     disk
	refuse   error // of the speaker
	hang     chan struct{}
	heard    *News // by the loop, latest
}

// disk keeps what BGP was told.
type disk struct {
	c        *crossroads
	formerID netip.Addr   // of the router's former run
	former   *bgp.Desired // that it said
	full     error
	id       netip.Addr
	kept     *bgp.Desired
	writes   int
}

func (d *disk) read() (netip.Addr, bgp.Desired, error) {
	if d.former == nil {
		return d.formerID, bgp.Desired{}, os.ErrNotExist
	}
	return d.formerID, *d.former, nil
}

func (d *disk) write(id netip.Addr, desired bgp.Desired) error {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if d.writes++; d.full == nil {
		d.id, d.kept = id, &desired
	}
	return d.full
}

// loop plays the loop as far as the router knows it: a firewall that is in place at once.
func (c *crossroads) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.handover.News.Ready():
		}
		if n, ok := c.handover.News.Take(); ok {
			c.with(func() { c.heard = &n })
			close(n.Stands)
		}
	}
}

func (c *crossroads) did(what string) {
	c.with(func() { c.calls = append(c.calls, fmt.Sprintf("%s %v", what, time.Since(c.start))) })
}

// Apply implements fabric. A call that finds everything in order is not recorded.
func (c *crossroads) Apply(ctx context.Context, st plan.State) (fabric.Report, error) {
	r, err := c.kernelFabric.Apply(ctx, st)
	if r.Writes > 0 || len(r.Problems) > 0 || err != nil {
		var words []string
		for _, r := range st.Routes {
			words = append(words, r.String())
		}
		slices.Sort(words)
		c.did("whole [" + strings.Join(words, ", ") + "]")
	}
	return r, err
}

// ApplySome implements fabric.
func (c *crossroads) ApplySome(ctx context.Context, ch plan.Changes) (fabric.Report, error) {
	var words []string
	for p, r := range ch.Routes {
		if r == nil {
			words = append(words, "no "+p.String())
		} else {
			words = append(words, r.String())
		}
	}
	for id, r := range ch.Remotes {
		if r == nil {
			words = append(words, "nobody at "+id.Outer.String())
		}
	}
	slices.Sort(words)
	if ch.Devices != nil {
		for _, t := range ch.Devices.Tunnels {
			device := t.Device
			if t.Addr.IsValid() {
				device += " " + t.Addr.String()
			}
			words = append(words, device)
		}
		if len(ch.Devices.Tunnels) == 0 {
			words = append(words, "no tunnel")
		}
	}
	c.did("some [" + strings.Join(words, ", ") + "]")
	return c.kernelFabric.ApplySome(ctx, ch)
}

// Subscribe implements fabric.
func (c *crossroads) Subscribe(ctx context.Context) (<-chan struct{}, error) {
	return c.kernelFabric.Subscribe(ctx)
}

// Close implements fabric.
func (c *crossroads) Close() {}

// Ready implements learnedRoutes.
func (c *crossroads) Ready() <-chan struct{} { return c.ready }

// Take implements learnedRoutes.
func (c *crossroads) Take() []plan.Learned {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.learned
	c.learned = nil
	return taken
}

// LookAgain implements learnedRoutes.
func (c *crossroads) LookAgain(prefixes []netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = append(c.again, prefixes...)
}

// mouth is the speaker of the crossroads.
type mouth struct{ *crossroads }

func (m mouth) Apply(ctx context.Context, d bgp.Desired) error {
	m.mu.Lock()
	refuse, hang := m.refuse, m.hang
	m.routerID = d.Speaker.RouterID
	m.said = append(m.said, fmt.Sprintf("as %s neighbours %v advertises %v %v", d.Speaker.AS,
		slices.SortedFunc(maps.Keys(d.Neighbours), netip.Addr.Compare),
		slices.SortedFunc(maps.Keys(d.Advertisements), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }), time.Since(m.start)))
	m.noteMesh(d)
	m.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
	return refuse
}

func (m mouth) noteMesh(d bgp.Desired) {
	var told []netip.Prefix
	for p, ad := range d.Advertisements {
		if !ad.NoMesh {
			told = append(told, p)
		}
	}
	slices.SortFunc(told, netip.Prefix.Compare)
	if text := fmt.Sprint(told); len(m.meshed) == 0 || !strings.HasPrefix(m.meshed[len(m.meshed)-1], text) {
		m.meshed = append(m.meshed, fmt.Sprintf("%s %v", text, time.Since(m.start)))
	}
}

func (m mouth) Complete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.complete
}

func (m mouth) Status(context.Context) ([]bgp.PeerStatus, error) {
	return []bgp.PeerStatus{{Address: netip.MustParseAddr("192.0.2.2"), AS: 64512, Kind: plan.FromMesh, Host: "o", State: bgp.Established, Since: time.Now(), Received: 2, Used: 2, Sent: 1}}, nil
}

func (m mouth) Close(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, "closed")
	return nil
}

func (c *crossroads) with(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// expect compares what was done since the last call.
func (c *crossroads) expect(t *testing.T, name string, want ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(want, c.calls); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
	c.calls = nil
}

// expectSaid compares what the speaker was told since the last call.
func (c *crossroads) expectSaid(t *testing.T, name string, want ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(want, c.said); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
	c.said = nil
}

// Open implements hostKernel.
func (c *crossroads) Open([]string) (programming, error) { return c, nil }

// Links implements hostKernel.
func (*crossroads) Links([]string) (plan.Links, error) {
	return plan.Links{Links: []plan.Link{{Name: "eth0", Up: true, MTU: 1500, Uplink: true, Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}}}, nil
}

// FormerRoutes implements hostKernel.
func (c *crossroads) FormerRoutes() ([]plan.Route, error) { return c.former, nil }

// CarrierLosses implements hostKernel.
func (c *crossroads) CarrierLosses([]string) (map[string]uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return map[string]uint32{"eth0": c.losses}, nil
}

// startCrossroads runs a router that has received nothing yet, in a synctest bubble.
func startCrossroads(t *testing.T, prepare func(*crossroads)) *crossroads {
	c := &crossroads{start: time.Now(), ready: make(chan struct{}, 1)}
	c.disk.c = c
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	n := network{
		kernel: c,
		etcd: func() map[netip.Addr]bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return maps.Clone(c.etcd)
		},
		speaker: mouth{c},
		learned: c,
		state:   &c.disk,
	}
	c.Router = New(Config{Settings: defaults(),
		Node: "h", Logger: log, Problems: problems.New(log), Health: health.New("calico-test"), Metrics: NewMetrics(), Handover: NewHandover(mailbox.NewSignal()),
	}, n)
	prepare(c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- c.Run(ctx) }()
	go func() { ended <- c.RunBGP(ctx) }()
	go c.loop(ctx)
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("run: %v", err)
			}
		}
	})
	return c
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func testBlock(cidr, host string, revision int64) model.Entry {
	b := model.Block{CIDR: prefix(cidr), Affinity: host}
	for i := range b.Size() {
		b.Allocations = append(b.Allocations, model.Free)
		b.Unallocated = append(b.Unallocated, i)
	}
	return put(model.BlockKey{CIDR: b.CIDR}, b, revision)
}

func testPool(cidr string, mode model.EncapMode, revision int64) model.Entry {
	return put(model.PoolKey{CIDR: prefix(cidr)}, model.Pool{CIDR: prefix(cidr), VXLANMode: mode, IPIPMode: model.EncapNever, IPAM: true, BlockSize: 26}, revision)
}

func hostAddr(host, addr string, revision int64) model.Entry {
	return put(model.BGPHostKey{Host: host, Field: model.BGPHostIPv4}, model.Text(addr), revision)
}

// cluster returns this host, another, a pool with and one without encapsulation, and a block of each host in each.
func cluster() []model.Entry {
	return []model.Entry{
		put(model.ReadyKey{}, model.Ready(true), 1),
		put(model.HostMetadataKey{Host: "h"}, model.HostMetadata{}, 1), put(model.HostMetadataKey{Host: "o"}, model.HostMetadata{}, 1),
		hostAddr("h", "192.0.2.1", 1), hostAddr("o", "192.0.2.2", 1),
		testPool("10.1.0.0/16", model.EncapAlways, 1), testPool("10.2.0.0/16", model.EncapNever, 1),
		testBlock("10.1.0.0/26", "h", 1), testBlock("10.1.1.0/26", "o", 1),
		testBlock("10.2.0.0/26", "h", 1), testBlock("10.2.1.0/26", "o", 1),
	}
}

const (
	ownRoutes  = "blackhole 10.1.0.0/26, blackhole 10.2.0.0/26"
	throughTun = "10.1.1.0/26 via 192.0.2.2 dev vxlan.calico onlink"
	byBGP      = "10.2.1.0/26 via 192.0.2.2 dev eth0 src 192.0.2.1"
)

// defaults returns the settings of default parameters.
func defaults() Settings {
	p := params.Resolve().Params
	return Settings{Prefixes: p.InterfacePrefixes, Refresh: p.RefreshInterval, Routing: p.Routing()}
}

// newCrossroads runs a router that has seen the cluster.
func newCrossroads(t *testing.T, prepare func(*crossroads)) *crossroads {
	c := startCrossroads(t, prepare)
	c.handover.Configure(defaults())
	c.Update(model.Update{Revision: 1, Resync: true, Entries: cluster()})
	return c
}

func learnedFrom(host, cidr string) plan.Learned {
	a := netip.MustParseAddr(host)
	return plan.Learned{Prefix: prefix(cidr), Paths: []plan.Path{{NextHop: a, Peer: a}}}
}

// TestRouterWaits: nothing is done until etcd was read completely, is ready, and the loop has read its settings.
func TestRouterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCrossroads(t, func(*crossroads) {})
		c.expect(t, "nothing is known")
		c.handover.Configure(defaults())
		c.expect(t, "settings alone")
		c.Update(model.Update{Revision: 1, Resync: true, Entries: cluster()[1:]})
		c.expect(t, "etcd is not ready")
		c.Update(model.Update{Revision: 2, Entries: cluster()[:1]})
		c.expect(t, "etcd is ready", "whole ["+throughTun+", "+ownRoutes+"] 0s")
		c.expectSaid(t, "the speaker", "as 64512 neighbours [192.0.2.2] advertises [10.1.0.0/26 10.2.0.0/26] 0s")
		if n := c.heard; n == nil || n.MTU != 1450 || n.Tunnels.VXLANPort != 4789 || len(n.Tunnels.Hosts) != 1 {
			t.Errorf("the loop is told %+v", n)
		}
		if got := fmt.Sprint(c.heard.Blocks, c.heard.VXLAN); got != "[10.1.0.0/26 10.2.0.0/26] [192.0.2.1:4789]" {
			t.Errorf("the loop is told of its host: %s", got)
		}
	})
}

// TestRouterFollows: the router follows etcd and BGP, but not an etcd that was emptied.
func TestRouterFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(*crossroads) {})
		synctest.Wait()
		c.calls, c.said = nil, nil
		time.Sleep(time.Second)
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{testBlock("10.1.1.64/26", "o", 2)}})
		c.expect(t, "another host's block", "some [10.1.1.64/26 via 192.0.2.2 dev vxlan.calico onlink] 1s")
		c.with(func() { c.learned = []plan.Learned{learnedFrom("192.0.2.2", "10.2.1.0/26")} })
		c.ready <- struct{}{}
		c.expect(t, "a learned route", "some ["+byBGP+"] 1s")
		c.expectSaid(t, "nothing of that is the speaker's")
		c.Update(model.Update{Revision: 3, Entries: []model.Entry{put(model.LastStatusKey{Host: "o"}, model.Status{}, 3)}})
		c.expect(t, "the other host is dead", "some [no 10.1.1.0/26, no 10.1.1.64/26, nobody at 192.0.2.2] 1s")
		c.Update(model.Update{Revision: 4, Entries: []model.Entry{put(model.StatusKey{Host: "o"}, model.Status{}, 4)}})
		c.expect(t, "and lives", "some ["+throughTun+", 10.1.1.64/26 via 192.0.2.2 dev vxlan.calico onlink] 1s")
		for rev := range 5 {
			c.Update(model.Update{Revision: int64(rev) + 5, Entries: []model.Entry{put(model.LastStatusKey{Host: "o"}, model.Status{}, int64(rev)+5)}})
		}
		c.expect(t, "and reports again and again")
		c.Update(model.Update{Revision: 10, Resync: true})
		c.Update(model.Update{Revision: 11, Entries: []model.Entry{gone(model.BlockKey{CIDR: prefix("10.1.1.0/26")})}})
		c.expect(t, "etcd is empty")
		c.Update(model.Update{Revision: 12, Resync: true, Entries: cluster()})
		c.expect(t, "and is back", "some [no 10.1.1.64/26] 1s")
	})
}

// TestRouterWaitsForTheDead: a host's status may be missing for a while, as when hosts were cut off from etcd.
func TestRouterWaitsForTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(*crossroads) {})
		status := model.StatusKey{Host: "o"}
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{put(status, model.Status{}, 2), put(model.LastStatusKey{Host: "o"}, model.Status{}, 2)}})
		time.Sleep(time.Second)
		c.with(func() { c.calls = nil })
		c.Update(model.Update{Revision: 3, Entries: []model.Entry{gone(status)}})
		time.Sleep(4 * time.Second)
		c.Update(model.Update{Revision: 4, Entries: []model.Entry{put(status, model.Status{}, 4)}})
		time.Sleep(time.Minute)
		c.expect(t, "it lives")
		there := append(cluster(), put(model.LastStatusKey{Host: "o"}, model.Status{}, 4))
		c.Update(model.Update{Revision: 5, Resync: true, Entries: there})
		time.Sleep(4 * time.Second)
		c.Update(model.Update{Revision: 6, Resync: true, Entries: append(there, put(status, model.Status{}, 6))})
		time.Sleep(time.Minute)
		c.expect(t, "it lives, by a snapshot")
		c.Update(model.Update{Revision: 7, Entries: []model.Entry{gone(status)}})
		time.Sleep(time.Second)
		c.Update(model.Update{Revision: 8, Resync: true, Entries: there})
		time.Sleep(time.Minute)
		c.expect(t, "it is dead", "some [no 10.1.1.0/26, nobody at 192.0.2.2] 2m14s")
	})
}

// TestRouterRetains: what a former run learned stays until BGP has learned everything.
func TestRouterRetains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hop := []plan.Hop{{Gateway: netip.MustParseAddr("192.0.2.2"), Device: "eth0"}}
		c := newCrossroads(t, func(c *crossroads) {
			c.former = []plan.Route{
				{Destination: prefix("10.2.1.0/26"), Kind: plan.Unicast, Hops: hop, Source: netip.MustParseAddr("192.0.2.1")},
				{Destination: prefix("10.2.7.0/26"), Kind: plan.Unicast, Hops: hop},
			}
		})
		c.expect(t, "start", "whole ["+throughTun+", "+byBGP+", 10.2.7.0/26 via 192.0.2.2 dev eth0, "+ownRoutes+"] 0s")
		time.Sleep(time.Second)
		c.with(func() { c.learned = []plan.Learned{learnedFrom("192.0.2.2", "10.2.1.0/26")} })
		c.ready <- struct{}{}
		c.expect(t, "one is learned again: it is there already")
		c.with(func() { c.complete = true })
		c.ready <- struct{}{}
		c.expect(t, "the other is not", "some [no 10.2.7.0/26] 1s")
	})
}

// TestRouterBridges removes a pool's encapsulation: until BGP announces the blocks they are routed directly to their host, and for as long
// as others may take to see the change the tunnel still accepts packets. A new tunnel accepts them before any are sent.
func TestRouterBridges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const straight = "10.1.1.0/26 via 192.0.2.2 dev eth0 src 192.0.2.1"
		modes := func(c *crossroads, revision int64, mode model.EncapMode) {
			c.Update(model.Update{Revision: revision, Entries: []model.Entry{testPool("10.1.0.0/16", mode, revision)}})
		}
		c := newCrossroads(t, func(*crossroads) {})
		c.expect(t, "start", "whole ["+throughTun+", "+ownRoutes+"] 0s")
		modes(c, 2, model.EncapNever)
		c.expect(t, "no encapsulation", "some [10.1.1.0/26 via 192.0.2.2 dev eth0, nobody at 192.0.2.2] 0s")
		time.Sleep(time.Second)
		c.with(func() { c.learned = []plan.Learned{learnedFrom("192.0.2.2", "10.1.1.0/26")} })
		c.ready <- struct{}{}
		c.expect(t, "BGP says the same", "some ["+straight+"] 1s")
		c.with(func() { c.learned = []plan.Learned{{Prefix: prefix("10.1.1.0/26")}} })
		c.ready <- struct{}{}
		c.expect(t, "BGP takes it back", "some [no 10.1.1.0/26] 1s")
		modes(c, 3, model.EncapAlways)
		c.expect(t, "encapsulation", "some ["+throughTun+"] 1s")
		modes(c, 4, model.EncapNever)
		c.expect(t, "none", "some [10.1.1.0/26 via 192.0.2.2 dev eth0, nobody at 192.0.2.2] 1s")
		time.Sleep(9 * time.Second)
		c.expect(t, "the tunnel takes packets")
		c.with(func() {
			if c.heard.Tunnels.VXLANPort == 0 {
				t.Error("the firewall doesn't know the tunnel that is there")
			}
		})
		time.Sleep(51 * time.Second)
		c.expect(t, "BGP says nothing", "some [no tunnel] 11s", "some [no 10.1.1.0/26] 31s")
		c.with(func() {
			if c.heard.Tunnels.VXLANPort != 0 {
				t.Error("the firewall knows a tunnel that is gone")
			}
		})
		modes(c, 5, model.EncapAlways)
		time.Sleep(time.Second)
		c.expect(t, "encapsulation again", "some [vxlan.calico] 1m1s", "some ["+throughTun+"] 1m1.25s")
	})
}

// TestRouterAwaitsBGP removes a pool's encapsulation where a router leads to the other host: the route through the tunnel, whose address
// and other end stay, remains until BGP announces another, as long as other hosts accept packets from their tunnels.
func TestRouterAwaitsBGP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		modes := func(c *crossroads, revision int64, mode model.EncapMode) {
			c.Update(model.Update{Revision: revision, Entries: []model.Entry{testPool("10.1.0.0/16", mode, revision)}})
		}
		c := newCrossroads(t, func(*crossroads) {})
		router := netip.MustParseAddr("192.0.2.9")
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{
			hostAddr("o", "198.51.100.2", 2), put(model.BGPPeerKey{IP: router}, model.BGPPeer{IP: router, AS: 65001}, 2),
		}})
		time.Sleep(time.Second)
		c.with(func() { c.calls = nil })
		modes(c, 3, model.EncapNever)
		time.Sleep(time.Second)
		c.expect(t, "no encapsulation")
		c.with(func() { c.learned = []plan.Learned{learnedFrom(router.String(), "10.1.1.0/26")} })
		c.ready <- struct{}{}
		c.expect(t, "BGP tells", "some [10.1.1.0/26 via 192.0.2.9 dev eth0 src 192.0.2.1, nobody at 198.51.100.2] 2s")
		c.with(func() { c.learned = []plan.Learned{{Prefix: prefix("10.1.1.0/26")}} })
		c.ready <- struct{}{}
		modes(c, 4, model.EncapAlways)
		time.Sleep(time.Second)
		c.with(func() { c.calls = nil })
		modes(c, 5, model.EncapNever)
		time.Sleep(30 * time.Second)
		c.expect(t, "BGP says nothing", "some [no 10.1.1.0/26, nobody at 198.51.100.2] 8s", "some [no tunnel] 13s")
	})
}

// TestRouterOpens adds encapsulation to pools of both families, one after the other: each tunnel accepts packets before any are sent and
// before BGP withdraws its routes, even if everything is due to be compared with the kernel. What etcd says meanwhile follows.
func TestRouterOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool6 := func(mode model.EncapMode) model.Entry {
			p := prefix("fd00::/64")
			return put(model.PoolKey{CIDR: p}, model.Pool{CIDR: p, VXLANMode: mode, IPIPMode: model.EncapNever, IPAM: true, BlockSize: 122}, 2)
		}
		hostAddr6 := func(host, addr string) model.Entry {
			return put(model.BGPHostKey{Host: host, Field: model.BGPHostIPv6}, model.Text(addr), 2)
		}
		c := newCrossroads(t, func(*crossroads) {})
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{
			testPool("10.1.0.0/16", model.EncapNever, 2), pool6(model.EncapNever), testBlock("fd00::40/122", "h", 2), testBlock("fd00::80/122", "o", 2),
			hostAddr6("h", "2001:db8::1"), hostAddr6("o", "2001:db8::2"),
		}})
		time.Sleep(time.Minute - time.Second)
		c.with(func() { c.calls, c.said = nil, nil })
		c.Update(model.Update{Revision: 3, Entries: []model.Entry{testPool("10.1.0.0/16", model.EncapAlways, 3)}})
		time.Sleep(100 * time.Millisecond)
		c.kernelFabric.Do(func() { c.kernelFabric.Fail = errors.New("broken") }) // which has all compared
		c.Update(model.Update{Revision: 4, Entries: []model.Entry{pool6(model.EncapAlways)}})
		time.Sleep(100 * time.Millisecond)
		c.kernelFabric.Do(func() { c.kernelFabric.Fail = nil })
		c.Update(model.Update{Revision: 5, Entries: []model.Entry{testBlock("10.1.2.0/26", "o", 5)}})
		time.Sleep(500 * time.Millisecond)
		const through6 = "fd00::80/122 via fe80::6448:d7ff:fe0e:303b dev vxlan-v6.calico"
		c.expect(t, "two tunnels",
			"some [vxlan.calico] 59s", "some [vxlan.calico, vxlan-v6.calico] 59.1s",
			"whole [blackhole 10.1.0.0/26, blackhole 10.2.0.0/26, blackhole fd00::40/122] 59.2s",
			"some [10.1.1.0/26 via 192.0.2.2 dev vxlan.calico onlink, 10.1.2.0/26 via 192.0.2.2 dev vxlan.calico onlink, "+through6+"] 59.35s")
		const said = "as 64512 neighbours [192.0.2.2 2001:db8::2] advertises [10.1.0.0/26 10.2.0.0/26 fd00::40/122] "
		c.expectSaid(t, "BGP", said+"59s", said+"59.1s")
	})
}

// TestRouterWithdrawsLater adds encapsulation to pools whose tunnel exists already: routes follow at once, and BGP announces this host's
// blocks to the mesh until the others have had time to see the change in etcd.
func TestRouterWithdrawsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		modes := func(c *crossroads, pool string, mode model.EncapMode, revision int64) {
			c.Update(model.Update{Revision: revision, Entries: []model.Entry{testPool(pool, mode, revision)}})
		}
		c := newCrossroads(t, func(*crossroads) {})
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{testPool("10.3.0.0/16", model.EncapNever, 2), testBlock("10.3.0.0/26", "h", 2)}})
		time.Sleep(time.Minute - 2*time.Second)
		c.with(func() { c.calls, c.meshed = nil, c.meshed[len(c.meshed)-1:] })
		modes(c, "10.2.0.0/16", model.EncapAlways, 3)
		time.Sleep(time.Second)
		modes(c, "10.3.0.0/16", model.EncapAlways, 4)
		time.Sleep(500 * time.Millisecond)
		c.expect(t, "a pool more is encapsulated", "some [10.2.1.0/26 via 192.0.2.2 dev vxlan.calico onlink, vxlan.calico] 58s", "some [vxlan.calico] 59s")
		time.Sleep(time.Minute)
		modes(c, "10.2.0.0/16", model.EncapNever, 5)
		time.Sleep(time.Minute)
		modes(c, "10.2.0.0/16", model.EncapAlways, 6)
		time.Sleep(time.Second)
		modes(c, "10.2.0.0/16", model.EncapNever, 7)
		time.Sleep(time.Minute)
		modes(c, "10.3.0.0/16", model.EncapNever, 8)
		time.Sleep(time.Minute)
		modes(c, "10.2.0.0/16", model.EncapAlways, 9)
		time.Sleep(time.Second)
		modes(c, "10.3.0.0/16", model.EncapAlways, 10)
		time.Sleep(500 * time.Millisecond)
		modes(c, "10.2.0.0/16", model.EncapNever, 11) // what was to go first stays
		time.Sleep(time.Minute)
		c.with(func() {
			want := []string{"[10.2.0.0/26 10.3.0.0/26] 0s", "[10.3.0.0/26] 1m0s", "[] 1m1s", "[10.2.0.0/26] 1m59.5s", "[10.2.0.0/26 10.3.0.0/26] 4m0.5s", "[10.2.0.0/26] 5m3.5s"}
			if diff := cmp.Diff(want, c.meshed); diff != "" {
				t.Errorf("what the mesh is told (-want +got):\n%s", diff)
			}
		})
	})
}

// TestRouterRepairs: what others change is repaired, at once if the kernel reports it.
func TestRouterRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(*crossroads) {})
		whole := "whole [" + throughTun + ", " + ownRoutes + "] "
		c.expect(t, "start", whole+"0s")
		time.Sleep(31 * time.Second)
		c.expect(t, "audits that find nothing")
		for range 7 { // another program that doesn't give up
			c.kernelFabric.Tamper()
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Second)
		c.expect(t, "a fight", whole+"31s", whole+"31.02s", whole+"31.04s")
		c.kernelFabric.Do(func() { c.kernelFabric.Fail = errors.New("broken") })
		time.Sleep(32 * time.Second)
		c.expect(t, "a kernel that can't be read", whole+"1m0s", whole+"1m1s", whole+"1m3s")
		c.kernel.health.Turn() // there is no loop here
		if got := c.kernel.health.Unready(); !strings.Contains(got, "routes to other hosts: broken") {
			t.Errorf("health: %q", got)
		}
		c.kernelFabric.Do(func() {
			c.kernelFabric.Fail, c.kernelFabric.Lacking = nil, []fabric.Problem{{Subject: "10.1.1.0/26", Err: errors.New("no")}}
		})
		time.Sleep(5 * time.Second)
		c.expect(t, "a route that the kernel refuses", whole+"1m7s")
		if got := c.reports.ledger.All(); len(got) != 1 || got[0].Reason != "no" || got[0].Kind != problemKernel {
			t.Errorf("problems: %v", got)
		}
		c.kernelFabric.Do(func() { c.kernelFabric.Lacking = nil })
		time.Sleep(time.Minute)
		if got := c.reports.ledger.All(); len(got) != 0 {
			t.Errorf("problems: %v", got)
		}
	})
}

// TestRouterProblems logs a plan's problem, and takes it back.
func TestRouterProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(*crossroads) {})
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{
			put(model.HostMetadataKey{Host: "x"}, model.HostMetadata{}, 2), hostAddr("x", "192.0.2.2", 2),
			put(model.BGPGlobalASKey{}, errors.New("not a number"), 2), testPool("10.3.0.0/16", model.EncapNever, 2),
			put(model.PoolKey{CIDR: prefix("10.4.0.0/16")}, errors.New("the loop's to report"), 2),
		}})
		time.Sleep(settling)
		synctest.Wait()
		var got []string
		for _, p := range c.reports.ledger.All() {
			got = append(got, p.Kind+" "+p.Path)
		}
		want := []string{"bad-value /calico/bgp/v1/global/as_num", "same-address /calico/bgp/v1/host/x/ip_addr_v4"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		c.Update(model.Update{Revision: 3, Entries: []model.Entry{hostAddr("x", "192.0.2.3", 3), gone(model.BGPGlobalASKey{})}})
		time.Sleep(settling)
		synctest.Wait()
		if got := c.reports.ledger.All(); len(got) != 0 {
			t.Errorf("once they are in order: %v", got)
		}
	})
}

// TestRouterSettles makes BGP contradict etcd, for a moment and for longer.
func TestRouterSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(*crossroads) {})
		learn := func(cidr string, there bool) {
			l := learnedFrom("192.0.2.2", cidr)
			if !there {
				l.Paths = nil
			}
			c.with(func() { c.learned = append(c.learned, l) })
			c.ready <- struct{}{}
			synctest.Wait()
		}
		want := func(when string, want ...string) {
			t.Helper()
			var got []string
			for _, p := range c.reports.ledger.All() {
				got = append(got, p.Kind+" "+p.Path)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		later := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		learn("10.2.1.5/32", true) // of the other host's block, and etcd knows of no borrower
		want("at once")
		later(settling / 2)
		learn("10.2.1.5/32", false)
		later(2 * settling)
		want("for a moment")
		learn("10.2.1.6/32", true)
		later(settling)
		want("for long", "refused-route 10.2.1.6/32")
		learn("10.2.1.6/32", false)
		later(settling)
		want("it is over")
	})
}

// leftoverNotes records what the router notes about leftovers.
type leftoverNotes struct {
	mu     sync.Mutex
	blocks []netip.Prefix
	notes  int
}

func (l *leftoverNotes) Note(_ time.Time, blocks []netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocks, l.notes = blocks, l.notes+1
}

// TestRouterNotesLeftovers: at each audit the router notes the blocks from which nothing may be allocated, and none while that is unknown.
func TestRouterNotesLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notes leftoverNotes
		c := newCrossroads(t, func(c *crossroads) { c.leftover = &notes })
		expect := func(name string, want ...netip.Prefix) {
			t.Helper()
			time.Sleep(defaults().Refresh)
			synctest.Wait()
			notes.mu.Lock()
			defer notes.mu.Unlock()
			if notes.notes == 0 || !slices.Equal(notes.blocks, want) {
				t.Errorf("%s: note %d is of %v, want %v", name, notes.notes, notes.blocks, want)
			}
		}
		expect("blocks of pools")
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{testBlock("10.9.0.0/26", "h", 2), testBlock("10.9.0.64/26", "o", 2)}})
		expect("one in no pool", prefix("10.9.0.0/26"))
		c.Update(model.Update{Revision: 3, Entries: []model.Entry{put(model.ReadyKey{}, model.Ready(false), 3)}})
		expect("not ready")
		c.Update(model.Update{Revision: 4, Entries: []model.Entry{put(model.ReadyKey{}, model.Ready(true), 4), testPool("10.9.0.0/16", "", 4)}})
		expect("its pool")
	})
}

// TestPeersForTheFirewall: the firewall keeps strangers from the speaker while it listens, and from no other program on its port.
func TestPeersForTheFirewall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(c *crossroads) { c.refuse = &bgp.ListenError{Port: 179, Err: errors.New("in use")} })
		expect := func(name string, want policy.BGP) {
			t.Helper()
			time.Sleep(2 * greatestPause)
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			if diff := cmp.Diff(want, c.heard.Tunnels.BGP, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		peers := policy.BGP{Port: 179, Peers: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}
		expect("another program has the port", policy.BGP{})
		c.with(func() { c.refuse = errors.New("a password can't be read") })
		expect("it listens", peers)
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{put(model.HostMetadataKey{Host: "p"}, model.HostMetadata{}, 2), hostAddr("p", "192.0.2.3", 2)}})
		peers.Peers = append(peers.Peers, netip.MustParseAddr("192.0.2.3"))
		expect("a peer comes", peers)
		some := defaults()
		some.Routing.Listen = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		c.handover.Configure(some)
		expect("another program may listen at other addresses", policy.BGP{})
		c.handover.Configure(defaults())
		expect("it listens at all", peers)
		c.with(func() { c.refuse = &bgp.ListenError{Port: 1179, Err: errors.New("in use"), Stays: true} })
		c.Update(model.Update{Revision: 3, Entries: []model.Entry{testBlock("10.2.0.64/26", "h", 3)}})
		expect("it isn't known at which port it listens", policy.BGP{})
	})
}

// TestPeersBeforeTheSpeaker: the rules that keep strangers from the speaker exist before it listens, and stay through a restart.
func TestPeersBeforeTheSpeaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c := newCrossroads(t, func(c *crossroads) { c.hang = hang })
		time.Sleep(time.Second)
		synctest.Wait()
		c.with(func() {
			if got := c.heard.Tunnels.BGP; got.Port != 179 || len(got.Peers) != 1 {
				t.Errorf("the firewall hears of %v before the speaker listens", got)
			}
		})
		close(hang)
	})
}

// TestBGPUpdater covers a speaker that fails, one that hangs, and the end.
func TestBGPUpdater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(c *crossroads) { c.refuse = errors.New("no port") })
		time.Sleep(8 * time.Second)
		text := "as 64512 neighbours [192.0.2.2] advertises [10.1.0.0/26 10.2.0.0/26] "
		c.expectSaid(t, "a speaker that fails", text+"0s", text+"1s", text+"3s", text+"7s")
		if err := c.bgp.failure(); err == nil || err.Error() != "no port" {
			t.Errorf("trouble: %v", err)
		}
		if all := c.reports.ledger.All(); len(all) != 1 || all[0].Kind != problems.Host || all[0].Path != "BGP" || all[0].Reason != "no port" {
			t.Errorf("shown: %v", all)
		}
		c.with(func() { c.refuse, c.hang, c.calls = nil, make(chan struct{}), nil })
		c.Update(model.Update{Revision: 2, Entries: []model.Entry{testBlock("10.2.0.64/26", "h", 2)}})
		c.expect(t, "routes don't wait for a speaker that hangs", "some [blackhole 10.2.0.64/26] 8s")
		c.Update(model.Update{Revision: 3, Entries: []model.Entry{testBlock("10.2.0.128/26", "h", 3)}})
		c.expect(t, "nor do these", "some [blackhole 10.2.0.128/26] 8s")
		c.with(func() {
			close(c.hang)
			c.hang = nil
		})
		c.expectSaid(t, "then it is told the latest",
			"as 64512 neighbours [192.0.2.2] advertises [10.1.0.0/26 10.2.0.0/26 10.2.0.64/26] 8s",
			"as 64512 neighbours [192.0.2.2] advertises [10.1.0.0/26 10.2.0.0/26 10.2.0.64/26 10.2.0.128/26] 8s")
		if err := c.bgp.failure(); err != nil || len(c.reports.ledger.All()) != 0 {
			t.Errorf("trouble: %v, shown: %v", err, c.reports.ledger.All())
		}
	})
}

func put(key model.Key, value any, revision int64) model.Entry {
	e := model.Entry{Path: key.Path(), Key: key, Revision: revision, Created: revision, Value: value}
	if err, invalid := value.(error); invalid {
		e.Value, e.Err = nil, err
	}
	return e
}

func gone(key model.Key) model.Entry { return model.Entry{Path: key.Path(), Key: key} }
