// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/model"
	"github.com/containernetworking/cni/pkg/types"
)

// add wires the container. The veth is made while etcd is read, and gets its
// addresses while etcd writes: if either fails, both are undone.
func (s *session) add(ctx context.Context) (types.Result, error) {
	id := newIdentity(s.conf.Name, s.node, s.env)
	s.log = s.log.With("endpoint", id.key.Workload, "link", id.hostIf)
	if err := s.checkAdd(id); err != nil {
		return nil, err
	}
	if err := s.checkAgentsName(ctx, id.key); err != nil {
		return nil, err
	}
	etcd, cancel := context.WithTimeout(ctx, s.conf.DatastoreTimeout)
	defer cancel()
	if err := s.lockInterface(etcd, id.hostIf); err != nil {
		return nil, err
	}
	step("start")
	a := &attachment{s: s, id: id, dns: dns(s.conf.DNS), delegated: s.conf.IPAM.Type != netconf.CalicoIPAM}
	a.reading = s.begin(etcd, a.firstRead())
	defer func() {
		cancel()
		_ = a.reading.wait() // its error counts where it is used
	}()
	ns, err := openNamespace(s.env.netns)
	if err != nil {
		return nil, err
	}
	s.cleanup = append(s.cleanup, ns.Close)
	a.wire = &wire{s: s, id: id, ns: ns, mtu: s.mtu(), mac: s.mac(id)}
	// Undone last first: an address is free only when the link is gone.
	if !s.asksOnLink() {
		s.undo.push("ipam "+s.conf.IPAM.Type, a.undelegate)
	}
	s.undo.push("etcd", a.undo)
	if a.delegated {
		_, err := link.Find(id.hostIf)
		a.linked = err == nil
	}
	a.wire.start()
	if s.asksOnLink() {
		s.undo.push("ipam "+s.conf.IPAM.Type, a.undelegate)
	}
	if a.delegated {
		err = a.delegate(ctx, etcd)
		// The other plugin's time is not etcd's.
		var cancel context.CancelFunc
		etcd, cancel = context.WithTimeout(ctx, s.conf.DatastoreTimeout-a.reading.took())
		defer cancel()
	}
	var revision int64
	if err == nil {
		revision, err = a.enter(etcd)
	}
	if wired := a.wire.wait(); wired != nil {
		// Where etcd failed too, a link in the way is not worth a word.
		if _, unresolved := errors.AsType[*takenError](wired); !unresolved && !errors.Is(err, wired) {
			err = errors.Join(wired, err)
		}
	}
	if err != nil {
		return nil, err
	}
	step("wired")
	if err := s.waitAtGate(ctx, id.key, revision); err != nil {
		return nil, err
	}
	step("through the gate")
	s.log = s.log.With("addresses", a.addrs, "revision", revision)
	return s.result(id, a.wire.mac, a.mtu, a.addrs, a.resultRoutes(), a.dns), nil
}

// enter writes the pod's endpoint, with addresses of our own where no other
// plugin gave them, and returns the revision of that.
func (a *attachment) enter(etcd context.Context) (int64, error) {
	revision, err := a.s.transact(etcd, transaction{
		first:    a.reading,
		decide:   a.decide,
		before:   func(*view) error { return a.before(etcd) },
		ifTaken:  func(v *view, n int64) []ipam.Want { return ipam.NewPlan(v.ipam).IfTaken(a.s.request(a.id), n) },
		took:     func() []netip.Prefix { return a.blocks },
		unlocked: a.delegated,
	})
	if err != nil {
		return 0, err
	}
	if a.unchanged != 0 {
		revision = a.unchanged
	}
	return revision, nil
}

// checkAdd finds what can't work before anything is done.
func (s *session) checkAdd(id identity) error {
	if err := errors.Join(s.checkNames(), id.check()); err != nil {
		return err
	}
	if s.conf.Policy.Kubernetes && id.podName == "" {
		return failf(CodeConfig, "pass K8S_POD_NAMESPACE and K8S_POD_NAME in CNI_ARGS, or drop policy.type from the network configuration",
			"policy.type: it is k8s, and CNI_ARGS names no pod")
	}
	return s.checkIPAM()
}

// minMTU6 is what IPv6 needs: RFC 8200, section 5. Below, the kernel has none on
// the link.
const minMTU6 = 1280

