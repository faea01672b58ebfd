// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/addresses"
	"github.com/calico-go/calico/pkg/cni/attach"
	"github.com/calico-go/calico/pkg/cni/delegate"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// add wires the container. It makes the veth while reading etcd, and configures the veth's addresses while writing to
// etcd; if either fails, both are undone.
func (c *call) add(ctx context.Context) (types.Result, error) {
	id := c.identity()
	c.log = c.log.With("endpoint", id.Key.Workload, "link", id.HostIf)
	if err := c.checkAdd(id); err != nil {
		return nil, err
	}
	if err := c.askPod(ctx, id); err != nil {
		return nil, err
	}
	if err := c.checkIPAM(); err != nil {
		return nil, err
	}
	if err := attach.UntilTold(ctx, c.conf, c.log, c.checkMTU); err != nil {
		return nil, err
	}
	etcd, cancel := context.WithTimeout(ctx, c.conf.DatastoreTimeout)
	defer cancel()
	if err := c.lockInterface(etcd, id.HostIf); err != nil {
		return nil, err
	}
	killpoint.Step("start")
	ns, err := attach.OpenNamespace(c.env.Netns)
	if err != nil {
		return nil, err
	}
	c.cleanup = append(c.cleanup, ns.Close)
	veth := &attach.Veth{
		ID: id, NS: ns, MTU: c.mtu(), MAC: c.mac(id), Bandwidth: c.bandwidth(), Log: c.log,
		Owner: func(ctx context.Context, hostIf string) (string, bool, error) {
			return c.etcd.Owner(ctx, hostIf, id.Key)
		},
	}
	a := addresses.Addition{
		Conf: c.conf, ID: id, MAC: veth.MAC, MTU: veth.MTU,
		Request: addresses.Request(c.conf, id, c.wanted(), c.started), Pod: c.pod,
	}
	var d addresses.Decision       // the latest decision
	var newAddrs, newEndpoint bool // written to etcd, or about to be
	var regiven bool               // the other IPAM plugin has released the addresses of an earlier ADD's endpoint
	// Undo steps run in reverse order: our addresses may be freed only after the link is gone.
	c.undo.Push("etcd", func(ctx context.Context) error {
		if !newAddrs && !newEndpoint && !regiven {
			return nil
		}
		return c.etcd.Remove(ctx, addresses.Removal{ID: id, Addresses: newAddrs, Endpoint: true, Linked: true, Undo: true}, nil)
	})
	c.undo.Push("link "+id.HostIf, veth.Undo)
	if err := veth.Start(etcd); err != nil {
		return nil, err
	}
	answer := delegate.Answer{DNS: protocol.DNS(c.conf.DNS)}
	transact := c.etcd.Address
	switch {
	case c.conf.Pod.IPAddrsNoIPAM != nil:
		a.Addrs, transact = c.conf.Pod.IPAddrsNoIPAM, c.etcd.Transact
	case c.delegates():
		if answer, regiven, err = c.askDelegate(ctx, etcd, veth); err != nil {
			return nil, err
		}
		a.Addrs, transact = answer.Addrs, c.etcd.Transact
		// The time the other plugin took does not count against etcd's timeout.
		var cancel context.CancelFunc
		etcd, cancel = context.WithTimeout(ctx, c.conf.DatastoreTimeout)
		defer cancel()
	}
	revision, err := transact(etcd, a.FirstRead(),
		func(v *model.View) (change model.Change, err error) {
			d, change, err = a.Decide(v)
			return change, err
		},
		func(*model.View) error {
			// If a commit took effect but its answer was lost, the retry finds its writes and no longer reports them as
			// new.
			lost := c.etcd.Lost()
			newAddrs, newEndpoint = d.NewAddrs || lost && newAddrs, d.NewEndpoint || lost && newEndpoint
			veth.Configure(attach.Net(c.conf, id.IfName, d.Addrs, answer.Routes))
			return nil
		})
	if wired := veth.Wait(); wired != nil && !errors.Is(err, wired) {
		err = errors.Join(wired, err)
	}
	if err != nil {
		return nil, err
	}
	killpoint.Step("wired")
	if d.Unchanged != 0 {
		revision = d.Unchanged
	}
	if err := attach.WaitAtGate(ctx, c.conf, c.log, id.Key, revision); err != nil {
		return nil, err
	}
	killpoint.Step("through the gate")
	c.log = c.log.With("addresses", d.Addrs, "revision", revision)
	return veth.Result(c.conf.CNIVersion, c.env.Netns, d.Endpoint.MTU, attach.Net(c.conf, id.IfName, d.Addrs, answer.Routes), answer.DNS), nil
}

