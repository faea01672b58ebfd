// SPDX-License-Identifier: Apache-2.0

// Package pod is what the CNI plugin does to a pod: it creates the veth between its network namespace and the host, sets the addresses and
// routes in it, and reads them back.
//
// Functions work in the network namespace of the calling thread, which is the host's. A Namespace is the pod's, whichever thread uses it,
// and no thread is left in another namespace.
package pod

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// Net describes what Configure sets in the workload's namespace.
type Net struct {
	IfName               string
	Addrs                []netip.Addr // each alone: /32 or /128
	Routes               []Route      // besides the default
	DefaultV4, DefaultV6 bool         // a default route by the host end
	IPForward            bool         // the workload forwards packets
}

// families reports which families the workload uses.
func (p Net) families() (v4, v6 bool) {
	v4, v6 = p.DefaultV4, p.DefaultV6
	for _, a := range p.Addrs {
		v4, v6 = v4 || a.Is4(), v6 || a.Is6()
	}
	for _, r := range p.Routes {
		v4, v6 = v4 || r.Dst.Addr().Is4(), v6 || r.Dst.Addr().Is6()
	}
	return v4, v6
}

func (p Net) check() error {
	if err := link.CheckName(p.IfName); err != nil {
		return err
	}
	for _, a := range p.Addrs {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			return fmt.Errorf("%s is not an address that a workload can have", a)
		}
	}
	for _, r := range p.Routes {
		if err := r.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Configure sets the addresses and routes of the workload's end, which CreateVeth created. It may be repeated. The workload's other links
// take precedence: their routes stay first, and enabled forwarding stays enabled.
func Configure(n *Namespace, p Net) error {
	if err := p.check(); err != nil {
		return err
	}
	if err := n.configure(p); err != nil {
		return fmt.Errorf("configure %s in %s: %w", p.IfName, n.path, err)
	}
	return nil
}

func (n *Namespace) configure(p Net) error {
	pod, beside := n.made.pod, n.made.beside
	if n.made.name != p.IfName {
		var err error
		if pod, err = link.Get(n.conn, 0, p.IfName); err != nil {
			return err
		}
		if beside, err = n.isBeside(pod.Index); err != nil {
			return err
		}
	}
	v4, v6 := p.families()
	if v6 && n.made.hostV6 != nil {
		return n.made.hostV6
	}
	if v6 && !pod.HasIPv6() {
		if err := n.enableIPv6(&pod); err != nil {
			return err
		}
	}
	if v6 && !pod.Up && pod.HasIPv6() {
		// Another program took it down, and its addresses with it.
		if err := bringUpPod(n.conn, pod); err != nil {
			return err
		}
	}
	if p.IPForward || !beside {
		if err := n.Enter(func() error { return setForwarding(p.IPForward, v4, v6) }); err != nil {
			return err
		}
	}
	killpoint.Step("forwarding set")
	if err := n.address(pod.Index, p.Addrs); err != nil {
		return err
	}
	if err := n.addRoutes(pod.Index, p.routes(pod.MTU, v4), beside); err != nil {
		return err
	}
	if beside {
		if err := n.addRules(pod.Index, p.Addrs); err != nil {
			return err
		}
	}
	killpoint.Step("addresses set")
	if v6 {
		return n.settle(pod, p.Addrs)
	}
	return nil
}

// address brings up the link and adds its addresses. The runtime brings up the loopback, by a plugin of its own; address does too, so that
// without that plugin the workload still reaches itself.
func (n *Namespace) address(index int, addrs []netip.Addr) error {
	const loopback = 1
	for _, i := range []int{loopback, index} {
		if err := n.conn.LinkSetUp(rtnl.Device(i)); err != nil {
			return fmt.Errorf("bring up link %d: %w", i, err)
		}
	}
	for _, a := range addrs {
		if err := n.conn.AddrReplace(rtnl.Device(index), rtnl.NewAddr(rtnl.HostPrefix(a))); err != nil {
			return fmt.Errorf("add %s: %w", a, err)
		}
	}
	return nil
}

// settle waits until the IPv6 addresses of both ends can be used. It first restores the host end's if that was lost since an earlier call.
// Even without duplicate address detection, the kernel joins an address's multicast group and creates its local route in a work queue
// (addrconf_dad_work): an earlier packet is lost, and a neighbour solicitation is repeated a second later.
func (n *Namespace) settle(pod link.Link, addrs []netip.Addr) error {
	host, err := rtnl.Dial()
	if err != nil {
		return err
	}
	defer host.Close()
	gateway := n.made.name != ""
	if !gateway {
		if gateway, err = link.RestoreGateway(host, pod); err != nil {
			return err
		}
	}
	rtnl.Await(func() bool {
		if r, ok := host.Lookup(link.HostGatewayLL(), pod.Parent); gateway && !(ok && r.Local) {
			return false
		}
		for _, a := range addrs {
			if r, ok := n.conn.Lookup(a, 0); a.Is6() && !(ok && r.Local) {
				return false
			}
		}
		return true
	})
	return nil
}

// enableIPv6 enables IPv6 in a namespace whose runtime disabled it.
func (n *Namespace) enableIPv6(pod *link.Link) error {
	if !pod.Inet6 {
		return errors.New("there is no IPv6 on it: this kernel has none, or the MTU is below 1280")
	}
	if err := n.conn.LinkSetIP6AddrGenMode(rtnl.Device(pod.Index), link.GenNone); err != nil {
		return fmt.Errorf("enable IPv6: %w", err)
	}
	err := n.Enter(func() error {
		return errors.Join(rtnl.WriteSysctl("ipv6/conf/all/disable_ipv6", "0"), rtnl.WriteSysctl("ipv6/conf/default/disable_ipv6", "0"))
	})
	if err == nil {
		err = addLinkLocal(n.conn, *pod)
	}
	if err != nil {
		return fmt.Errorf("enable IPv6: %w", err)
	}
	pod.Conf6 = nil // it is outdated
	n.made.pod.Conf6 = nil
	return nil
}

// setForwarding runs inside the namespace. A new namespace may have inherited the host's forwarding, which is on.
func setForwarding(on, v4, v6 bool) error {
	value := "0"
	if on {
		value = "1"
	}
	if v4 {
		if err := rtnl.WriteSysctl("ipv4/ip_forward", value); err != nil {
			return err
		}
	}
	if v6 {
		return rtnl.WriteSysctl("ipv6/conf/all/forwarding", value)
	}
	return nil
}

// hostGateway returns the next hop of a workload.
func hostGateway(v4 bool) netip.Addr {
	if v4 {
		return link.HostGateway()
	}
	return link.HostGatewayLL()
}

func defaultRoute(v4 bool) netip.Prefix {
	if v4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// families returns the families to list routes of.
func families() []int { return []int{unix.AF_INET, unix.AF_INET6} }
