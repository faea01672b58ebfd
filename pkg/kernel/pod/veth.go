// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"os"

	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"golang.org/x/sys/unix"
)

const (
	vethInfoPeer = 1 // VETH_INFO_PEER of linux/veth.h
	maxAlias     = 255
)

// Veth says what CreateVeth makes.
type Veth struct {
	HostName string    // in the current namespace
	PodName  string    // in the workload's namespace
	MTU      int       // of both ends; 0 = the kernel's default
	PodMAC   model.MAC // zero = the kernel chooses
	Alias    string    // of the host end, set before that is up; at most 255 bytes
}

// LinkExistsError says that the host end's name is taken, and by what.
type LinkExistsError struct{ Link link.Link }

// Error names the link and who it belongs to.
func (e *LinkExistsError) Error() string {
	owner := "without an alias"
	if e.Link.Alias != "" {
		owner = fmt.Sprintf("with the alias %q", e.Link.Alias)
	}
	return fmt.Sprintf("link %s exists already: kind %q, %s", e.Link.Name, e.Link.Kind, owner)
}

// Unwrap makes the error an os.ErrExist.
func (e *LinkExistsError) Unwrap() error { return os.ErrExist }

// madeVeth is what a Namespace remembers of the veth made in it.
type madeVeth struct {
	name   string
	index  int
	pod    link.Link
	beside bool  // another link had routes before
	hostV6 error // why the host end has no IPv6
}

// CreateVeth makes a veth: the workload's end in ns, its peer directly in the
// current namespace with HostMAC, both up, with link-local addresses that can be
// used at once. It returns the workload end's MAC address, and an undo that
// deletes what was made and nothing else. Nothing is left after an error.
//
// The alias is set before the host end goes up: one that is down and has none
// was left by a process that died here. The error is a *LinkExistsError when the
// host end's name is taken.
func CreateVeth(ns *Namespace, v Veth) (podMAC model.MAC, undo func() error, err error) {
	if err := v.check(); err != nil {
		return model.MAC{}, nil, err
	}
	host, err := rtnl.Open()
	if err != nil {
		return model.MAC{}, nil, err
	}
	defer host.Close()
	pod, beside, err := v.create(ns, host)
	if err != nil {
		return model.MAC{}, nil, err
	}
	killpoint.Step("link created")
	undo = func() error {
		ns.made = madeVeth{}
		err := link.DeleteIndex(pod.Parent, v.HostName)
		if beside {
			err = errors.Join(err, ns.forget())
		}
		return err
	}
	ns.made = madeVeth{name: v.PodName, index: pod.Index, pod: pod, beside: beside}
	if ns.made.hostV6, err = bringUpHost(host, pod.Parent, v.Alias); err == nil {
		killpoint.Step("host end up")
		err = bringUpPod(ns.sock, pod)
	}
	if err == nil {
		_, err = host.Ask(link.GetMessage(pod.Parent, "")) // see bringUpPod
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

// create makes both ends, down, and returns the workload's. beside says that another
// link there has routes.
func (v Veth) create(ns *Namespace, host *rtnl.Socket) (pod link.Link, beside bool, err error) {
	here, err := os.Open(rtnl.OwnNetns)
	if err != nil {
		return link.Link{}, false, fmt.Errorf("open the host's network namespace: %w", err)
	}
	defer func() { _ = here.Close() }()
	mac := link.HostMAC()
	m := rtnl.NewMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, rtnl.LinkBody(unix.AF_UNSPEC, 0, 0, 0))
	m.AttrString(unix.IFLA_IFNAME, v.PodName)
	if v.MTU > 0 {
		m.Attr32(unix.IFLA_MTU, uint32(v.MTU))
	}
	if !v.PodMAC.IsZero() {
		m.Attr(unix.IFLA_ADDRESS, v.PodMAC[:])
	}
	m.Nest(unix.IFLA_LINKINFO, func() {
		m.AttrString(unix.IFLA_INFO_KIND, "veth")
		m.Nest(unix.IFLA_INFO_DATA, func() {
			m.Nest(vethInfoPeer, func() {
				*m = append(*m, rtnl.LinkBody(unix.AF_UNSPEC, 0, 0, 0)...)
				m.AttrString(unix.IFLA_IFNAME, v.HostName)
				if v.MTU > 0 {
					m.Attr32(unix.IFLA_MTU, uint32(v.MTU))
				}
				m.Attr(unix.IFLA_ADDRESS, mac[:])
				m.Attr32(unix.IFLA_NET_NS_FD, uint32(here.Fd()))
			})
		})
	})
	answers, err := ns.sock.Do(append([]*rtnl.Message{m, link.GetMessage(0, v.PodName)}, findOthers()...)...)
	if err != nil {
		return link.Link{}, false, fmt.Errorf("make veth %s: %w", v.HostName, err)
	}
	if err := answers[0].Err; err != nil {
		return link.Link{}, false, v.explain(ns, host, answers[1], err)
	}
	pod, err = link.First(answers[1].Data)
	if answers[1].Err != nil {
		err = answers[1].Err
	}
	if err == nil {
		return pod, foundOthers(answers[2:]), nil
	}
	err = fmt.Errorf("read %s, just made in %s: %w", v.PodName, ns.path, err)
	if l, lost := link.Get(host, 0, v.HostName); lost == nil {
		err = errors.Join(err, link.DeleteIndex(l.Index, v.HostName))
	}
	return link.Link{}, false, err
}

// explain finds out which of the two names is taken.
func (v Veth) explain(ns *Namespace, host *rtnl.Socket, pod rtnl.Answer, err error) error {
	if errors.Is(err, unix.EEXIST) {
		if taken, err := link.Get(host, 0, v.HostName); err == nil {
			return &LinkExistsError{taken}
		}
		if pod.Err == nil {
			return fmt.Errorf("make veth %s: the namespace %s has an interface %s already: %w", v.HostName, ns.path, v.PodName, os.ErrExist)
		}
	}
	return fmt.Errorf("make veth %s with its peer %s in %s: %w", v.HostName, v.PodName, ns.path, err)
}

// bringUpHost sets the alias, then IPv6, then the link up. noV6 says why there
// is no IPv6: a workload without it doesn't mind.
func bringUpHost(s *rtnl.Socket, index int, alias string) (noV6, err error) {
	named := rtnl.NewMessage(unix.RTM_SETLINK, 0, rtnl.LinkBody(unix.AF_UNSPEC, index, 0, 0))
	if alias != "" {
		named.Attr(unix.IFLA_IFALIAS, []byte(alias))
	}
	// The address is alone, with the route of its subnet beside it: as a member of
	// the subnet, a router also has its anycast address (RFC 4291, 2.6.1), and to
	// leave that takes the kernel 15 ms more when the link is deleted. The route
	// replaces none: every other workload interface has one to the same subnet.
	subnet := rtnl.LinkLocalPrefix(link.HostGatewayLL()).Masked()
	answers, err := s.Do(named, link.SetAddrGen(index, link.GenNone), link.SetUp(index), rtnl.AddAddr(index, rtnl.HostPrefix(link.HostGatewayLL())),
		rtnl.AddRoute(rtnl.Route{Dst: subnet, Index: index, Protocol: unix.RTPROT_BOOT}, 0), link.SetAddrGen(index, link.GenEUI64))
	if err != nil {
		return nil, err
	}
	if err := answers[0].Err; err != nil {
		return nil, fmt.Errorf("set alias %q: %w", alias, err)
	}
	if err := answers[2].Err; err != nil {
		return nil, fmt.Errorf("bring up the host end: %w", err)
	}
	switch err := answers[3].Err; {
	case answers[1].Err != nil:
		return fmt.Errorf("the host end has no IPv6: this kernel has none, or the MTU is below 1280: %w", answers[1].Err), nil
	case errors.Is(err, unix.EACCES):
		return link.ErrDisabledIPv6, nil
	case err != nil && !errors.Is(err, unix.EEXIST):
		return nil, fmt.Errorf("add %s to the host end: %w", link.HostGatewayLL(), err)
	}
	if err := answers[4].Err; err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("add a route to %s by the host end: %w", subnet, err)
	}
	return nil, nil
}

