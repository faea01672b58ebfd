// SPDX-License-Identifier: Apache-2.0

package doubles

import (
	"cmp"
	"context"
	"errors"
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

// ApplySome is fabric.Fabric's.
func (f *Fabric) ApplySome(ctx context.Context, c plan.Changes) (fabric.Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted.Apply(c)
	drift := f.drift
	if c.Devices == nil {
		f.drift = 0 // isn't looked for
	}
	r, err := f.converge(ctx, func(p netip.Prefix) bool { return c.Devices != nil || c.Routes[p] != nil })
	if c.Devices == nil {
		f.drift = drift
	}
	return r, err
}

// converge has what is wanted be held, and reports on what was asked for.
func (f *Fabric) converge(ctx context.Context, asked func(netip.Prefix) bool) (fabric.Report, error) {
	if err := cmp.Or(ctx.Err(), f.Fail); err != nil {
		return fabric.Report{}, err
	}
	r := fabric.Report{Problems: slices.Clone(f.Lacking), Repairs: f.drift}
	next := f.wanted.Clone()
	for p, route := range next.Routes {
		if slices.ContainsFunc(route.Hops, f.lost) {
			delete(next.Routes, p)
			if asked(p) {
				r.Problems = append(r.Problems, fabric.Problem{Subject: p.String(), Err: errors.New("there is no way to a next hop")})
			}
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
