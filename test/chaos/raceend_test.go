// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// rest has the containers that are left on each host ping each other.
func (r *race) rest() {
	pairs := 0
	for _, h := range r.hosts {
		var last *slot
		for _, s := range h.idle {
			if s.cid == "" {
				continue
			}
			if last != nil {
				pairs++
				for _, a := range s.addrs {
					if _, err := last.ns.Ping(r.ctx, a); err != nil {
						r.wrong("container %s to %s on host %s: %v", last.cid, s.cid, h.host.Name(), err)
					}
				}
			}
			last = s
		}
	}
	if r.Logf("%d pairs of containers have pinged each other", pairs); pairs == 0 {
		r.wrong("no host has two containers")
	}
}

// drain deletes the containers that are left, all at once.
func (r *race) drain() {
	var all sync.WaitGroup
	for _, h := range r.hosts {
		for _, s := range h.idle {
			if s.cid != "" {
				all.Go(func() { r.del(s, 0) })
			}
		}
	}
	all.Wait()
}

// nothingLeft checks that etcd and every kernel are as if nothing had been
// there, but for the blocks, which hosts keep.
func (r *race) nothingLeft() {
	ctx, cancel := context.WithTimeout(r.ctx, lookPatience)
	defer cancel()
	// What the agents report goes a little later.
	if err := eventually.Wait(ctx, "nothing to be left in etcd", func() error { return r.leftInEtcd(ctx) }); err != nil {
		r.wrong("%v", err)
	}
	for _, h := range r.hosts {
		if err := eventually.Wait(ctx, "an empty host", h.host.CheckEmpty); err != nil {
			r.wrong("%v", err)
		}
	}
	for _, h := range r.hosts {
		for _, s := range h.idle {
			r.hasNoInterface(s, "at the end")
		}
	}
}

func (r *race) leftInEtcd(ctx context.Context) error {
	begin := time.Since(r.start)
	entries, revision, err := r.lab.Dump(ctx)
	if err != nil {
		return err
	}
	end := time.Since(r.start)
	var left []string
	last := make(ledger)
	for _, e := range entries {
		switch e.Key.(type) {
		case model.HandleKey, model.WorkloadEndpointKey, model.WorkloadStatusKey:
			left = append(left, e.Path)
		}
		last.note(revision, e.Path, e)
	}
	holder := make(map[netip.Addr]string)
	for handle, addrs := range last.held() {
		left = append(left, fmt.Sprintf("%v, allocated to %s", addrs, handle))
		for _, a := range addrs {
			holder[a] = handle
		}
	}
	for _, a := range raceAddrs() {
		r.seen = append(r.seen, sighting{by: "the end", handle: holder[a], addr: a, begin: begin, end: end, revision: revision})
	}
	if len(left) > 0 {
		slices.Sort(left)
		return errors.New("left in etcd:\n  " + strings.Join(left, "\n  "))
	}
	return nil
}

// raceAddrs are all addresses of the pools.
func raceAddrs() []netip.Addr {
	var out []netip.Addr
	for _, p := range racePools() {
		for a := p.CIDR.Addr(); p.CIDR.Contains(a); a = a.Next() {
			out = append(out, a)
		}
	}
	return out
}
