// SPDX-License-Identifier: Apache-2.0

package doubles

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/plan"
)

// Fabric stands for fabric.Fabric. Its fields are read and changed within Do. The zero value holds nothing.
type Fabric struct {
	kernel[struct{}]
	Fail    error            // of every Apply and ApplySome
	Lacking []fabric.Problem // always
	Links   []netip.Prefix   // a next hop elsewhere can't be reached; none = all can
	Held    plan.State

	wanted plan.State
}

// Apply is fabric.Fabric's.
func (f *Fabric) Apply(ctx context.Context, desired plan.State) (fabric.Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted = desired.Clone()
	return f.converge(ctx, func(netip.Prefix) bool { return true })
}

// ApplySome is fabric.Fabric's. What isn't asked for stays as it is held.
func (f *Fabric) ApplySome(ctx context.Context, c plan.Changes) (fabric.Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted.Apply(c)
	drift := f.drift
	if c.Devices == nil {
		f.drift = 0 // isn't looked for
	}
	r, err := f.converge(ctx, func(p netip.Prefix) bool { _, is := c.Routes[p]; return is || c.Devices != nil })
	if c.Devices == nil {
		f.drift = drift
	}
	return r, err
}

// converge has what is wanted be held of the routes that are asked for, and of all else, and reports on it.
func (f *Fabric) converge(ctx context.Context, asked func(netip.Prefix) bool) (fabric.Report, error) {
	if err := cmp.Or(ctx.Err(), f.Fail); err != nil {
		return fabric.Report{}, err
	}
	r := fabric.Report{Problems: slices.Clone(f.Lacking), Repairs: f.drift}
	next := f.wanted.Clone()
	maps.DeleteFunc(next.Routes, func(p netip.Prefix, route plan.Route) bool {
		lost := slices.ContainsFunc(route.Hops, f.lost)
		if lost && asked(p) {
			r.Problems = append(r.Problems, fabric.Problem{Subject: p.String(), Err: errors.New("there is no way to a next hop")})
		}
		return lost || !asked(p)
	})
	for p, route := range f.Held.Routes {
		if !asked(p) {
			next.Routes[p] = route
		}
	}
	r.Writes = differences(f.Held.Routes, next.Routes) + differences(f.Held.Remotes, next.Remotes) + f.drift
	if !reflect.DeepEqual(f.Held.Tunnels, next.Tunnels) {
		r.Writes++
	}
	f.Held, f.drift = next, 0
	slices.SortFunc(r.Problems, func(a, b fabric.Problem) int { return strings.Compare(a.Subject, b.Subject) })
	return r, nil
}

// lost says whether a next hop is on no link.
func (f *Fabric) lost(h plan.Hop) bool {
	return f.Links != nil && !slices.ContainsFunc(f.Links, func(l netip.Prefix) bool { return l.Contains(h.Gateway) })
}

// differences counts the keys that have not the same in both.
func differences[K comparable, V any](a, b map[K]V) (n int) {
	for k, v := range a {
		if w, ok := b[k]; !ok || !reflect.DeepEqual(v, w) {
			n++
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			n++
		}
	}
	return n
}

// Close is fabric.Fabric's.
func (f *Fabric) Close() {}
