// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// blockOf is the block that an address of the pools lies in.
func blockOf(a netip.Addr) netip.Prefix {
	for _, p := range racePools() {
		if p.CIDR.Contains(a) {
			return netip.PrefixFrom(a, p.BlockSize).Masked()
		}
	}
	return netip.Prefix{}
}

// stored reads one key past etcd's API, at a revision; 0 is now. It waits for a
// cluster that has no leader. Where it can't be read, at is 0.
func (r *race) stored(k model.Key, revision int64) (value any, at int64) {
	ctx, cancel := context.WithTimeout(r.ctx, lookPatience)
	defer cancel()
	err := eventually.Wait(ctx, "a look into etcd", func() error {
		got, err := r.lab.RawAt(ctx, k.Path(), revision)
		if err != nil {
			return err
		}
		value, at = nil, got.Revision
		for _, e := range got.Keys {
			if e.Key != k.Path() {
				continue // the path is the beginning of another's
			}
			if value, err = model.ParseValue(k, e.Value); err != nil {
				r.wrong("%s at revision %d: %v", e.Key, at, err)
			}
		}
		return nil
	})
	if err != nil {
		r.wrong("%s: %v", k.Path(), err)
	}
	r.sawRevision(at)
	return value, at
}

// sawRevision notes that etcd has come so far.
func (r *race) sawRevision(revision int64) {
	for {
		old := r.revision.Load()
		if revision <= old || r.revision.CompareAndSwap(old, revision) {
			return
		}
	}
}

// holder looks who has an address, and notes it for the history.
func (r *race) holder(s *slot, a netip.Addr) (handle string, revision int64) {
	cidr := blockOf(a)
	seen := sighting{by: s.racer.host.Name(), addr: a, begin: time.Since(r.start)}
	value, revision := r.stored(model.BlockKey{CIDR: cidr}, 0)
	if revision == 0 {
		return "", 0 // nothing was seen
	}
	seen.end, seen.revision = time.Since(r.start), revision
	if b, ok := value.(model.Block); ok {
		i := 0
		for at := cidr.Addr(); at != a; at = at.Next() {
			i++
		}
		if b.Allocations[i] != model.Free {
			seen.handle = b.Attributes[b.Allocations[i]].HandleID
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, seen)
	return seen.handle, revision
}

func (s *slot) endpoint() model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: s.racer.host.Name(), Orchestrator: "k8s", Workload: "race." + s.name, Endpoint: "eth0"}
}

// isTrue checks what an ADD has just said, in etcd and in the container.
func (r *race) isTrue(s *slot) {
	var revision int64
	for _, a := range s.addrs {
		if !blockOf(a).IsValid() {
			r.wrong("%s has %s, which is in no pool", s.cid, a)
			return
		}
		var handle string
		if handle, revision = r.holder(s, a); handle != handleOf(s.cid) {
			r.wrong("ADD gave %s to %s; at revision %d %q has it", a, s.cid, revision, handle)
		}
	}
	value, _ := r.stored(s.endpoint(), revision)
	e, _ := value.(model.WorkloadEndpoint)
	if e.ContainerID != s.cid || !slices.Equal(e.Addrs(), s.addrs) {
		r.wrong("ADD gave %v to %s; at revision %d its endpoint is %+v", s.addrs, s.cid, revision, e)
	}
	k, err := s.ns.Kernel()
	if err != nil {
		r.wrong("container %s: %v", s.cid, err)
	}
	for _, a := range s.addrs {
		if want := fmt.Sprintf("addr %s dev eth0", netip.PrefixFrom(a, a.BitLen())); !slices.Contains(k.Addrs, want) {
			r.wrong("ADD gave %s to %s; its kernel has not %q:\n  %s", a, s.cid, want, strings.Join(k.Lines(), "\n  "))
		}
	}
}

// isGone checks that nothing is left of a container.
func (r *race) isGone(s *slot) {
	r.hasNoInterface(s, "after DEL")
	for _, a := range s.addrs {
		if handle, revision := r.holder(s, a); handle == handleOf(s.cid) {
			r.wrong("after DEL of %s it has %s, at revision %d", s.cid, a, revision)
		}
	}
	if value, at := r.stored(model.HandleKey{ID: handleOf(s.cid)}, 0); value != nil {
		r.wrong("after DEL of %s its handle is there at revision %d: %+v", s.cid, at, value)
	}
	// The slot's next container comes after this.
	if value, at := r.stored(s.endpoint(), 0); value != nil {
		r.wrong("after DEL of %s its endpoint is there at revision %d: %+v", s.cid, at, value)
	}
}

func (r *race) hasNoInterface(s *slot, when string) {
	k, err := s.ns.Kernel()
	if err != nil {
		r.wrong("container %s: %v", s.cid, err)
	}
	if len(k.Lines()) > 0 {
		r.wrong("%s the kernel of container %s has\n  %s", when, s.cid, strings.Join(k.Lines(), "\n  "))
	}
}

// denial is an ADD that found no free address.
type denial struct {
	cid, text string
	v6        bool
	from, to  int64 // etcd's revision was at least from before, at most to after
}

func (r *race) deny(cid string, err error, from int64) {
	_, to := r.stored(model.ReadyKey{}, 0)
	d := denial{cid: cid, text: err.Error(), from: from, to: to}
	switch {
	case strings.HasPrefix(d.text, "no free IPv6 address"):
		d.v6 = true
	case !strings.HasPrefix(d.text, "no free IPv4 address"):
		r.wrong("ADD of %s: code %d doesn't say which address there is none of: %s", cid, codeOf(err), d.text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied = append(r.denied, d)
}

// justified reports whether each block that could be was full at some time
// during the call: hosts look at one after the other.
func (d denial) justified(l ledger) error {
	for _, p := range racePools() {
		if p.CIDR.Addr().Is6() != d.v6 {
			continue
		}
		block := netip.PrefixFrom(p.CIDR.Addr(), p.BlockSize)
		for p.CIDR.Contains(block.Addr()) {
			if !l.fullSometime(block, d.from, d.to) {
				return fmt.Errorf("ADD of %s, between revisions %d and %d, said: %s; block %s was never full then", d.cid, d.from, d.to, d.text, block)
			}
			next := block.Addr()
			for range 1 << (next.BitLen() - p.BlockSize) {
				next = next.Next()
			}
			block = netip.PrefixFrom(next, p.BlockSize)
		}
	}
	return nil
}
