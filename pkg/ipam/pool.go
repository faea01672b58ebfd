// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// check sets the block size and the selectors, and p.err if no addresses can be assigned from the pool.
func (p *pool) check() {
	v6 := isV6(p.CIDR)
	if p.BlockSize == 0 {
		p.BlockSize = model.DefaultBlockSize(v6)
	}
	// A pool that is smaller than a block has a single block: the pool itself.
	p.BlockSize = max(p.BlockSize, p.CIDR.Bits())
	if low := largestBlock(v6); p.BlockSize < low || p.BlockSize > p.CIDR.Addr().BitLen() {
		p.err = fmt.Errorf("block_size %d: want %d to %d", p.BlockSize, low, p.CIDR.Addr().BitLen())
		return
	}
	if p.NodeSelector != "" {
		if p.selector, p.err = selector.Parse(p.NodeSelector); p.err != nil {
			p.err = fmt.Errorf("node_selector: %w", p.err)
			return
		}
	}
	if p.NamespaceSelector != "" && p.NamespaceSelector != "all()" {
		if p.spaces, p.err = selector.Parse(p.NamespaceSelector); p.err != nil {
			p.err = fmt.Errorf("namespace_selector: %w", p.err)
		}
	}
}

// refuses says why the pool may serve no host, "" if it may.
func (p *pool) refuses() string {
	switch {
	case p.err != nil:
		return "invalid: " + p.err.Error()
	case p.Disabled:
		return "disabled"
	case !p.IPAM:
		return "its ipam is false"
	case p.under != nil:
		return fmt.Sprintf("it overlaps pool %s, which is older", p.under.CIDR)
	}
	return ""
}

// picks reports whether the node selector matches a host with these labels.
func (p *pool) picks(labels map[string]string) bool {
	return p.selector == nil || p.selector.Matches(func(name string) (string, bool) { v, ok := labels[name]; return v, ok })
}

// labels returns a host's labels from its metadata.
func (x *index) labels(host string) map[string]string {
	m, _ := x.view.Get(model.HostMetadataKey{Host: host}).Value.(model.HostMetadata)
	return m.Labels
}

// blockOf returns the block of the pool's size that contains the address.
func (p *pool) blockOf(a netip.Addr) netip.Prefix {
	return netip.PrefixFrom(a, p.BlockSize).Masked()
}

// eligible has the pools that may serve one family of a request, in the order in which they are tried: requested pools
// in the order of the request, those that pick the node first; otherwise by CIDR.
type eligible struct {
	v6      bool
	pools   []*pool
	refused []PoolReason
}

func (e *eligible) has(p *pool) bool { return p != nil && slices.Contains(e.pools, p) }

// eligible returns an error for requested pools that don't exist, and for a namespace that isn't known where a pool selects
// namespaces: it never skips a pool silently.
func (x *index) eligible(r Request, v6 bool) (*eligible, error) {
	labels, use := r.HostLabels, model.ForWorkloads
	if r.Tunnel {
		use = model.ForTunnels
	}
	if labels == nil {
		labels = x.labels(r.Host)
	}
	e := &eligible{v6: v6}
	var all []*pool
	for _, p := range x.pools {
		if isV6(p.CIDR) == v6 {
			all = append(all, p)
		}
	}
	candidates, requested := all, r.requested(v6)
	if len(requested) > 0 {
		candidates = nil
		for _, ref := range requested {
			i := slices.IndexFunc(all, func(p *pool) bool { return ref.Names(p.Pool) })
			if i < 0 {
				return nil, x.unknownPool(ref, v6)
			}
			if !slices.Contains(candidates, all[i]) {
				candidates = append(candidates, all[i])
			}
		}
	}
	var parked []*pool // requested, though their selector doesn't match the node
	for _, p := range candidates {
		why, picked := p.refuses(), p.picks(labels)
		if why == "" && !picked && (len(requested) == 0 || r.Picked) {
			why = fmt.Sprintf("its node_selector %s does not pick this node", p.NodeSelector)
		}
		if why == "" && !p.Serves(use) {
			why = fmt.Sprintf("its allowed_uses, %s, are without %s", p.AllowedUses, use)
		}
		if why == "" && len(requested) == 0 && !r.named(v6) {
			var err error
			if why, err = x.unasked(p, r); err != nil {
				return nil, err
			}
		}
		switch {
		case why != "" && !(r.Living && p.err == nil):
			e.refused = append(e.refused, PoolReason{p.CIDR, why})
		case picked:
			e.pools = append(e.pools, p)
		default:
			parked = append(parked, p)
		}
	}
	e.pools = append(e.pools, parked...)
	return e, nil
}

// unasked says why the pool does not serve a request that names neither the pool nor an address, "" if it does.
func (x *index) unasked(p *pool, r Request) (why string, err error) {
	switch {
	case r.Namespace == AnyNamespace:
		return "", nil
	case p.Manual:
		return "its assignment_mode is Manual, and nothing asks for it", nil
	case p.spaces == nil:
		return "", nil
	case r.Namespace == "":
		return fmt.Sprintf("its namespace_selector %s is for pods of Kubernetes", p.NamespaceSelector), nil
	}
	e := x.view.Get(r.namespaceLabels())
	labels, ok := e.Value.(model.Labels)
	switch {
	case e.Err != nil:
		return "", &InvalidError{Path: e.Path, Err: e.Err}
	case !ok:
		return "", &UnknownNamespaceError{Namespace: r.Namespace, Pool: p.CIDR}
	}
	if p.spaces.Matches(func(name string) (string, bool) {
		if name == "projectcalico.org/name" {
			return r.Namespace, true
		}
		v, ok := labels[model.NamespaceLabel+name]
		return v, ok
	}) {
		return "", nil
	}
	return fmt.Sprintf("its namespace_selector %s does not pick namespace %s", p.NamespaceSelector, r.Namespace), nil
}

func (x *index) unknownPool(ref model.PoolRef, v6 bool) error {
	err := &UnknownPoolError{IPv6: v6, Pool: ref}
	for _, p := range x.pools {
		switch {
		case isV6(p.CIDR) != v6:
			err.Other = err.Other || ref.Names(p.Pool)
		case ref.CIDR.IsValid():
			err.Exists = append(err.Exists, p.CIDR.String())
		default:
			err.Exists = append(err.Exists, p.ResourceName())
		}
	}
	return err
}