// checkIPAM finds out whether there is somebody to give addresses, and whether
// the interface can have them.
func (s *session) checkIPAM() error {
	switch {
	case s.plugin == CalicoIPAM:
		return s.checkFamilies()
	case s.conf.IPAM.Type == netconf.CalicoIPAM:
		mtu := s.mtu()
		v6 := s.conf.IPAM.AssignIPv6 || slices.ContainsFunc(s.wantedAddrs(), netip.Addr.Is6)
		if v6 && mtu < minMTU6 {
			return failf(CodeConfig, "set mtu to 1280 or more, or ipam.assign_ipv6 to false", "mtu: IPv6 needs 1280 bytes, and it is %d", mtu)
		}
		if v6 {
			if err := s.checkMAC(); err != nil {
				return err
			}
		}
		return s.checkFamilies()
	case s.conf.IPAM.Type == "":
		return failf(CodeConfig, "set ipam.type to calico-ipam, or to the name of another IPAM plugin", "ipam.type: missing")
	}
	if err := s.checkPodCIDR(); err != nil {
		return err
	}
	_, err := s.findDelegate()
	return err
}

// checkFamilies refuses to give no address at all. STATUS can't know what an ADD will
// ask for by number.
func (s *session) checkFamilies() error {
	if s.env.command == "STATUS" || s.conf.IPAM.AssignIPv4 || s.conf.IPAM.AssignIPv6 || len(s.wantedAddrs()) > 0 {
		return nil
	}
	return failf(CodeConfig, "set ipam.assign_ipv4 or ipam.assign_ipv6 to true", "ipam.assign_ipv4: neither IPv4 nor IPv6 is to be assigned")
}

// checkMAC refuses the MAC address of the host's end: with IPv6 both ends would have the link-local
// address that follows from it, the pod's gateway.
func (s *session) checkMAC() error {
	code, field, asked := CodeConfig, "runtimeConfig.mac", s.conf.RuntimeMAC
	if asked.IsZero() {
		code, field, asked = CodeEnvironment, "CNI_ARGS: MAC", s.env.args.MAC
	}
	if asked != link.HostMAC() {
		return nil
	}
	return failf(code, "ask for another, like 02:00:00:00:00:01, or for none", "%s: %s is the host's end's, by which a container with IPv6 has its gateway", field, asked)
}

// mac is the address that the pod's end is to have.
func (s *session) mac(id identity) model.MAC {
	switch {
	case !s.conf.RuntimeMAC.IsZero():
		return s.conf.RuntimeMAC
	case !s.env.args.MAC.IsZero():
		return s.env.args.MAC
	}
	return podMAC(id.handle)
}

// attachment is one ADD under way.
type attachment struct {
	s         *session
	id        identity
	wire      *wire
	reading   *reading
	delegated bool // another plugin gives the addresses
	linked    bool // and a link of the name was there
	asked     bool // and has been asked
	renewed   bool // and has been told to take back what an earlier ADD got
	mtu       int  // of the endpoint
	addrs     []netip.Addr
	blocks    []netip.Prefix // of the addresses
	routes    []pod.Route    // in place of the default routes
	dns       types.DNS

	unchanged int64 // the endpoint's revision, where there was nothing to write
	// What the last decision would write, for undo.
	newAddrs, newEndpoint bool
}

func (a *attachment) firstRead() []ipam.Want {
	wants := []ipam.Want{{Key: model.ReadyKey{}}, {Key: a.id.key}}
	for _, k := range a.s.profileKeys() {
		wants = append(wants, ipam.Want{Key: k})
	}
	if a.delegated {
		return wants
	}
	return a.s.withHints(append(wants, ipam.FirstRead(a.s.request(a.id))...))
}

// decide makes the one change of an ADD: addresses, endpoint and, where it is
// missing, the network's profile.
func (a *attachment) decide(v *view) (model.Change, error) {
	if err := v.checkReady(); err != nil {
		return model.Change{}, err
	}
	entry := v.get(a.id.key)
	old, valid := a.former(v)
	var change model.Change
	plan := ipam.NewPlan(v.ipam)
	if valid && old.ContainerID != "" && old.ContainerID != a.id.cid {
		// The pod has a new sandbox: the endpoint moves.
		named, freed := a.s.checkName(v), error(nil)
		if !a.delegated {
			freed = a.freeFormer(plan, v, old)
		}
		if err := joinNeeds(named, freed); err != nil {
			return model.Change{}, err
		}
	}
	if !a.delegated {
		var had []netip.Addr
		if valid && old.ContainerID == a.id.cid {
			had = old.Addrs()
		}
		choice, err := assign(plan, v, a.s.request(a.id), had...)
		if err != nil {
			return model.Change{}, err
		}
		a.addrs, a.blocks, a.newAddrs = nil, nil, true
		for _, c := range choice.Addrs {
			a.addrs, a.blocks = append(a.addrs, c.Addr), append(a.blocks, c.Block)
			a.newAddrs = a.newAddrs && !c.Existing
		}
		change = plan.Change()
	}
	endpoint := a.s.endpoint(a.id, a.wire.mac, a.wire.mtu, a.addrs, old)
	a.mtu = endpoint.MTU
	a.newEndpoint = !valid || old.ContainerID != a.id.cid
	a.unchanged = 0
	if valid && old.Equal(endpoint) {
		a.unchanged = entry.Revision
	} else {
		change.Compares = append(change.Compares, v.compare(a.id.key))
		change.Puts = append(change.Puts, model.Put{Key: a.id.key, Value: endpoint})
	}
	change.Merge(a.s.profile(v))
	return change, nil
}

