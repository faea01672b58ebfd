// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const maxAlias = 255

// Veth describes what CreateVeth creates.
type Veth struct {
	HostName string    // in the current namespace
	PodName  string    // in the workload's namespace
	MTU      int       // of both ends; 0 = the kernel's default
	PodMAC   model.MAC // zero = the kernel chooses
	Alias    string    // of the host end, set before it is up; at most 255 bytes
	// Ingress and Egress limit what the workload may receive and send, in bits per second; 0 = no limit.
	Ingress, Egress uint64
}

// LinkExistsError says that the host end's name is taken, and by which link.
type LinkExistsError struct{ Link link.Link }

// Error names the link and its owner.
func (e *LinkExistsError) Error() string {
	owner := "without an alias"
	if e.Link.Alias != "" {
		owner = fmt.Sprintf("with the alias %q", e.Link.Alias)
	}
	return fmt.Sprintf("link %s exists already: kind %q, %s", e.Link.Name, e.Link.Kind, owner)
}

// Unwrap makes the error an os.ErrExist.
func (e *LinkExistsError) Unwrap() error { return os.ErrExist }

// madeVeth describes the veth created in a Namespace.
type madeVeth struct {
	name   string
	pod    link.Link
	beside bool  // another link had routes before
	hostV6 error // why the host end has no IPv6
}

// CreateVeth creates a veth: the workload's end in n, its peer directly in the current namespace with HostMAC, both up, with link-local
// addresses that can be used at once. It returns the workload end's MAC address, and an undo that deletes what was created and nothing
// else. It leaves nothing after an error.
//
// The alias is set before the host end goes up: one that is down and has none was left by a process that died here. The error is a
// *LinkExistsError if the host end's name is taken.
func CreateVeth(n *Namespace, v Veth) (podMAC model.MAC, undo func() error, err error) {
	if err := v.check(); err != nil {
		return model.MAC{}, nil, err
	}
	host, err := rtnl.Dial()
	if err != nil {
		return model.MAC{}, nil, err
	}
	defer host.Close()
	beside := n.hasRoutes()
	pod, err := v.create(n, host)
	if err != nil {
		return model.MAC{}, nil, err
	}
	killpoint.Step("link created")
	undo = func() error {
		n.made = madeVeth{}
		err := link.DeleteFound(link.Link{Index: pod.Parent, Name: v.HostName})
		if beside {
			err = errors.Join(err, n.deleteStaleRules())
		}
		return err
	}
	n.made = madeVeth{name: v.PodName, pod: pod, beside: beside}
	if err = v.shape(n, host, pod); err != nil {
		return model.MAC{}, nil, errors.Join(fmt.Errorf("limit the bandwidth of veth %s: %w", v.HostName, err), undo())
	}
	if n.made.hostV6, err = bringUpHost(host, pod.Parent, v.Alias); err == nil {
		killpoint.Step("host end up")
		err = bringUpPod(n.conn, pod)
	}
	if err == nil {
		_, err = link.Get(host, pod.Parent, "") // see bringUpPod
	}
	if err != nil {
		return model.MAC{}, nil, errors.Join(fmt.Errorf("set up veth %s: %w", v.HostName, err), undo())
	}
	return pod.MAC, undo, nil
}

func (v Veth) check() error {
	if err := link.CheckName(v.HostName); err != nil {
		return err
	}
	if err := link.CheckName(v.PodName); err != nil {
		return err
	}
	if len(v.Alias) > maxAlias {
		return fmt.Errorf("alias of %s has %d bytes, more than %d", v.HostName, len(v.Alias), maxAlias)
	}
	if v.MTU < 0 {
		return fmt.Errorf("MTU %d of %s is negative", v.MTU, v.HostName)
	}
	return nil
}

// create creates both ends, down, and returns the workload's.
func (v Veth) create(n *Namespace, host *rtnl.Conn) (link.Link, error) {
	here, err := ns.GetCurrentNS()
	if err != nil {
		return link.Link{}, fmt.Errorf("open the host's network namespace: %w", err)
	}
	defer func() { _ = here.Close() }()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = v.PodName, v.MTU
	if !v.PodMAC.IsZero() {
		attrs.HardwareAddr = rtnl.HardwareAddr(v.PodMAC)
	}
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerNamespace = v.HostName, rtnl.HardwareAddr(link.HostMAC()), netlink.NsFd(here.Fd())
	if err := n.conn.LinkAdd(veth); err != nil {
		return link.Link{}, v.explain(n, host, err)
	}
	pod, err := link.Get(n.conn, 0, v.PodName)
	if err == nil {
		return pod, nil
	}
	err = fmt.Errorf("read %s, just made in %s: %w", v.PodName, n.path, err)
	if l, lost := link.Get(host, 0, v.HostName); lost == nil {
		err = errors.Join(err, link.DeleteFound(l))
	}
	return link.Link{}, err
}

