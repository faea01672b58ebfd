// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/model"
)

// MinMTU6 is the least MTU for IPv6 (RFC 8200, section 5). Below it, the kernel disables IPv6 on the link.
const MinMTU6 = 1280

// Veth is the veth of one ADD. It is made while etcd is asked for an address, and configured while the write to etcd is
// under way.
type Veth struct {
	ID  protocol.Identity
	NS  *pod.Namespace
	MTU int
	MAC model.MAC
	// Bandwidth limits what the pod receives and sends.
	Bandwidth netconf.Bandwidth

	Log *slog.Logger
	// Owner finds the endpoint of this host, other than the container's own, that uses the interface.
	Owner func(ctx context.Context, hostIf string) (path string, found bool, err error)

	// Replaced is the alias of the link that was replaced, such as that of the pod's former sandbox.
	Replaced string

	undo    func() error // nil if the veth existed before this call
	found   pod.State    // of that veth
	making  *Future
	setting *Future
	set     pod.Net // what setting configures
}

// OpenNamespace opens the pod's network namespace. It must not be the host's own.
func OpenNamespace(path string) (*pod.Namespace, error) {
	ns, err := pod.OpenNamespace(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, protocol.Failf(protocol.CodeEnvironment, "the container is gone: delete its sandbox", "CNI_NETNS: %w", err)
	}
	if errors.Is(err, os.ErrPermission) {
		return nil, protocol.Failf(protocol.CodeIO, "run the plugin as root, with the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN", "CNI_NETNS: %w", err)
	}
	if err != nil {
		return nil, protocol.Failf(protocol.CodeEnvironment, "it must be the path of a network namespace", "CNI_NETNS: %w", err)
	}
	theirs, err1 := os.Stat(path)
	ours, err2 := os.Stat("/proc/thread-self/ns/net")
	if err1 == nil && err2 == nil && os.SameFile(theirs, ours) {
		ns.Close()
		return nil, protocol.Failf(protocol.CodeEnvironment, "give the pod a network namespace of its own", "CNI_NETNS %s is the host's own network namespace", path)
	}
	return ns, nil
}

// Start checks which link has the host end's name, and starts making the veth unless it exists already.
func (w *Veth) Start(ctx context.Context) error {
	l, err := link.Find(w.ID.HostIf)
	switch {
	case errors.Is(err, os.ErrNotExist):
		w.making = Async(w.Log, w.create)
		return nil
	case err != nil:
		return protocol.Fail(protocol.CodeKernel, err, "")
	case l.Alias != w.ID.Alias:
		if err := w.mayReplace(ctx, l); err != nil {
			return err
		}
		w.Log.Info("replacing a link that nobody owns any more", "link", l.Name, "alias", l.Alias)
		w.Replaced, w.making = l.Alias, Async(w.Log, w.Replace)
		return nil
	}
	w.making = Async(w.Log, func() error { return w.adopt(l) })
	return nil
}

// Made waits until the veth exists and reports whether an earlier ADD made it.
func (w *Veth) Made() (adopted bool, err error) {
	err = w.making.Wait()
	return w.undo == nil, err
}

// Wait waits for all work in the background and returns its error.
func (w *Veth) Wait() error {
	if w.making == nil {
		return nil
	}
	err := w.making.Wait()
	if w.setting != nil {
		err = w.setting.Wait()
	}
	return err
}

// Undo deletes the veth if this call made it.
func (w *Veth) Undo(context.Context) error {
	if err := w.Wait(); w.undo == nil {
		return err
	}
	return w.undo()
}

// mayReplace refuses to replace a link that isn't calico's or that an endpoint uses. Any other link was left behind by
// the pod's former sandbox, or by a process that died before it set the alias.
func (w *Veth) mayReplace(ctx context.Context, l link.Link) error {
	if w.ID.SameInterface(l.Alias) {
		return protocol.Failf(protocol.CodeInterface, "give another CNI_IFNAME, or delete the container from the other network first",
			"interface %s of the container is another network's: %s has the alias %q", w.ID.IfName, l.Name, l.Alias)
	}
	if err := foreign(l); err != nil {
		return err
	}
	owner, taken, err := w.Owner(ctx, l.Name)
	if err != nil {
		return err
	}
	if taken {
		return protocol.Failf(protocol.CodeInterface, "delete that workload, or give another CNI_IFNAME", "host interface %s belongs to %s", l.Name, owner)
	}
	return nil
}

