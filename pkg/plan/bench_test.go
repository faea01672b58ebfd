// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// blocksPerHost is what a host of the large cluster holds.
const blocksPerHost = 10

// A cluster is many hosts with ten blocks each, half of whose addresses are
// taken; "h0" is ours.
type cluster struct {
	pool     model.Pool
	revision int64
}

func (c *cluster) entry(k model.Key, v any) model.Entry {
	c.revision++
	e := model.Entry{Path: k.Path(), Key: k, Value: v}
	if v != nil {
		e.Revision, e.Created = c.revision, c.revision
	}
	return e
}

func hostName(i int) string { return fmt.Sprint("h", i) }

func hostAddrOf(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 18, byte((i + 1) >> 8), byte(i + 1)})
}

func (c *cluster) block(host, i int, taken ...int) model.Entry {
	n := host*blocksPerHost + i
	a := netip.AddrFrom4([4]byte{10, 65 + byte(n>>10), byte(n >> 2), byte(n << 6)})
	b := model.Block{CIDR: netip.PrefixFrom(a, 26), Affinity: hostName(host)}
	for i := range b.Size() {
		if i%2 == 1 && len(taken) == 0 {
			b.Allocations = append(b.Allocations, len(b.Attributes))
			b.Attributes = append(b.Attributes, model.Attributes{HandleID: fmt.Sprint("net.", n, i), Secondary: map[string]string{"node": b.Affinity}})
		} else {
			b.Allocations = append(b.Allocations, model.Free)
			b.Unallocated = append(b.Unallocated, i)
		}
	}
	return c.entry(model.BlockKey{CIDR: b.CIDR}, b)
}

func (c *cluster) entries(hosts int) []model.Entry {
	c.pool.CIDR, c.pool.IPAM = netip.MustParsePrefix("10.64.0.0/10"), true
	all := []model.Entry{c.entry(model.PoolKey{CIDR: c.pool.CIDR}, c.pool)}
	for h := range hosts {
		all = append(all, c.entry(model.HostMetadataKey{Host: hostName(h)}, model.HostMetadata{}), c.host(h),
			c.entry(model.StatusKey{Host: hostName(h)}, model.Status{}))
		for i := range blocksPerHost {
			all = append(all, c.block(h, i))
		}
	}
	return all
}

func (c *cluster) host(h int) model.Entry {
	return c.entry(model.BGPHostKey{Host: hostName(h), Field: model.BGPHostIPv4}, model.Text(hostAddrOf(h).String()))
}

// learned is what BGP brings of a host's blocks.
func (c *cluster) learned(h int) []Learned {
	var all []Learned
	for i := range blocksPerHost {
		p := c.block(h, i, -1).Key.(model.BlockKey).CIDR
		all = append(all, Learned{p, []Path{{NextHop: hostAddrOf(h), Peer: hostAddrOf(h)}}})
	}
	return all
}

func benchLinks() Links {
	return Links{Links: []Link{{Name: "eth0", Up: true, MTU: 1500, Uplink: true, Addrs: []netip.Prefix{netip.MustParsePrefix("172.18.0.1/16")}}}}
}

// loaded is an engine that has told everything of a cluster with that many routes.
func loaded(b testing.TB, mode model.EncapMode, routes int) (*cluster, *engine) {
	b.Helper()
	c := &cluster{pool: model.Pool{VXLANMode: mode}}
	e := newEngine("h0", Settings{})
	e.SetLinks(benchLinks())
	hosts := routes / blocksPerHost
	e.Update(c.entries(hosts)...)
	if mode == model.EncapNever {
		for h := 1; h < hosts; h++ {
			e.Learn(c.learned(h)...)
		}
	}
	if n := len(e.compute().Routes); n != routes {
		b.Fatalf("%d routes, want %d", n, routes)
	}
	runtime.GC()
	return c, e
}

func each(b *testing.B, mode model.EncapMode, steps func(c *cluster, e *engine) []func()) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			c, e := loaded(b, mode, n)
			todo := steps(c, e)
			i := 0
			for b.Loop() {
				todo[i%len(todo)]()
				if e.compute().Empty() {
					b.Fatal("nothing changed")
				}
				i++
			}
		})
	}
}

func toggle(e *engine, entries ...model.Entry) []func() {
	var steps []func()
	for _, entry := range entries {
		steps = append(steps, func() { e.Update(entry) })
	}
	return steps
}

// BenchmarkBlock is a block of another host that comes or goes.
func BenchmarkBlock(b *testing.B) {
	each(b, model.EncapAlways, func(c *cluster, e *engine) []func() {
		block := c.block(5, 3)
		gone := c.entry(block.Key, nil)
		return toggle(e, gone, block)
	})
}

// BenchmarkBorrowed is an endpoint that comes or goes with an address of another
// host's block.
func BenchmarkBorrowed(b *testing.B) {
	each(b, model.EncapAlways, func(c *cluster, e *engine) []func() {
		key := model.WorkloadEndpointKey{Host: "h3", Orchestrator: "k8s", Workload: "w", Endpoint: "eth0"}
		a := c.block(5, 3).Key.(model.BlockKey).CIDR.Addr()
		w := model.WorkloadEndpoint{State: model.StateActive, IPv4Nets: []netip.Prefix{single(a)}}
		return toggle(e, c.entry(key, w), c.entry(key, nil))
	})
}

// BenchmarkHost is a host that dies or comes back, with its ten routes.
func BenchmarkHost(b *testing.B) {
	each(b, model.EncapAlways, func(c *cluster, e *engine) []func() {
		status, last := model.StatusKey{Host: "h3"}, model.LastStatusKey{Host: "h3"}
		e.Update(c.entry(last, model.Status{}))
		e.compute()
		return toggle(e, c.entry(status, nil), c.entry(status, model.Status{}))
	})
}

// BenchmarkLearned is a route that BGP learns or loses.
func BenchmarkLearned(b *testing.B) {
	each(b, model.EncapNever, func(c *cluster, e *engine) []func() {
		l := c.learned(5)[3]
		return []func(){func() { e.Learn(Learned{Prefix: l.Prefix}) }, func() { e.Learn(l) }}
	})
}

// BenchmarkFlap is an uplink that goes down or comes up where nothing goes through
// it directly.
func BenchmarkFlap(b *testing.B) {
	each(b, model.EncapAlways, func(c *cluster, e *engine) []func() {
		up, down := benchLinks(), benchLinks()
		down.Links[0].Up, down.Links[0].MTU = false, 1400
		return []func(){func() { e.SetLinks(down) }, func() { e.SetLinks(up) }}
	})
}

// BenchmarkMode is a pool whose encapsulation changes: every route does.
func BenchmarkMode(b *testing.B) {
	each(b, model.EncapAlways, func(c *cluster, e *engine) []func() {
		cross := c.pool
		cross.VXLANMode = model.EncapCrossSubnet
		return toggle(e, c.entry(model.PoolKey{CIDR: c.pool.CIDR}, cross), c.entry(model.PoolKey{CIDR: c.pool.CIDR}, c.pool))
	})
}

// BenchmarkInitial is from nothing to the first Flush.
func BenchmarkInitial(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			c := &cluster{pool: model.Pool{VXLANMode: model.EncapAlways}}
			entries := c.entries(n / blocksPerHost)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var e *engine
			for b.Loop() {
				e = newEngine("h0", Settings{})
				e.SetLinks(benchLinks())
				e.Update(entries...)
				e.compute()
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-live")
			runtime.KeepAlive(e)
			runtime.KeepAlive(entries)
		})
	}
}
