// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/model"
)

// wire is the veth of one ADD. It is made while etcd is asked for an address,
// and gets that while etcd takes the write.
type wire struct {
	s       *session
	id      identity
	ns      *pod.Namespace
	mtu     int
	mac     model.MAC
	owned   bool         // our endpoint lived on the interface before this call
	again   bool         // and is this very container's
	undo    func() error // nil where the veth was there before this call
	found   pod.State    // of that veth
	making  *future
	setting *future
	set     pod.Net // what setting sets
}

// openNamespace opens the pod's network namespace, which must not be ours.
func openNamespace(path string) (*pod.Namespace, error) {
	ns, err := pod.OpenNamespace(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, failf(CodeEnvironment, "the container is gone: delete its sandbox", "CNI_NETNS: %w", err)
	}
	if errors.Is(err, os.ErrPermission) {
		return nil, failf(CodeIO, "run the plugin as root, with the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN", "CNI_NETNS: %w", err)
	}
	if err != nil {
		return nil, failf(CodeEnvironment, "it must be the path of a network namespace", "CNI_NETNS: %w", err)
	}
	theirs, err1 := os.Stat(path)
	ours, err2 := os.Stat("/proc/thread-self/ns/net")
	if err1 == nil && err2 == nil && os.SameFile(theirs, ours) {
		ns.Close()
		return nil, failf(CodeEnvironment, "give the pod a network namespace of its own", "CNI_NETNS %s is the host's own network namespace", path)
	}
	return ns, nil
}

// takenError says that a link has the host end's name, and not its alias or one that other
// names make, too. It may be another's: etcd knows.
type takenError struct{ link link.Link }

// Error names the link.
func (e *takenError) Error() string { return "link " + e.link.Name + " exists" }

// start begins to make the veth.
func (w *wire) start() {
	w.s.undo.push("link "+w.id.hostIf, func(context.Context) error {
		if w.undo == nil {
			return nil
		}
		return w.undo()
	})
	w.making = w.s.async(w.make)
}

// wait returns when nothing is under way any more.
func (w *wire) wait() error {
	err := w.making.wait()
	if w.setting != nil {
		err = w.setting.wait()
	}
	return err
}

// make makes the veth, or takes over the one that an earlier ADD for the same
// interface has made.
func (w *wire) make() error {
	l, err := link.Find(w.id.hostIf)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return w.create()
	case err != nil:
		return fail(CodeKernel, err, "")
	case l.Alias != w.id.alias || w.id.dotted():
		return &takenError{l}
	}
	return w.adopt(l)
}

// adopt takes over our own veth, or replaces it.
func (w *wire) adopt(l link.Link) error {
	held, err := pod.Read(w.ns, w.id.ifName)
	if err != nil || held.HostIndex != l.Index || held.MAC != w.mac ||
		held.MTU > l.MTU || l.MTU > w.mtu || l.MAC != link.HostMAC() || !l.Up {
		return w.replace() // half made, or made with other settings
	}
	w.found = held
	return nil
}

// replace makes the veth in place of what has its name.
func (w *wire) replace() error {
	if err := link.Delete(w.id.hostIf); err != nil {
		return fail(CodeKernel, err, "")
	}
	step("old link deleted")
	return w.create()
}

func (w *wire) create() error {
	step("before veth")
	_, undo, err := pod.CreateVeth(w.ns, pod.Veth{
		HostName: w.id.hostIf, PodName: w.id.ifName, MTU: w.mtu, PodMAC: w.mac, Alias: w.id.alias,
	})
	if taken, ok := errors.AsType[*pod.LinkExistsError](err); ok {
		return &takenError{taken.Link} // made since we looked
	}
	if errors.Is(err, os.ErrExist) {
		return fail(CodeInterface, err, "delete it, or give another CNI_IFNAME")
	}
	if err != nil {
		return fail(CodeKernel, err, "see the kernel's log")
	}
	w.undo = undo
	step("veth made")
	return nil
}

