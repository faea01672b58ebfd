// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// change is one difference between the desired state and the kernel's.
type change struct {
	rtnl.Change
	lost   netip.Addr  // the address that a deleted route led to
	leads  netip.Addr  // that a new one leads to, and none by this interface did
	add    *rtnl.Route // the route that the first request adds unless there is one
	sysctl string      // or, instead of requests: below net, set to value
	value  string
}

// interfacePlan is what one interface needs.
type interfacePlan struct {
	name    string
	changes []*change
	err     error // why something cannot be done now
}

// maxRounds is how often is written what a reading finds to do: once more for links that came
// or were replaced since the reading before, which is nobody's mistake.
const maxRounds = 2

// extent is how much converge is about.
type extent struct {
	host    func(*Report) // sees to the host as a whole
	read    func() (*state, error)
	removed map[string]bool // interfaces that have just left the desired state
}

// converge reads, writes the difference and reads again.
func (h *Path) converge(ctx context.Context, of extent) (Report, error) {
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	var report Report
	before := h.right
	h.right = nil
	of.host(&report)
	st, err := of.read()
	if err != nil {
		return Report{}, err
	}
	plans := h.plan(st)
	failed := make(map[string]error)
	for round := 1; ; round++ {
		made, err := h.write(ctx, &report, st, plans, failed, of.removed)
		if err != nil {
			return Report{}, err
		}
		if made == 0 {
			break
		}
		if st, err = of.read(); err != nil {
			return Report{}, err
		}
		plans = h.plan(st)
		if round == maxRounds || !slices.ContainsFunc(plans, func(p interfacePlan) bool { return len(p.changes) > 0 && failed[p.name] == nil }) {
			break
		}
	}
	h.settle(&report, st, plans, failed)
	if report.Writes == 0 {
		h.right = before
	}
	return report, nil
}

// write makes the changes of the plans but those of interfaces that failed, notes what
// fails, and returns how many it made.
func (h *Path) write(ctx context.Context, report *Report, st *state, plans []interfacePlan, failed map[string]error, removed map[string]bool) (made int, err error) {
	plans = slices.DeleteFunc(slices.Clone(plans), func(p interfacePlan) bool { return failed[p.name] != nil })
	if err := h.execute(ctx, plans); err != nil {
		return 0, err
	}
	for _, p := range plans {
		n := 0
		for _, c := range p.changes {
			if c.Err != nil {
				failed[p.name] = errors.Join(failed[p.name], fmt.Errorf("%s: %w", c.What, c.Err))
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
		made += n
		if n > 0 && h.drifted(p.name, st, removed) {
			report.Repairs += n
			if say := h.repairs.Say(p.name, n, time.Now()); say > 0 {
				h.cfg.Logger.Warn("repaired a workload interface that something else changed",
					slog.String("interface", p.name), slog.Int("changes", say), slog.String("first", p.changes[0].What))
			}
		}
	}
	report.Writes += made
	return made, nil
}

// drifted says whether what was found differing had been right before.
func (h *Path) drifted(name string, st *state, removed map[string]bool) bool {
	e, wanted := h.desired[name]
	if !wanted {
		return h.ready && !removed[name]
	}
	was, ok := h.settled[name]
	return ok && was.endpoint.equal(e) && was.index == st.links[name].Index
}

// settle reports what the plans after the last read say is still to do.
func (h *Path) settle(report *Report, st *state, plans []interfacePlan, failed map[string]error) {
	for _, p := range plans {
		e, wanted := h.desired[p.name]
		err := p.err
		for _, c := range p.changes {
			err = errors.Join(err, fmt.Errorf("read back: still to do: %s", c.What))
		}
		if err != nil && failed[p.name] != nil {
			err = failed[p.name]
		}
		if !wanted {
			report.stray(st.links[p.name])
			if err != nil {
				report.Problems = append(report.Problems, fmt.Errorf("clean %s: %w", p.name, err))
			}
			continue
		}
		if l := st.links[p.name]; link.IsAnothers(l.Alias, e.Container) {
			report.stray(l)
		}
		report.Endpoints = append(report.Endpoints, Status{p.name, err})
		if err == nil {
			h.settled[p.name] = settled{e, st.links[p.name].Index}
		} else {
			delete(h.settled, p.name)
		}
	}
}

// stray notes a link that no endpoint of its container has, if there is one.
func (r *Report) stray(l link.Link) {
	if l.Up && l.Alias != "" {
		r.Strays = append(r.Strays, Stray{l.Name, l.Alias})
	}
}

// execute makes the changes: what adds before what takes away. Failures stand in
// the changes; the error is of the socket or the context.
func (h *Path) execute(ctx context.Context, plans []interfacePlan) error {
	var early, late, sysctls []*change
	for _, p := range plans {
		for _, c := range p.changes {
			switch {
			case c.sysctl != "":
				sysctls = append(sysctls, c)
			case c.Late:
				late = append(late, c)
			default:
				early = append(early, c)
			}
		}
	}
	if len(sysctls) > 0 {
		err := h.ns.Enter(func() error {
			for _, c := range sysctls {
				if strings.HasSuffix(c.sysctl, "/forwarding") {
					c.Err = h.forwardIPv6(c.sysctl)
				} else {
					c.Err = rtnl.WriteSysctl(c.sysctl, c.value)
				}
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(append(early, late...), rtnl.MaxBatch) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := h.send(batch); err != nil {
			return err
		}
	}
	return nil
}

func (h *Path) send(changes []*change) error {
	writes := make([]*rtnl.Change, len(changes))
	for i, c := range changes {
		writes[i] = &c.Change
	}
	if err := h.sock.CarryOut(writes); err != nil {
		return err
	}
	for _, c := range changes {
		if c.add != nil && errors.Is(c.Err, unix.EEXIST) {
			refused, err := h.takeOver(*c.add)
			if err != nil {
				return err
			}
			c.Err = refused
		}
	}
	return nil
}

// takeOver adds a route where there is one to the same destination already: one
// of ours gives way, without a moment between; a foreign one stays.
func (h *Path) takeOver(want rtnl.Route) (refused, err error) {
	routes, err := h.sock.Routes(rtnl.RouteFilter{Family: rtnl.FamilyOf(want.Dst.Addr())})
	if err != nil {
		return nil, err
	}
	requests := []*rtnl.Message{rtnl.AddRoute(want, 0)}
	for _, r := range routes {
		if r.Dst != want.Dst || r.Metric != want.Metric {
			continue
		}
		if r.Protocol != h.cfg.Protocol {
			by := fmt.Sprintf("link %d", r.Index)
			if l, err := link.Get(h.sock, r.Index, ""); err == nil {
				by = l.Name
			}
			return fmt.Errorf("there is a route by %s that is not ours, of protocol %d: delete it with `ip route del %s proto %d`, or give the workload another address",
				by, r.Protocol, r.Dst, r.Protocol), nil
		}
		requests = append(requests, rtnl.DeleteRoute(r))
	}
	answers, err := h.sock.Do(requests...)
	if err != nil {
		return nil, err
	}
	refused = answers[0].Err
	for _, a := range answers[1:] {
		if !rtnl.IsGone(a.Err) {
			refused = errors.Join(refused, a.Err)
		}
	}
	return refused, nil
}
