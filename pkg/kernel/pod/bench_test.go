// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/test/netns"
)

// BenchmarkAdd is the kernel's part of a CNI ADD.
func BenchmarkAdd(b *testing.B) {
	for name, with := range map[string][]netip.Addr{"IPv4": addrs("10.0.0.1"), "both": addrs("10.0.0.1", "fd00::1")} {
		b.Run(name, func(b *testing.B) {
			netns.Host(b, func() {
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					made := newPod(b)
					b.StartTimer()
					ns, err := OpenNamespace("/proc/self/fd/" + fdOf(made))
					if err != nil {
						b.Fatal(err)
					}
					if _, _, err := CreateVeth(ns, Veth{HostName: fmt.Sprintf("cali%d", i), PodName: "eth0", MTU: 1450, Alias: "calico x"}); err != nil {
						b.Fatal(err)
					}
					if err := Configure(ns, Net{IfName: "eth0", Addrs: with, DefaultV4: true, DefaultV6: len(with) > 1}); err != nil {
						b.Fatal(err)
					}
					ns.Close()
				}
			})
		})
	}
}

// BenchmarkDelete is the kernel's part of a CNI DEL.
func BenchmarkDelete(b *testing.B) {
	netns.Host(b, func() {
		ns := newPod(b)
		for b.Loop() {
			b.StopTimer()
			if _, _, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0"}); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if err := link.Delete("cali1"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkOpenNamespace(b *testing.B) {
	ns := newPod(b)
	path := fmt.Sprintf("/proc/self/fd/%d", ns.Fd())
	for b.Loop() {
		n, err := OpenNamespace(path)
		if err != nil {
			b.Fatal(err)
		}
		n.Close()
	}
}
