// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// del undoes an ADD, whatever is left of it. The link goes first: an address
// must not be given to another while this pod can still use it. Only what goes
// back over the link, as a DHCP lease does, goes back a moment before.
func (s *session) del(ctx context.Context) error {
	id := newIdentity(s.conf.Name, s.node, s.env)
	s.log = s.log.With("endpoint", id.key.Workload, "link", id.hostIf)
	etcd, cancel := context.WithTimeout(ctx, s.conf.DatastoreTimeout)
	defer cancel()
	if err := s.lockInterface(etcd, id.hostIf); err != nil {
		return err
	}
	step("start")
	delegated := s.conf.IPAM.Type != netconf.CalicoIPAM
	// Addresses of our own, too: ipam.type may have changed since the ADD.
	r := &removal{s: s, id: id, addrs: true, unlocked: delegated}
	r.noted, _ = s.delegations().read(delegationOf(id))
	wants := r.firstRead()
	if !delegated {
		// They are old when the link is gone: with the host's lock what has changed is read again.
		wants = s.withHints(wants)
	}
	reading := s.begin(etcd, wants)
	var given error
	if s.asksOnLink() {
		given = s.giveBack(ctx, id)
	}
	r.unlinking = s.async(func() error { return r.unlink(etcd, reading) })
	// It takes the kernel long: not while the host's lock is held.
	_ = r.unlinking.wait() // its error counts below
	_, err := s.transact(etcd, r.transaction(reading))
	if unlinked := r.unlinking.wait(); unlinked != nil && !errors.Is(err, unlinked) {
		err = errors.Join(unlinked, err)
	}
	if err != nil {
		return err
	}
	step("released")
	if s.asksOnLink() {
		return given
	}
	return s.giveBack(ctx, id)
}

// removal takes what one container interface holds out of etcd and the kernel.
type removal struct {
	s         *session
	id        identity
	addrs     bool       // what our own address management gave goes too
	unlocked  bool       // it has most likely given nothing
	lenient   bool       // undo: also where etcd is not ready
	noted     delegation // as another IPAM plugin was asked for it
	unlinking *future
	linked    bool       // its link was here
	nameless  *link.Link // has the interface's name, and none of our aliases
	elsewhere bool       // the container is in another network by the interface
	also      []string   // other links that the endpoints live on
}

// release takes out of etcd what a failed ADD has written there.
func (s *session) release(ctx context.Context, id identity, addrs bool) error {
	if s.client == nil {
		return nil
	}
	r := &removal{s: s, id: id, addrs: addrs, lenient: true}
	return r.run(ctx)
}

// run takes what one container interface holds out of etcd.
func (r *removal) run(ctx context.Context) error {
	_, err := r.s.transact(ctx, r.transaction(r.s.begin(ctx, r.firstRead())))
	return err
}

func (r *removal) firstRead() []ipam.Want {
	wants := []ipam.Want{{Key: model.ReadyKey{}}}
	for _, key := range r.known() {
		wants = append(wants, ipam.Want{Key: key})
	}
	if r.addrs {
		wants = append(wants, ipam.FirstReadRelease(r.id.handle)...)
	}
	return wants
}

// known are the endpoints that the call knows of: by the names it was given, of which GC
// may have none, and by those that the ADD was.
func (r *removal) known() (keys []model.WorkloadEndpointKey) {
	none := model.WorkloadEndpointKey{}
	if r.id.key != none {
		keys = append(keys, r.id.key)
	}
	if r.noted.key != none && r.noted.key != r.id.key {
		keys = append(keys, r.noted.key)
	}
	return keys
}

func (r *removal) transaction(first *reading) transaction {
	return transaction{first: first, decide: r.decide, before: r.before, unlocked: r.unlocked || !r.addrs}
}