// ready returns when the veth is there. Where the attempt before has begun to set it up, that
// takes over what is in the way; two at once would take it from each other.
func (w *wire) ready(ctx context.Context) error {
	if w.setting != nil {
		return w.setting.wait()
	}
	err := w.making.wait()
	if taken, ok := errors.AsType[*takenError](err); ok {
		err = w.refuse(taken.link)
		if err == nil {
			err = w.takeOver(ctx, taken.link, w.owned)
		}
		w.making = &future{done: w.making.done, err: err}
	}
	return err
}

// configure begins to give the pod's end its addresses and routes. After a
// conflict in etcd it is called again, with other ones.
func (w *wire) configure(ctx context.Context, p pod.Net) {
	former := w.setting
	if former != nil && slices.Equal(w.set.Addrs, p.Addrs) {
		return
	}
	w.set = p
	owned := w.owned
	w.setting = w.s.async(func() error {
		err := w.making.wait()
		if taken, ok := errors.AsType[*takenError](err); ok && former == nil {
			err = w.takeOver(ctx, taken.link, owned)
		}
		if former != nil {
			if err = former.wait(); err == nil {
				err = w.replace()
			}
		}
		if err == nil && w.undo == nil && (hasOthers(w.found, p) || tooSmall(w.found, p)) {
			err = w.replace()
		}
		if err != nil {
			return err
		}
		if err := pod.Configure(w.ns, p); err != nil {
			return fail(CodeKernel, err, "see the kernel's log")
		}
		step("pod configured")
		return nil
	})
}

// hasOthers reports whether the interface has addresses that it shall not have.
func hasOthers(held pod.State, p pod.Net) bool {
	return slices.ContainsFunc(held.Addrs, func(a netip.Prefix) bool { return !slices.Contains(p.Addrs, a.Addr()) })
}

// tooSmall reports whether the interface's MTU leaves no IPv6 where there shall be.
// Else one that has shrunk stays so: a running pod's link is not made anew for it.
func tooSmall(held pod.State, p pod.Net) bool {
	return held.MTU < minMTU6 && slices.ContainsFunc(p.Addrs, netip.Addr.Is6)
}

// takeOver takes a link that may be another's, if no other endpoint lives on it. One
// that has not our alias is replaced: left behind by this pod's former sandbox, or by a
// process that died before it had set the alias, or relabelled by somebody.
func (w *wire) takeOver(ctx context.Context, l link.Link, owned bool) error {
	if err := foreign(l); err != nil && !(owned && relabelled(l)) {
		return err
	}
	if !owned {
		owner, taken, err := w.s.ownerOf(ctx, l.Name, w.id.key)
		if err != nil {
			return err
		}
		if taken {
			return failf(CodeInterface, "delete that workload, or give another CNI_IFNAME",
				"host interface %s belongs to %s", l.Name, owner)
		}
	}
	if l.Alias == w.id.alias {
		return w.adopt(l)
	}
	w.s.log.Info("replacing a link that nobody owns any more", "link", l.Name, "alias", l.Alias)
	return w.replace()
}

// refuse says why a link that this container's endpoint lives on can't be replaced:
// it has another network's alias, so the container is in that by the same interface.
func (w *wire) refuse(l link.Link) error {
	if !w.again || !isOurAlias(l.Alias) || aliasOfNetwork(l.Alias, w.id.network) {
		return nil
	}
	return failf(CodeInterface, "give another CNI_IFNAME, or delete the container from the other network first",
		"interface %s of the container is another network's: %s has the alias %q", w.id.ifName, l.Name, l.Alias)
}

// foreign says why a link is none of calico's.
func foreign(l link.Link) error {
	if l.Kind == "veth" && isOurAlias(l.Alias) || unnamed(l) {
		return nil
	}
	if l.Alias == "" && l.BothEndsHere() {
		return failf(CodeInterface, "delete it with `ip link del "+l.Name+"`, if nothing needs it",
			"host interface %s exists and is not one of calico's (a veth with both ends on the host)", l.Name)
	}
	return failf(CodeInterface, "delete it with `ip link del "+l.Name+"`, if nothing needs it",
		"host interface %s exists and is not one of calico's (kind %q, alias %q)", l.Name, l.Kind, l.Alias)
}