// askDelegate asks another IPAM plugin for addresses. It does so once the link exists, because some plugins send their
// requests over it. Finding the link of an ADD that died therefore means that the plugin may hold addresses: they are
// released first, since few plugins return the same ones again, and the link is made anew, since the pod may be using
// them. again reports that they were released.
func (c *call) askDelegate(ctx, etcd context.Context, veth *attach.Veth) (answer delegate.Answer, again bool, err error) {
	var former string // container ID of the pod's endpoint, maybe of an earlier sandbox
	reading := attach.Async(c.log, func() error {
		return c.etcd.Read(etcd, []model.Range{model.KeyRange(veth.ID.Key)}, func(v *model.View) error {
			endpoint, _ := v.Get(veth.ID.Key).Value.(model.WorkloadEndpoint)
			former = endpoint.ContainerID
			return nil
		})
	})
	again, err = veth.Made()
	if err = errors.Join(err, reading.Wait()); err != nil {
		return answer, false, err
	}
	plugin := c.delegate()
	if again {
		if err := plugin.Del(ctx, veth.ID); err != nil {
			return answer, false, err
		}
		if err := veth.Replace(); err != nil {
			return answer, again, err
		}
	}
	// Release the addresses of the pod's former sandbox: its link is gone, and its endpoint, which is about to be
	// overwritten, is the last record of it.
	replaced := protocol.AliasedHandle(veth.Replaced)
	sandboxes := protocol.Sandboxes(c.conf.Name, replaced)
	if handle := protocol.HandleID(c.conf.Name, former, veth.ID.IfName); former != "" && handle != replaced {
		sandboxes = append(sandboxes, protocol.Identity{Container: former, IfName: veth.ID.IfName, Handle: handle})
	}
	for _, sandbox := range sandboxes {
		if sandbox.Handle == veth.ID.Handle {
			continue
		}
		if err := plugin.Del(ctx, sandbox); err != nil {
			return answer, again, err
		}
	}
	// Push this before Add: a plugin that fails may have done half of its work.
	c.undo.Push("ipam "+c.conf.IPAM.Type, func(ctx context.Context) error { return plugin.Del(ctx, veth.ID) })
	answer, err = plugin.Add(ctx)
	if err == nil && slices.ContainsFunc(answer.Addrs, netip.Addr.Is6) {
		err = c.checkMAC()
	}
	return answer, again, err
}

// checkAdd rejects calls that cannot succeed, before anything is done.
func (c *call) checkAdd(id protocol.Identity) error {
	if err := errors.Join(c.checkNames(), id.Check()); err != nil {
		return err
	}
	if c.conf.Policy.Kubernetes && id.PodName == "" {
		return protocol.Failf(protocol.CodeConfig, "pass K8S_POD_NAMESPACE and K8S_POD_NAME in CNI_ARGS, or drop policy.type from the network configuration",
			"policy.type: it is k8s, and CNI_ARGS names no pod")
	}
	return nil
}

// checkIPAM checks that there is a plugin to assign addresses, and that the interface can have them.
func (c *call) checkIPAM() error {
	switch {
	case c.plugin == protocol.CalicoIPAM:
		return c.checkFamilies()
	case c.conf.IPAM.Type == "":
		return protocol.Failf(protocol.CodeConfig, "set ipam.type to calico-ipam, or to the name of another IPAM plugin", "ipam.type: missing")
	case c.delegates():
		return c.delegate().Check()
	}
	if c.conf.IPAM.AssignIPv6 || slices.ContainsFunc(c.wanted(), netip.Addr.Is6) {
		if mtu := c.mtu(); mtu < attach.MinMTU6 {
			return protocol.Failf(protocol.CodeConfig, "set mtu to 1280 or more, or ipam.assign_ipv6 to false", "mtu: IPv6 needs 1280 bytes, and it is %d", mtu)
		}
		if err := c.checkMAC(); err != nil {
			return err
		}
	}
	return c.checkFamilies()
}

// checkFamilies rejects a configuration that assigns no address at all. STATUS skips the check: it can't know which
// specific addresses an ADD will ask for.
func (c *call) checkFamilies() error {
	if c.env.Command == "STATUS" || c.conf.IPAM.AssignIPv4 || c.conf.IPAM.AssignIPv6 || len(c.wanted()) > 0 {
		return nil
	}
	return protocol.Failf(protocol.CodeConfig, "set ipam.assign_ipv4 or ipam.assign_ipv6 to true", "ipam.assign_ipv4: neither IPv4 nor IPv6 is to be assigned")
}

// checkMAC rejects the MAC address of the host's end. With IPv6, both ends would have the link-local address derived
// from it, which is the pod's gateway.
func (c *call) checkMAC() error {
	code, field, asked := protocol.CodeConfig, "runtimeConfig.mac", c.conf.Runtime.MAC
	if asked.IsZero() {
		code, field, asked = protocol.CodeEnvironment, "CNI_ARGS: MAC", c.env.Args.MAC
	}
	if asked.IsZero() {
		code, field, asked = protocol.CodeConfig, "annotation "+netconf.AnnotationHWAddr, c.conf.Pod.MAC
	}
	if asked != link.HostMAC() {
		return nil
	}
	return protocol.Failf(code, "ask for another, like 02:00:00:00:00:01, or for none", "%s: %s is the host's end's, by which a container with IPv6 has its gateway", field, asked)
}

// mac returns the MAC address for the pod's end.
func (c *call) mac(id protocol.Identity) model.MAC {
	switch {
	case !c.conf.Runtime.MAC.IsZero():
		return c.conf.Runtime.MAC
	case !c.env.Args.MAC.IsZero():
		return c.env.Args.MAC
	case !c.conf.Pod.MAC.IsZero():
		return c.conf.Pod.MAC
	}
	return protocol.PodMAC(id.Handle)
}
