// SPDX-License-Identifier: Apache-2.0

package reentry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

const (
	// auditPeriod is how often the host's allocations are read, auditAgain while something is wrong with them; auditPause is the least
	// pause between audits.
	auditPeriod = 10 * time.Minute
	auditAgain  = time.Minute
	auditPause  = 5 * time.Second
	// allocation is the kind of these problems in the ledger.
	allocation = "allocation"
)

// Run audits this host's addresses in etcd until the context ends; the error is always nil.
func (k *Pods) Run(ctx context.Context) error {
	for wait := auditPeriod; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-time.After(wait):
		}
		if wait = auditAgain; k.audit(ctx) {
			wait = auditPeriod
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(auditPause):
		}
	}
}

// look starts an audit when etcd is read again, and when a block of this host changes by itself: plugins change it together with an
// endpoint.
func (k *Pods) look(u model.Update) {
	byItself := false
	for _, e := range u.Entries {
		if key, ok := e.Key.(model.WorkloadEndpointKey); ok && key.Host == k.Node {
			byItself = false
			break
		}
		b, ok := e.Value.(model.Block)
		byItself = byItself || ok && b.Affinity == k.Node
	}
	if u.Resync || byItself {
		k.wake.Send()
	}
}

// review retries what a re-entry left undone, for pods that still exist: an address that another pod had may be free by now. It reports
// whether nothing is left.
func (k *Pods) review(ctx context.Context, links []link.Link) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	k.left, err = k.enterEach(ctx, slices.DeleteFunc(k.left, func(l living) bool { return isGone(links, l.key, l.spec) }), true)
	k.Problems.Tell(problems.Host, part, err)
	return len(k.left) == 0
}

// audit allocates addresses that blocks call free to the living endpoints that use them, and lists what else is wrong with the host's
// affinities, its blocks and their handles. It also reviews what a re-entry left undone. It reports whether all is in order.
func (k *Pods) audit(ctx context.Context) bool {
	links, err := k.listLinks()
	if err != nil || k.Naming.Get() != "" {
		return false
	}
	reviewed := k.review(ctx, links)
	var found map[string]string
	for claimed := "first"; claimed != ""; {
		if found, claimed, err = k.auditOnce(ctx, links); err != nil {
			return false // etcd's absence is reported elsewhere
		}
		if claimed != "" {
			k.Logger.Warn("a block called an address of a living endpoint free: it is allocated to it again", "endpoint", claimed)
		}
	}
	k.listed.Set(found)
	return reviewed && len(found) == 0
}

// auditOnce returns what is wrong, by key. If it allocated an endpoint's addresses to it, claimed is that endpoint, which is not in found.
func (k *Pods) auditOnce(ctx context.Context, links []link.Link) (found map[string]string, claimed string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = k.Etcd.Transact(ctx, nil, func(v *model.View) (change model.Change, err error) {
		found, claimed = map[string]string{}, ""
		r := auditReading{view: v, host: k.Node, seen: map[model.Key]bool{}}
		if r.read(); len(r.need) > 0 {
			return change, &model.NeedRangesError{Ranges: r.need}
		}
		if v.Get(model.ReadyKey{}).Value != model.Ready(true) {
			return change, errors.New(model.ReadyKey{}.Path() + " is not true")
		}
		for _, e := range r.dump {
			if e.Key == nil && strings.HasPrefix(e.Path, model.AffinityPrefix(k.Node)) {
				found[e.Path] = fmt.Sprintf("%v: delete it", e.Err)
			}
		}
		for _, of := range invariants.Repairs(v, r.dump) {
			if !r.concerns(of.Violation) {
				continue
			}
			key, _ := of.Key.(model.WorkloadEndpointKey)
			spec, _ := v.Get(key).Value.(model.WorkloadEndpoint)
			if l, lives := k.find(links, key, spec); lives && claimed == "" {
				p := ipam.NewPlan(v)
				err := l.assign(p, r.inBlock)
				if _, more := errors.AsType[*model.NeedRangesError](err); more {
					return change, err
				}
				if change = p.Change(); err == nil {
					change.Compares = append(change.Compares, v.Compare(key))
					claimed = key.Path()
					continue
				}
			}
			remedy := of.ByHand()
			if of.Before || !of.Change.Empty() {
				remedy = "run calicoctl ipam repair --force"
			}
			if path := of.Key.Path(); found[path] == "" {
				found[path] = of.Text + ": " + remedy
			} else {
				found[path] += "; " + of.Text + ": " + remedy
			}
		}
		return change, nil
	})
	return found, claimed, err
}