// explain finds out which of the two names is taken.
func (v Veth) explain(n *Namespace, host *rtnl.Conn, err error) error {
	if errors.Is(err, unix.EEXIST) {
		if taken, err := link.Get(host, 0, v.HostName); err == nil {
			return &LinkExistsError{taken}
		}
		if _, err := link.Get(n.conn, 0, v.PodName); err == nil {
			return fmt.Errorf("make veth %s: the namespace %s has an interface %s already: %w", v.HostName, n.path, v.PodName, os.ErrExist)
		}
	}
	return fmt.Errorf("make veth %s with its peer %s in %s: %w", v.HostName, v.PodName, n.path, err)
}

// bringUpHost sets the alias, then IPv6, then the link up. noV6 says why there is no IPv6, which matters only to workloads that use it.
func bringUpHost(c *rtnl.Conn, index int, alias string) (noV6, err error) {
	device := rtnl.Device(index)
	if alias != "" {
		if err := c.LinkSetAlias(device, alias); err != nil {
			return nil, fmt.Errorf("set alias %q: %w", alias, err)
		}
	}
	noInet6 := c.LinkSetIP6AddrGenMode(device, link.GenNone)
	if err := c.LinkSetUp(device); err != nil {
		return nil, fmt.Errorf("bring up the host end: %w", err)
	}
	if noInet6 != nil {
		return fmt.Errorf("the host end has no IPv6: this kernel has none, or the MTU is below 1280: %w", noInet6), nil
	}
	// The address is alone, with the route of its subnet beside it: as a member of the subnet, a router also has its anycast address (RFC
	// 4291, 2.6.1), and leaving that takes the kernel 15 ms more when the link is deleted. The route replaces none: every other workload
	// interface has one to the same subnet.
	gateway := link.HostGatewayLL()
	subnet := netip.PrefixFrom(gateway, 64).Masked()
	err = c.AddrAdd(device, rtnl.NewAddr(rtnl.HostPrefix(gateway)))
	if errors.Is(err, unix.EACCES) {
		return link.ErrDisabledIPv6, nil
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("add %s to the host end: %w", gateway, err)
	}
	err = c.RouteAddEcmp(rtnl.Route{Dst: subnet, Index: index, Protocol: unix.RTPROT_BOOT}.Netlink())
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("add a route to %s by the host end: %w", subnet, err)
	}
	return nil, c.LinkSetIP6AddrGenMode(device, link.GenEUI64)
}

// bringUpPod brings up the workload's end, with a link-local address unless IPv6 is disabled there: Configure enables it if needed.
func bringUpPod(c *rtnl.Conn, pod link.Link) error {
	device := rtnl.Device(pod.Index)
	if !pod.HasIPv6() {
		return c.LinkSetUp(device)
	}
	if err := c.LinkSetIP6AddrGenMode(device, link.GenNone); err != nil {
		return fmt.Errorf("set up IPv6 of the workload's end: %w", err)
	}
	if err := c.LinkSetUp(device); err != nil {
		return fmt.Errorf("bring up the workload's end: %w", err)
	}
	if err := addLinkLocal(c, pod); err != nil {
		return err
	}
	// Requesting the link makes the kernel do at once what it would do soon: notice the carrier and attach the queue for outgoing packets,
	// without which they are dropped (linkwatch_sync_dev).
	_, err := link.Get(c, pod.Index, "")
	return err
}

// addLinkLocal adds a link's link-local address itself: the kernel's could not be used before duplicate address detection, which takes a
// second. The kernel creates one again if the link goes down and up.
func addLinkLocal(c *rtnl.Conn, l link.Link) error {
	device := rtnl.Device(l.Index)
	if err := c.AddrReplace(device, rtnl.NewAddr(netip.PrefixFrom(rtnl.LinkLocal(l.MAC), 64))); err != nil {
		return fmt.Errorf("add a link-local address to the workload's end: %w", err)
	}
	return c.LinkSetIP6AddrGenMode(device, l.AddrGen)
}