// bringUpPod brings up the workload's end, with a link-local address unless
// IPv6 is disabled there: Configure enables it for those that need it.
func bringUpPod(s *rtnl.Socket, pod link.Link) error {
	if !pod.HasIPv6() {
		_, err := s.Ask(link.SetUp(pod.Index))
		return err
	}
	// Asking for the link makes the kernel do at once what it would do soon: see
	// that it has a carrier and attach the queue by which packets leave, without
	// which they are dropped (linkwatch_sync_dev).
	requests := append([]*rtnl.Message{link.SetAddrGen(pod.Index, link.GenNone), link.SetUp(pod.Index)}, addLinkLocal(pod)...)
	answers, err := s.Do(append(requests, link.GetMessage(pod.Index, ""))...)
	if err != nil {
		return err
	}
	if err := answers[1].Err; err != nil {
		return fmt.Errorf("bring up the workload's end: %w", err)
	}
	if err := answers[2].Err; err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add a link-local address to the workload's end: %w", err)
	}
	return nil
}

// addLinkLocal gives a link its link-local address itself: the kernel would not
// let it be used before duplicate address detection has taken a second. The
// kernel makes one again should the link go down and up.
func addLinkLocal(l link.Link) []*rtnl.Message {
	return []*rtnl.Message{rtnl.AddAddr(l.Index, rtnl.LinkLocalPrefix(rtnl.LinkLocal(l.MAC))), link.SetAddrGen(l.Index, l.AddrGen)}
}
