// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"net/netip"
	"testing"
)

func BenchmarkAdd(b *testing.B) {
	inHost(b, func() {
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			ns := newPod(b)
			path := ns.file
			_ = path
			b.StartTimer()
			if _, _, err := CreateVeth(ns, Veth{HostName: fmt.Sprintf("cali%d", i), PodName: "eth0", MTU: 1450, Alias: "calico x"}); err != nil {
				b.Fatal(err)
			}
			if err := ConfigurePod(ns, PodNet{IfName: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, DefaultV4: true, DefaultV6: true}); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			ns.Close()
			b.StartTimer()
		}
	})
}

func BenchmarkOpenNamespace(b *testing.B) {
	ns := newPod(b)
	path := fmt.Sprintf("/proc/self/fd/%d", ns.file.Fd())
	for b.Loop() {
		n, err := OpenNamespace(path)
		if err != nil {
			b.Fatal(err)
		}
		n.Close()
	}
}
