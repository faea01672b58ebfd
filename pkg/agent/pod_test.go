// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/model"
)

// testPod is a workload's namespace with its endpoint.
type testPod struct {
	host *host
	ns   *pod.Namespace
	key  model.WorkloadEndpointKey
	spec model.WorkloadEndpoint
	echo *net.UDPConn // answers what it gets, in the pod
}

// newPod creates a namespace and an endpoint for it, but neither the veth nor the key in etcd.
func (h *host) newPod(n int) *testPod {
	h.Helper()
	p := &testPod{host: h}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		made <- p.make()
	}()
	if err := <-made; err != nil {
		h.Fatal(err)
	}
	p.key = model.WorkloadEndpointKey{Host: h.name, Orchestrator: "cni", Workload: fmt.Sprintf("c%d", n), Endpoint: "eth0"}
	v4, v6 := podAddrs(n)
	p.spec = model.WorkloadEndpoint{
		State: model.StateActive, Name: fmt.Sprintf("cali%d", n), MAC: model.MAC{2, 0, 0, 0, byte(n >> 8), byte(n)},
		IPv4Nets: []netip.Prefix{netip.PrefixFrom(v4, 32)}, IPv6Nets: []netip.Prefix{netip.PrefixFrom(v6, 128)},
	}
	return p
}

// addPod creates a pod and waits until the agent has programmed it.
func (h *host) addPod(n int) *testPod {
	h.Helper()
	p := h.newPod(n)
	p.wire()
	h.mustPass(p.key, p.put())
	return p
}

func podAddrs(n int) (v4, v6 netip.Addr) {
	return netip.AddrFrom4([4]byte{10, 65, byte(n >> 8), byte(n)}), netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(n >> 8), 15: byte(n)})
}

func (p *testPod) make() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	ns, err := pod.OpenNamespace("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	p.ns = ns
	p.host.Cleanup(ns.Close)
	p.echo, err = net.ListenUDP("udp", &net.UDPAddr{Port: 7})
	if err != nil {
		return err
	}
	p.host.Cleanup(func() { _ = p.echo.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := p.echo.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = p.echo.WriteToUDPAddrPort(buf[:n], from) // a loss is found by who asked
		}
	}()
	return nil
}

// wire creates the veth and configures the pod.
func (p *testPod) wire() {
	p.host.Helper()
	mac, _, err := pod.CreateVeth(p.ns, pod.Veth{HostName: p.spec.Name, PodName: "eth0", MTU: 1450, PodMAC: p.spec.MAC, Alias: "calico test"})
	if err != nil {
		p.host.Fatal(err)
	}
	p.host.Cleanup(p.unwire)
	p.spec.MAC = mac
	err = pod.Configure(p.ns, pod.Net{
		IfName: "eth0", Addrs: []netip.Addr{p.spec.IPv4Nets[0].Addr(), p.spec.IPv6Nets[0].Addr()}, DefaultV4: true, DefaultV6: true,
	})
	if err != nil {
		p.host.Fatal(err)
	}
	// Until the kernel has reported both ends as up (linkwatch) it drops what the host sends.
	p.host.until("the pod's link has its carrier", func() bool {
		l, err := link.Find(p.spec.Name)
		if err != nil {
			p.host.Fatal(err)
		}
		return l.Running
	})
}

func (p *testPod) unwire() { _ = link.Delete(p.spec.Name) }

// put writes the endpoint to etcd.
func (p *testPod) put() int64 {
	p.host.Helper()
	return p.host.put(p.key, p.spec)
}

// statusKey returns the key of the pod's status.
func (p *testPod) statusKey() model.WorkloadStatusKey { return model.WorkloadStatusKey(p.key) }