func (r *removal) decide(v *view) (model.Change, error) {
	if ready, ok := v.get(model.ReadyKey{}).Value.(model.Ready); ok && !bool(ready) && !r.lenient {
		return model.Change{}, v.checkReady()
	}
	var change model.Change
	var freed []netip.Addr
	if r.addrs {
		plan := ipam.NewPlan(v.ipam)
		var err error
		if freed, err = r.free(plan, v); err != nil {
			if !r.linked {
				r.s.askAhead()
			}
			return model.Change{}, err
		}
		others := false
		if !r.linked {
			if others, err = r.s.othersHave(v, r.id); err != nil {
				return model.Change{}, err
			}
		}
		if others {
			freed = nil
		} else {
			change = plan.Change()
		}
	}
	keys := r.known()
	r.also = nil
	if key, ok := r.attributed(v); ok && len(freed) > 0 && !slices.Contains(keys, key) {
		// The ADD knew the pod or the node by another name.
		if _, read := v.entries[key]; !read && !v.absent[key] {
			return model.Change{}, &ipam.NeedError{Wants: []ipam.Want{{Key: key}}}
		}
		keys = append(keys, key)
	}
	for _, key := range keys {
		entry := v.get(key)
		if !r.owns(entry, freed) {
			continue
		}
		if !r.linked {
			// The note, or the node's name, may have been copied, with the disk.
			if another, err := r.isAnother(v, key); err != nil {
				return model.Change{}, err
			} else if another {
				continue
			}
		}
		change.Compares = append(change.Compares, v.compare(key))
		change.Deletes = append(change.Deletes, key)
		if ep, ok := entry.Value.(model.WorkloadEndpoint); ok && ep.Name != r.id.hostIf {
			r.also = append(r.also, ep.Name)
		}
	}
	return change, nil
}

// free frees what the handle has, and what its endpoint's addresses show that it has.
func (r *removal) free(plan *ipam.Plan, v *view) ([]netip.Addr, error) {
	if r.unlocked {
		return plan.Release(r.id.handle, r.s.started, r.id.blocks...)
	}
	var had []netip.Addr
	for _, key := range r.known() {
		if ep, ok := v.get(key).Value.(model.WorkloadEndpoint); ok && r.owns(v.get(key), nil) {
			had = append(had, ep.Addrs()...)
		}
	}
	return r.s.free(plan, r.id, had)
}

// free frees what the handle has. Where somebody has deleted the handle, the blocks of the
// addresses that its container had tell which of those are its: a runtime passes the ADD's result.
func (s *session) free(plan *ipam.Plan, id identity, had []netip.Addr) ([]netip.Addr, error) {
	freed, err := plan.Release(id.handle, s.started, id.blocks...)
	if err != nil {
		return nil, err
	}
	if previous, err := s.prevResult(id); err == nil && s.env.command == "DEL" {
		had = append(had, previous.addrs...)
	}
	missing := slices.DeleteFunc(had, func(a netip.Addr) bool { return slices.Contains(freed, a) })
	blocks, err := plan.BlocksOf(id.handle, missing)
	switch {
	case err != nil:
		return nil, err
	case len(blocks) > 0:
		more, err := plan.Release(id.handle, s.started, blocks...)
		return append(freed, more...), err
	case len(freed) == 0:
		return nil, plan.ReadOwn(id.handle, s.node)
	}
	return freed, nil
}

// isAnother reports whether an endpoint that the container is said to have is another node's.
func (r *removal) isAnother(v *view, key model.WorkloadEndpointKey) (bool, error) {
	switch key {
	case r.id.key:
		return false, r.s.checkName(v)
	case r.noted.key:
		if key.Host == r.s.node {
			return false, r.s.checkName(v)
		}
		return r.s.isAnother(v, key.Host)
	}
	return false, nil // its addresses were asked about
}

// attributed is the endpoint that the handle's addresses were given to, as the
// block says. The node may have had another name.
func (r *removal) attributed(v *view) (model.WorkloadEndpointKey, bool) {
	for _, e := range v.entries {
		b, _ := e.Value.(model.Block)
		for _, a := range b.Attributes {
			if a.HandleID == r.id.handle && a.Secondary["node"] != "" && a.Secondary["workload"] != "" {
				return model.WorkloadEndpointKey{
					Host: a.Secondary["node"], Orchestrator: a.Secondary["orchestrator"],
					Workload: a.Secondary["workload"], Endpoint: r.id.ifName,
				}, true
			}
		}
	}
	return model.WorkloadEndpointKey{}, false
}

