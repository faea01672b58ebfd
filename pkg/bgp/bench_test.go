// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/plan"
)

// block is number i of many.
func block(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1 + byte(i>>10), byte(i >> 2), byte(i) << 6}), 26)
}

// BenchmarkAdvertise measures the time from Apply with one more advertisement until a neighbour that has learned many already
// learns it.
func BenchmarkAdvertise(b *testing.B) {
	for _, many := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("%d", many), func(b *testing.B) {
			f := newFabric(b)
			one, two, other := f.host(b, 1), f.host(b, 2), f.host(b, 3)
			d1, d2, d3 := one.desired(), two.desired(), other.desired()
			d2.Speaker.Import = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
			one.meets(d1, two)
			two.meets(d2, one)
			two.meets(d2, other)
			other.meets(d3, two)
			for i := range many {
				d3.Advertisements[block(i)] = plan.Advertisement{Prefix: block(i), NextHop: other.v4}
			}
			s1, s2 := one.start(b), two.start(b)
			s2.apply(d2)
			s1.apply(d1)
			other.start(b).apply(d3)
			s2.mustBe("10.0.0.1 established", "10.0.0.3 established")
			becomes(b, "learned", many, func() int { return len(s2.look().Learned) })
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}), 32)
				d1.Advertisements[p] = plan.Advertisement{Prefix: p, NextHop: one.v4}
				learned := make(chan time.Time, 1)
				go func() { learned <- s2.ask(order{Do: "await", Prefix: p}).At }()
				began := s1.apply(d1)
				took = append(took, (<-learned).Sub(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/learned")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkLearn measures how long 5,000 prefixes from one neighbour take, from the session being up to the last prefix.
func BenchmarkLearn(b *testing.B) {
	const many = 5000
	f := newFabric(b)
	one, two := f.host(b, 1), f.host(b, 2)
	d1, d2 := one.desired(), two.desired()
	d2.Speaker.Import = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	one.meets(d1, two)
	two.meets(d2, one)
	s1, s2 := one.start(b), two.start(b)
	s2.apply(d2)
	s1.apply(d1)
	s2.mustBe("10.0.0.1 established")
	for i := range many {
		d1.Advertisements[block(i)] = plan.Advertisement{Prefix: block(i), NextHop: one.v4}
	}
	var took []time.Duration
	before := s2.ask(order{Do: "usage"})
	for b.Loop() {
		began := s1.apply(d1)
		for len(s2.look().Learned) < many {
			runtime.Gosched()
		}
		took = append(took, time.Since(began))
		if len(took) == 1 {
			after := s2.ask(order{Do: "usage"})
			b.ReportMetric(float64(after.Memory-before.Memory)/many, "bytes/prefix")
		}
		none := d1
		none.Advertisements = nil
		s1.apply(none)
		becomes(b, "withdrawn", 0, func() int { return len(s2.look().Learned) })
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "ms/learned")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdle measures a speaker with 50 neighbours in the mesh, which have 10 blocks each, while nothing happens: CPU per
// second, and memory.
func BenchmarkIdle(b *testing.B) {
	const neighbours = 50
	f := newFabric(b)
	us := f.host(b, 1)
	d := us.desired()
	d.Speaker.HoldTime, d.Speaker.KeepaliveTime = 90*time.Second, 30*time.Second
	d.Speaker.Import = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	s := us.start(b)
	s.apply(d)
	empty := s.ask(order{Do: "usage"})
	for n := range neighbours {
		h := f.host(b, n+2)
		us.meets(d, h)
		dh := h.desired()
		dh.Speaker.HoldTime, dh.Speaker.KeepaliveTime = d.Speaker.HoldTime, d.Speaker.KeepaliveTime
		h.meets(dh, us)
		for i := range 10 {
			p := block(n*10 + i)
			dh.Advertisements[p] = plan.Advertisement{Prefix: p, NextHop: h.v4}
		}
		h.start(b).apply(dh)
	}
	s.apply(d)
	becomes(b, "learned", neighbours*10, func() int { return len(s.look().Learned) })
	before := s.ask(order{Do: "usage"})
	began := time.Now()
	<-time.After(30 * time.Second)
	after := s.ask(order{Do: "usage"})
	b.ReportMetric(float64((after.CPU-before.CPU).Microseconds())/time.Since(began).Seconds(), "µs-CPU/s")
	b.ReportMetric(float64(after.Memory-empty.Memory)/1e6, "MB")
	b.ReportMetric(float64(empty.Memory)/1e6, "MB-empty")
	b.ReportMetric(0, "ns/op")
}
