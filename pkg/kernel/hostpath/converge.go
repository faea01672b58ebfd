// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxRounds is how many times differences are written: a second time for links that came or were replaced since the first reading, which is
// normal.
const maxRounds = 2

// converge reads, writes the differences and reads again. removed are interfaces that have just left the desired state.
func (h *Path) converge(ctx context.Context, read func() (*state, error), removed map[string]bool) (Report, error) {
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	var report Report
	h.convergeHost(&report)
	failed := make(map[string]error)
	for round := 0; ; round++ {
		st, err := read()
		if err != nil {
			return Report{}, err
		}
		plans := h.plan(st)
		todo := slices.DeleteFunc(slices.Clone(plans), func(p interfacePlan) bool { return failed[p.name] != nil || len(p.changes) == 0 })
		if round == maxRounds || len(todo) == 0 {
			h.settle(&report, st, plans, failed)
			return report, nil
		}
		if err := h.execute(ctx, todo); err != nil {
			return Report{}, err
		}
		h.account(&report, st, todo, failed, removed)
	}
}

// account records the results of the changes.
func (h *Path) account(report *Report, st *state, plans []interfacePlan, failed map[string]error, removed map[string]bool) {
	for _, p := range plans {
		n := 0
		for _, c := range p.changes {
			if c.err != nil {
				failed[p.name] = errors.Join(failed[p.name], fmt.Errorf("%s: %w", c.what, c.err))
				continue
			}
			n++
			if c.lost.IsValid() {
				report.Lost = append(report.Lost, c.lost)
			}
			if c.leads.IsValid() && !h.ready {
				report.Lost = append(report.Lost, c.leads)
			}
		}
		report.Writes += n
		if n > 0 && h.drifted(p.name, st, removed) {
			report.Repairs += n
			if h.repairs.Say(p.name, time.Now()) {
				h.cfg.Logger.Warn("repaired a workload interface that something else changed",
					slog.String("interface", p.name), slog.Int("changes", n), slog.String("first", p.changes[0].what))
			}
		}
	}
}

// drifted reports whether what differed had been right before.
func (h *Path) drifted(name string, st *state, removed map[string]bool) bool {
	e, wanted := h.desired.endpoints[name]
	if !wanted {
		return h.ready && !removed[name]
	}
	was, ok := h.settled[name]
	return ok && was.endpoint.equal(e) && was.index == st.links[name].Index
}

// settle reports what is still to do according to the last reading.
func (h *Path) settle(report *Report, st *state, plans []interfacePlan, failed map[string]error) {
	for _, p := range plans {
		e, wanted := h.desired.endpoints[p.name]
		err := p.err
		for _, c := range p.changes {
			err = errors.Join(err, fmt.Errorf("read back: still to do: %s", c.what))
		}
		if err != nil && failed[p.name] != nil {
			err = failed[p.name]
		}
		l := st.links[p.name]
		if (!wanted || link.IsAnothers(l.Alias, e.Container)) && l.Up && l.Alias != "" {
			report.Stale = append(report.Stale, StaleLink{l.Name, l.Alias})
		}
		switch {
		case !wanted && err != nil:
			report.Problems = append(report.Problems, fmt.Errorf("clean %s: %w", p.name, err))
		case !wanted:
		case err != nil:
			report.Endpoints = append(report.Endpoints, Status{p.name, err})
			delete(h.settled, p.name)
		default:
			report.Endpoints = append(report.Endpoints, Status{p.name, nil})
			h.settled[p.name] = settled{e, l.Index}
		}
	}
}

// execute makes the changes: sysctls, then additions, then removals. Failures are recorded in the changes; the error is the context's, or
// says that the namespace can't be entered.
func (h *Path) execute(ctx context.Context, plans []interfacePlan) error {
	var sysctls, early, late []*change
	for _, p := range plans {
		for _, c := range p.changes {
			switch {
			case c.sysctl:
				sysctls = append(sysctls, c)
			case c.late:
				late = append(late, c)
			default:
				early = append(early, c)
			}
		}
	}
	if len(sysctls) > 0 {
		err := h.inNamespace(func() error {
			for _, c := range sysctls {
				c.err = c.make(h)
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	for _, c := range append(early, late...) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.err = c.make(h); c.late && rtnl.IsGone(c.err) {
			c.err = nil
		}
	}
	return nil
}

// addRoute adds a route. An existing route of ours to the same destination is replaced without a gap, and so is one by the same link, which
// older versions of Calico added with other protocols; a foreign one stays.
func (h *Path) addRoute(want rtnl.Route) error {
	err := h.conn.RouteAdd(want.Netlink())
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	var ours []rtnl.Route
	var foreign error
	older := false
	err = h.conn.Routes(rtnl.FamilyOf(want.Dst.Addr()), netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE, func(n netlink.Route) {
		r, _ := rtnl.RouteOf(n)
		switch {
		case r.Dst != want.Dst || r.Metric != want.Metric || r == want:
		case r.Protocol == h.cfg.Protocol:
			ours = append(ours, r)
		case r.Index == want.Index && !r.Local:
			older = true
		default:
			foreign = fmt.Errorf("there is a route by %s that is not ours, of protocol %d: delete it with `ip route del %s proto %d`, or give the workload another address",
				h.nameOf(r.Index), r.Protocol, r.Dst, r.Protocol)
		}
	})
	switch err = errors.Join(err, foreign); {
	case err == nil && older:
		return h.conn.RouteReplace(want.Netlink())
	case err != nil || len(ours) == 0:
		return err
	}
	err = h.conn.RouteAddEcmp(want.Netlink())
	for _, r := range ours {
		if failed := h.conn.RouteDel(r.Netlink()); failed != nil && !rtnl.IsGone(failed) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// nameOf returns the name of the link with the index.
func (h *Path) nameOf(index int) string {
	if l, err := link.Get(h.conn, index, ""); err == nil {
		return l.Name
	}
	return fmt.Sprintf("link %d", index)
}