// owns reports whether the endpoint is still this container's. One that does
// not parse is nobody's and goes; one without a container, written by other
// software, is ours if its addresses are. One whose link is another network's is
// that network's: runtimes ask for a DEL after an ADD that was refused for it.
func (r *removal) owns(entry model.Entry, freed []netip.Addr) bool {
	endpoint, ok := entry.Value.(model.WorkloadEndpoint)
	switch {
	case !entry.Exists():
		return false
	case !ok:
		return true
	case r.elsewhere && endpoint.Name == r.id.hostIf:
		return false
	case endpoint.ContainerID != "":
		return endpoint.ContainerID == r.id.cid
	}
	addrs := endpoint.Addrs()
	for _, a := range addrs {
		if !slices.Contains(freed, a) {
			return false
		}
	}
	return len(addrs) > 0
}

// before lets the commit wait until the link is gone.
func (r *removal) before(v *view) error {
	if r.unlinking != nil {
		if err := r.unlinkAlso(); err != nil {
			return err
		}
	}
	if r.nameless == nil {
		return nil
	}
	l := *r.nameless
	e, ok := v.get(r.id.key).Value.(model.WorkloadEndpoint)
	switch mine := e.ContainerID == r.id.cid && e.Name == l.Name; {
	case ok && e.ContainerID != r.id.cid:
		// The interface has an owner by now.
		return nil
	case l.Alias != "" && !mine:
		r.s.log.Info("leaving a link that is not this container's", "alias", l.Alias)
		return nil
	}
	// Its maker died before it could say whose it is, or somebody has written something else there.
	r.nameless = nil
	return deleteLink(l)
}

// unlinkAlso removes the links that the endpoints live on, when the container's own is gone.
func (r *removal) unlinkAlso() error {
	if err := r.unlinking.wait(); err != nil {
		return err
	}
	for _, name := range r.also {
		l, err := link.Find(name)
		if err == nil && l.Alias == r.id.alias {
			err = deleteLink(l)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fail(CodeKernel, err, "")
		}
	}
	return nil
}

// unlink removes the host's end, and with it the pod's, if it is this
// container's.
func (r *removal) unlink(ctx context.Context, reading *reading) error {
	if name := r.noted.hostIf; name != "" && name != r.id.hostIf {
		if err := r.unlinkNoted(name); err != nil {
			return err
		}
	}
	l, err := link.Find(r.id.hostIf)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fail(CodeKernel, err, "")
	case l.Alias == r.id.alias:
		if others, err := r.isOthers(ctx, l, reading); err != nil || others {
			return err
		}
		r.linked = true
		return deleteLink(l)
	case unnamed(l), relabelled(l):
		r.nameless = &l
	default:
		r.elsewhere = r.id.sameInterface(l.Alias)
		r.s.log.Info("leaving a link that is not this container's", "alias", l.Alias)
	}
	return nil
}

// isOthers reports whether an endpoint of other names, which make the same alias, lives on
// the link. Without etcd the alias counts.
func (r *removal) isOthers(ctx context.Context, l link.Link, reading *reading) (bool, error) {
	if !r.id.dotted() || reading.wait() != nil {
		return false, nil
	}
	if ep, ok := reading.v.get(r.id.key).Value.(model.WorkloadEndpoint); ok && ep.Name == l.Name && ep.ContainerID == r.id.cid {
		return false, nil
	}
	owner, others, err := r.s.ownerOf(ctx, l.Name, r.id.key)
	if others {
		r.s.log.Info("leaving a link that is not this container's", "alias", l.Alias, "endpoint", owner)
	}
	return others, err
}

// unlinkNoted removes the host's end that the ADD made under another name.
func (r *removal) unlinkNoted(name string) error {
	l, err := link.Find(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fail(CodeKernel, err, "")
	case l.Alias != r.id.alias:
		if r.id.sameInterface(l.Alias) { // and so is the endpoint another network's
			r.noted.key = model.WorkloadEndpointKey{}
		}
		return nil
	}
	r.linked = true
	return deleteLink(l)
}

func deleteLink(l link.Link) error {
	step("before link deleted")
	if err := link.DeleteFound(l); err != nil {
		return fail(CodeKernel, err, "try again")
	}
	step("link deleted")
	return nil
}