// foreign returns an error if the link isn't calico's.
func foreign(l link.Link) error {
	if l.Kind == "veth" && protocol.IsOurAlias(l.Alias) || l.IsUnnamed() {
		return nil
	}
	hint := "delete it with `ip link del " + l.Name + "`, if nothing needs it"
	if l.Alias == "" && l.BothEndsHere() {
		return protocol.Failf(protocol.CodeInterface, hint, "host interface %s exists and is not one of calico's (a veth with both ends on the host)", l.Name)
	}
	return protocol.Failf(protocol.CodeInterface, hint, "host interface %s exists and is not one of calico's (kind %q, alias %q)", l.Name, l.Kind, l.Alias)
}

// adopt takes over our own veth, or replaces it if it differs.
func (w *Veth) adopt(l link.Link) error {
	held, err := pod.Read(w.NS, w.ID.IfName)
	if err != nil || held.HostIndex != l.Index || held.MAC != w.MAC ||
		held.MTU > l.MTU || l.MTU > w.MTU || l.MAC != link.HostMAC() || !l.Up {
		return w.Replace() // half made, or made with other settings
	}
	w.found = held
	return nil
}

// Replace deletes the link that has the host end's name and makes the veth.
func (w *Veth) Replace() error {
	if err := link.Delete(w.ID.HostIf); err != nil {
		return protocol.Fail(protocol.CodeKernel, err, "")
	}
	killpoint.Step("old link deleted")
	return w.create()
}

func (w *Veth) create() error {
	killpoint.Step("before veth")
	_, undo, err := pod.CreateVeth(w.NS, pod.Veth{
		HostName: w.ID.HostIf, PodName: w.ID.IfName, MTU: w.MTU, PodMAC: w.MAC, Alias: w.ID.Alias,
		Ingress: w.Bandwidth.Ingress, Egress: w.Bandwidth.Egress,
	})
	switch _, since := errors.AsType[*pod.LinkExistsError](err); {
	case since:
		return protocol.Fail(protocol.CodeInterface, err, "try again: it was made a moment ago")
	case errors.Is(err, os.ErrExist):
		return protocol.Fail(protocol.CodeInterface, err, "delete it, or give another CNI_IFNAME")
	case err != nil:
		return kernelError(err)
	}
	w.undo = undo
	killpoint.Step("veth made")
	return nil
}

// Configure starts setting the addresses and routes of the pod's end. After a conflict in etcd it is called again with
// other ones.
func (w *Veth) Configure(p pod.Net) {
	former := w.setting
	if former != nil && slices.Equal(w.set.Addrs, p.Addrs) {
		return
	}
	w.set = p
	w.setting = Async(w.Log, func() error {
		err := w.making.Wait()
		if err == nil && former != nil {
			if err = former.Wait(); err == nil {
				err = w.Replace()
			}
		} else if err == nil && w.undo == nil && (hasOthers(w.found, p) || tooSmall(w.found, p)) {
			err = w.Replace()
		}
		if err != nil {
			return err
		}
		if err := pod.Configure(w.NS, p); err != nil {
			return kernelError(err)
		}
		killpoint.Step("pod configured")
		return nil
	})
}

// hasOthers reports whether the interface has addresses that it should not have.
func hasOthers(held pod.State, p pod.Net) bool {
	return slices.ContainsFunc(held.Addrs, func(a netip.Prefix) bool { return !slices.Contains(p.Addrs, a.Addr()) })
}

// tooSmall reports whether the pod needs IPv6 and the interface's MTU is too small for it. Otherwise a shrunken MTU is
// kept: a running pod's link is not replaced for that.
func tooSmall(held pod.State, p pod.Net) bool {
	return held.MTU < MinMTU6 && slices.ContainsFunc(p.Addrs, netip.Addr.Is6)
}

// kernelError wraps an error from the kernel. Only the kernel's log can tell more, except about a read-only /proc/sys.
func kernelError(err error) error {
	if errors.Is(err, syscall.EROFS) {
		return protocol.Fail(protocol.CodeKernel, err, "mount /proc/sys read-write where the plugin runs (mount -o remount,rw /proc/sys), or give it CAP_SYS_ADMIN to do so")
	}
	return protocol.Fail(protocol.CodeKernel, err, "see the kernel's log")
}
