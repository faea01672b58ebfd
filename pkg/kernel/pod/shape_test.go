// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/test/netns"
	"github.com/vishvananda/netlink"
)

// TestShape sets the lowest and the highest possible rates in the kernel, with small and large MTUs.
func TestShape(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		for _, rate := range []uint64{1_000, 8_000_000, 10_000_000_000, 1_000_000_000_000_000} {
			for _, mtu := range []int{68, 1500, 65535} {
				_, undo, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0", MTU: mtu, Ingress: rate, Egress: rate})
				if err != nil {
					t.Fatalf("%d bit/s, MTU %d: %v", rate, mtu, err)
				}
				check := func(end, name string) {
					l, err := netlink.LinkByName(name)
					if err != nil {
						t.Fatal(err)
					}
					all, err := netlink.QdiscList(l)
					if err != nil || len(all) != 1 {
						t.Fatalf("%s's end: %v, %v", end, all, err)
					}
					if got, ok := all[0].(*netlink.Tbf); !ok || got.Rate != rate/8 || got.Limit < uint32(mtu) || got.Buffer == 0 {
						t.Errorf("%d bit/s, MTU %d, %s's end: %+v", rate, mtu, end, all[0])
					}
				}
				check("host", "cali1")
				netns.Within(t, ns, func() { check("pod", "eth0") })
				if err := undo(); err != nil {
					t.Fatal(err)
				}
			}
		}
		// Each end alone.
		_, undo, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0", Egress: 1000})
		if err != nil {
			t.Fatal(err)
		}
		l, err := netlink.LinkByName("cali1")
		if err != nil {
			t.Fatal(err)
		}
		if all, err := netlink.QdiscList(l); err != nil || len(all) != 1 || all[0].Type() == "tbf" {
			t.Errorf("the host's end: %v, %v", all, err)
		}
		if err := undo(); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkShaped reports how much of a TCP stream arrives, at the rate that a workload may send or receive.
func BenchmarkShaped(b *testing.B) {
	for _, rate := range []uint64{10_000_000, 1_000_000_000} {
		for _, sends := range []bool{true, false} {
			b.Run(fmt.Sprintf("%dMbit/sends=%t", rate/1_000_000, sends), func(b *testing.B) {
				netns.Host(b, func() { shaped(b, rate, sends) })
			})
		}
	}
}

func shaped(b *testing.B, rate uint64, sends bool) {
	ns := newPod(b)
	_, undo, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0", MTU: 1500, Ingress: rate, Egress: rate})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = undo() }()
	listener, err := net.Listen("tcp6", fmt.Sprintf("[%s%%cali1]:0", link.HostGatewayLL()))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	var inPod net.Conn
	netns.Within(b, ns, func() {
		inPod, err = net.Dial("tcp6", fmt.Sprintf("[%s%%eth0]:%d", link.HostGatewayLL(), listener.Addr().(*net.TCPAddr).Port))
	})
	if err != nil {
		b.Fatal(err)
	}
	onHost, err := listener.Accept()
	if err != nil {
		b.Fatal(err)
	}
	from, to := onHost, inPod
	if sends {
		from, to = inPod, onHost
	}
	go func() {
		chunk := make([]byte, 64<<10)
		for {
			if _, err := from.Write(chunk); err != nil {
				return
			}
		}
	}()
	defer func() { _, _ = inPod.Close(), onHost.Close() }()
	second := func() int64 {
		_ = to.SetReadDeadline(time.Now().Add(time.Second))
		n, _ := io.Copy(io.Discard, to)
		return n
	}
	second() // past the first burst
	var total int64
	for b.Loop() {
		total += second()
	}
	b.ReportMetric(float64(total)*8/float64(b.N)/float64(rate)*100, "%ofrate")
}
