// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// manyEndpoints creates n veths, all into one namespace, and returns endpoints for them.
func manyEndpoints(tb testing.TB, n int) []Endpoint {
	tb.Helper()
	ns := pods.New(tb)
	endpoints := make([]Endpoint, n)
	for i := range endpoints {
		name := fmt.Sprintf("cali%d", i)
		mac, _, err := pod.CreateVeth(ns, pod.Veth{HostName: name, PodName: fmt.Sprintf("eth%d", i), Alias: "calico " + name})
		if err != nil {
			tb.Fatal(err)
		}
		endpoints[i] = Endpoint{Interface: name, MAC: mac, Active: true, Addrs: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 65, byte(i >> 8), byte(i)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}),
		}}
	}
	return endpoints
}

const many = 1000

// BenchmarkApplyCold programs 1,000 endpoints from nothing.
func BenchmarkApplyCold(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		netns.Host(b, func() {
			endpoints := manyEndpoints(b, many)
			h := newHostPath(b)
			b.StartTimer()
			r := mustApply(b, h, endpoints...)
			b.StopTimer()
			b.ReportMetric(float64(r.Writes), "writes/op")
		})
		b.StartTimer()
	}
}

// BenchmarkApplyAgain checks 1,000 endpoints that are as they should be.
func BenchmarkApplyAgain(b *testing.B) {
	netns.Host(b, func() {
		endpoints := manyEndpoints(b, many)
		h := newHostPath(b)
		mustApply(b, h, endpoints...)
		b.ReportAllocs()
		for b.Loop() {
			mustApply(b, h, endpoints...)
		}
	})
}

// BenchmarkApplySome programs one new endpoint beside 1,000.
func BenchmarkApplySome(b *testing.B) {
	netns.Host(b, func() {
		endpoints := manyEndpoints(b, many)
		one := endpoints[many/2]
		h := newHostPath(b)
		mustApply(b, h, endpoints...)
		for b.Loop() {
			b.StopTimer()
			gone, err := h.ApplySome(context.Background(), nil, []Endpoint{one})
			if err != nil || len(gone.Problems) > 0 {
				b.Fatal(err, gone.Problems)
			}
			b.StartTimer()
			r, err := h.ApplySome(context.Background(), []Endpoint{one}, nil)
			if err != nil {
				b.Fatal(err)
			}
			if r.Writes == 0 {
				b.Fatal("nothing was written")
			}
			mustBeProgrammed(b, r)
		}
	})
}
