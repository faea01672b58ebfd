// SPDX-License-Identifier: Apache-2.0

// Package pod is what the CNI plugin does to a pod: the veth between its network namespace and the host, the addresses
// and routes in it, and reading them back. Each takes few round trips, with several messages in one.
//
// Functions work in the network namespace of the calling thread, which is the host's. A Namespace is the pod's, whatever
// thread uses it, and no thread is left in another namespace.
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

// Net says what Configure sets in the workload's namespace.
type Net struct {
	IfName               string
	Addrs                []netip.Addr // each alone: /32 or /128
	Routes               []Route      // besides the default
	DefaultV4, DefaultV6 bool         // a default route by the host end
	IPForward            bool         // the workload forwards packets
}

// families says which families the workload uses.
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

// step is a request with the words for its failure.
type step struct {
	what    string
	request *rtnl.Message
}

// netStep is one for a workload's end.
type netStep struct {
	step
	route *Route // that it makes, nil for other steps
}

// Configure gives the workload's end, which CreateVeth made, its addresses
// and routes. It may be repeated. What another link of the workload has counts before
// it: its routes stay first, and forwarding that is on stays on.
func Configure(ns *Namespace, p Net) error {
	if err := p.check(); err != nil {
		return err
	}
	if err := ns.configure(p); err != nil {
		return fmt.Errorf("configure %s in %s: %w", p.IfName, ns.path, err)
	}
	return nil
}

func (n *Namespace) configure(p Net) error {
	pod, beside := n.made.pod, n.made.beside
	if n.made.name != p.IfName {
		var err error
		if pod, err = link.Get(n.sock, 0, p.IfName); err != nil {
			return err
		}
		if beside, err = n.isBeside(pod.Index); err != nil {
			return err
		}
	}
	p.Routes = within(p.Routes, pod.MTU)
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
		// Somebody took it down, and its addresses with that.
		if err := bringUpPod(n.sock, pod); err != nil {
			return err
		}
	}
	if p.IPForward || !beside {
		if err := n.Enter(func() error { return setForwarding(p.IPForward, v4, v6) }); err != nil {
			return err
		}
	}
	killpoint.Step("forwarding set")
	if err := n.address(pod.Index, p, v4, beside); err != nil {
		return err
	}
	killpoint.Step("addresses set")
	if v6 {
		return n.settle(pod, p.Addrs)
	}
	return nil
}

// address gives the link its addresses and routes; beside says that another link's
// routes come first.
func (n *Namespace) address(index int, p Net, v4, beside bool) error {
	steps := netSteps(index, p, v4)
	if beside {
		answers, err := n.answerSteps(index, p.Addrs)
		if err != nil {
			return err
		}
		if err := n.putBeside(index, steps, true); err != nil {
			return err
		}
		_, err = n.take(append(steps, answers...))
		return err
	}
	taken, err := n.take(steps)
	if err != nil || !taken {
		return err
	}
	if err := n.putBeside(index, steps, false); err != nil {
		return err
	}
	_, err = n.take(steps)
	return err
}

// settle waits until the IPv6 addresses of both ends can be used, having given the host
// end its own again where it has lost that since an earlier call made it. Without
// duplicate address detection too, the kernel joins an address's multicast group
// and makes its local route in a work queue (addrconf_dad_work): a packet that
// comes before is lost, and a neighbour solicitation is repeated a second later.
func (n *Namespace) settle(pod link.Link, addrs []netip.Addr) error {
	host, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	far := n.made.index != 0
	if !far {
		if far, err = link.RestoreGateway(host, pod); err != nil {
			return err
		}
	}
	rtnl.Await(func() bool {
		if r, ok := host.Lookup(link.HostGatewayLL(), pod.Parent); far && !(ok && r.Local) {
			return false
		}
		for _, a := range addrs {
			if r, ok := n.sock.Lookup(a, 0); a.Is6() && !(ok && r.Local) {
				return false
			}
		}
		return true
	})
	return nil
}

// netSteps are the requests in the order in which each finds what it needs.
// The loopback is the runtime's to bring up, by a plugin of its own; where there
// is none the workload still reaches itself.
func netSteps(index int, p Net, v4 bool) []netStep {
	steps := []netStep{{step{"bring up lo", link.SetUp(1)}, nil}, {step{"bring up " + p.IfName, link.SetUp(index)}, nil}}
	for _, a := range p.Addrs {
		steps = append(steps, netStep{step{"add " + a.String(), rtnl.AddAddr(index, rtnl.HostPrefix(a))}, nil})
	}
	add := func(what string, r Route) {
		steps = append(steps, netStep{step{what, addRoute(index, r, r.Metric, unix.NLM_F_EXCL)}, &r})
	}
	route := func(r Route) {
		if !r.Gateway.IsValid() && !r.OnLink() {
			r.Gateway = hostGateway(r.Dst.Addr().Is4())
		}
		add("add "+r.String(), r)
	}
	if v4 {
		add("add route to "+link.HostGateway().String(), Route{Dst: rtnl.HostPrefix(link.HostGateway())})
	}
	if p.DefaultV4 {
		route(Route{Dst: defaultRoute(true)})
	}
	if p.DefaultV6 {
		route(Route{Dst: defaultRoute(false)})
	}
	for _, r := range p.Routes {
		route(r)
	}
	return steps
}

// take takes the steps. Where a destination has a route already it says so, and
// whether the other routes could be made counts for nothing.
func (n *Namespace) take(steps []netStep) (taken bool, err error) {
	requests := make([]*rtnl.Message, len(steps))
	for i, s := range steps {
		requests[i] = s.request
	}
	answers, err := n.sock.Do(requests...)
	if err != nil {
		return false, err
	}
	var failed error // the first route
	for i, a := range answers {
		switch {
		case a.Err == nil:
		case steps[i].route == nil:
			return false, fmt.Errorf("%s: %w", steps[i].what, a.Err)
		case errors.Is(a.Err, unix.EEXIST):
			taken = true
		case failed == nil:
			failed = fmt.Errorf("%s: %w", steps[i].what, a.Err)
		}
	}
	if taken {
		return true, nil
	}
	return false, failed
}

// enableIPv6 turns IPv6 on in a namespace whose runtime turned it off.
func (n *Namespace) enableIPv6(pod *link.Link) error {
	if !pod.Inet6 {
		return errors.New("there is no IPv6 on it: this kernel has none, or the MTU is below 1280")
	}
	if _, err := n.sock.Ask(link.SetAddrGen(pod.Index, link.GenNone)); err != nil {
		return fmt.Errorf("enable IPv6: %w", err)
	}
	err := n.Enter(func() error {
		return errors.Join(rtnl.WriteSysctl("ipv6/conf/all/disable_ipv6", "0"), rtnl.WriteSysctl("ipv6/conf/default/disable_ipv6", "0"))
	})
	if err != nil {
		return fmt.Errorf("enable IPv6: %w", err)
	}
	answers, err := n.sock.Do(addLinkLocal(*pod)...)
	if err != nil {
		return err
	}
	if err := answers[0].Err; err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("enable IPv6: add a link-local address: %w", err)
	}
	pod.Conf6 = nil // what it said is past
	n.made.pod.Conf6 = nil
	return nil
}

// setForwarding runs inside the namespace. A new one may have inherited the
// host's forwarding, which is on.
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