// freeFormer frees the addresses of the sandbox that had the endpoint, in a network of
// another name, too.
func (a *attachment) freeFormer(plan *ipam.Plan, v *view, old model.WorkloadEndpoint) error {
	former := identity{network: a.id.network, cid: old.ContainerID, ifName: a.id.ifName}
	freed, err := a.freeHandle(plan, v, former)
	if _, more := errors.AsType[*ipam.NeedError](err); more {
		// What it has lies most likely in the blocks of the endpoint's addresses: read with the handle, they save a round trip.
		for _, addr := range old.Addrs() {
			if _, asks := plan.Holder(addr); asks != nil {
				err = joinNeeds(err, asks)
			}
		}
	}
	if err != nil {
		return err
	}
	for _, addr := range old.Addrs() {
		if slices.Contains(freed, addr) {
			continue
		}
		handle, err := plan.Holder(addr)
		if err != nil {
			return err
		}
		var ok bool
		if former.network, ok = strings.CutSuffix(handle, handleID("", former.cid, former.ifName)); !ok {
			continue
		}
		more, err := a.freeHandle(plan, v, former, addr)
		if err != nil {
			return err
		}
		freed = append(freed, more...)
	}
	return nil
}

// freeHandle frees what a former sandbox has, and nothing of a container whose names
// make the same handle. Its addresses also are looked for: the handle may not name them.
func (a *attachment) freeHandle(plan *ipam.Plan, v *view, former identity, also ...netip.Addr) ([]netip.Addr, error) {
	former.handle = handleID(former.network, former.cid, former.ifName)
	blocks, err := plan.BlocksOf(former.handle, also)
	if err != nil {
		return nil, err
	}
	// What is to be read for it.
	if _, err := ipam.NewPlan(v.ipam).Release(former.handle, a.s.started, blocks...); err != nil {
		return nil, err
	}
	if others, err := a.s.othersHave(v, former); err != nil || others {
		return nil, err
	}
	return plan.Release(former.handle, a.s.started, blocks...)
}

// former is the endpoint that was there before this call.
func (a *attachment) former(v *view) (old model.WorkloadEndpoint, valid bool) {
	old, valid = v.get(a.id.key).Value.(model.WorkloadEndpoint)
	a.wire.owned = valid && old.Name == a.id.hostIf
	a.wire.again = a.wire.owned && old.ContainerID == a.id.cid
	return old, valid
}

// before starts to set up the pod's end while the commit is under way, unless
// it is known already that there is none. Where the container has an endpoint,
// nothing is written before it is known that the link is the same network's.
func (a *attachment) before(ctx context.Context) error {
	known := a.wire.again
	select {
	case <-a.wire.making.done:
		known = true
	default:
	}
	if known {
		if err := a.wire.ready(ctx); err != nil {
			a.newAddrs, a.newEndpoint = false, false // nothing is written
			return err
		}
	}
	a.wire.configure(ctx, a.podNet())
	return nil
}

// podNet is what the pod's end gets.
func (a *attachment) podNet() pod.Net {
	p := pod.Net{IfName: a.id.ifName, Addrs: a.addrs, IPForward: a.s.conf.IPForward}
	v4, v6 := families(a.addrs)
	if len(a.routes) == 0 || a.s.conf.IncludeDefaultRoutes {
		p.DefaultV4, p.DefaultV6 = v4, v6
	}
	for _, r := range a.routes {
		plain := r == pod.Route{Dst: r.Dst}
		switch {
		case plain && r.Dst == defaultV4():
			p.DefaultV4 = v4
		case plain && r.Dst == defaultV6():
			p.DefaultV6 = v6
		case r.Dst.Addr().Is4() && v4, r.Dst.Addr().Is6() && v6:
			p.Routes = append(p.Routes, r)
		}
	}
	for _, r := range p.Routes {
		if r.Table == 0 && r.Metric == 0 { // it is that default route
			p.DefaultV4 = p.DefaultV4 && r.Dst != defaultV4()
			p.DefaultV6 = p.DefaultV6 && r.Dst != defaultV6()
		}
	}
	return p
}

// undo takes back what this call has written to etcd, or may have: a commit
// whose answer was lost counts.
func (a *attachment) undo(ctx context.Context) error {
	if !a.newAddrs && !a.newEndpoint && !a.renewed {
		return nil
	}
	return a.s.release(ctx, a.id, a.newAddrs && !a.delegated)
}