// auditReading is what an audit reads: the host's endpoints and affinities, the blocks of both, the handles of its own blocks, and the
// other blocks that these handles count.
type auditReading struct {
	view *model.View
	host string
	seen map[model.Key]bool
	need []model.Range
	dump []model.Entry
}

func (r *auditReading) all(of model.Range) []model.Entry {
	entries, ok := r.view.Read(of)
	if !ok {
		r.need = append(r.need, of)
	}
	return entries
}

// get reads a key into the dump, once.
func (r *auditReading) get(key model.Key) any {
	if !r.seen[key] {
		r.seen[key] = true
		if !r.view.Has(key) {
			r.need = append(r.need, model.KeyRange(key))
		} else if e := r.view.Get(key); e.Exists() {
			r.dump = append(r.dump, e)
		}
	}
	return r.view.Get(key).Value
}

func (r *auditReading) read() {
	r.get(model.ReadyKey{})
	endpoints := r.all(model.PrefixRange(model.WorkloadEndpointPrefix(r.host)))
	affinities := r.all(model.Range{Prefix: model.AffinityPrefix(r.host), KeysOnly: true})
	r.dump = append(append(r.dump, endpoints...), affinities...)
	var handles []model.Attributes
	for _, e := range affinities {
		if key, ok := e.Key.(model.AffinityKey); ok {
			if b, _ := r.get(model.BlockKey{CIDR: key.CIDR}).(model.Block); b.Affinity == r.host {
				handles = append(handles, b.Attributes...)
			}
		}
	}
	if len(r.need) > 0 {
		return
	}
	for _, e := range endpoints {
		spec, _ := e.Value.(model.WorkloadEndpoint)
		for _, a := range spec.Addrs() {
			if r.inBlock(a) {
				continue
			}
			for _, b := range r.all(model.Range{Prefix: model.BlockPrefix(a.Is6()), KeysOnly: true}) {
				if key, ok := b.Key.(model.BlockKey); ok && key.CIDR.Contains(a) {
					r.get(key)
				}
			}
		}
	}
	for _, at := range handles {
		for _, legacy := range []bool{false, true} {
			handle, _ := r.get(model.HandleKey{ID: at.HandleID, Legacy: legacy}).(model.Handle)
			for c := range handle.Blocks {
				r.get(model.BlockKey{CIDR: c})
			}
		}
	}
}

// inBlock reports whether a block that was read contains the address.
func (r *auditReading) inBlock(a netip.Addr) bool {
	return slices.ContainsFunc(r.dump, func(e model.Entry) bool {
		key, ok := e.Key.(model.BlockKey)
		return ok && key.CIDR.Contains(a)
	})
}

// concerns reports whether the audit must report a violation: what it read suffices to find it, and nothing else reports it. Other parts of
// the agent report unreadable keys and overlapping blocks.
func (r *auditReading) concerns(v invariants.Violation) bool {
	switch key := v.Key.(type) {
	case model.BlockKey:
		b, _ := r.view.Get(key).Value.(model.Block)
		return v.Invariant > 1 && b.Affinity == r.host
	case model.WorkloadEndpointKey:
		return v.Invariant == 5
	case model.AffinityKey, model.HandleKey:
		return true
	}
	return false
}
