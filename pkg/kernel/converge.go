// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// change is one difference between the desired state and the kernel's.
type change struct {
	kchange
	lost   netip.Addr // the address that a deleted route led to
	add    *route     // the route that the first request adds unless there is one
	sysctl string     // or, instead of requests: below net, set to value
	value  string
}

// interfacePlan is what one interface needs.
type interfacePlan struct {
	name    string
	changes []*change
	err     error // why something cannot be done now
}

// converge reads, writes the difference and reads again. removed are interfaces
// that have just left the desired state.
func (h *HostPath) converge(ctx context.Context, read func() (*state, error), removed map[string]bool) (Report, error) {
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	var report Report
	before := h.right
	h.right = nil
	h.convergeHost(&report)
	st, err := read()
	if err != nil {
		return Report{}, err
	}
	plans := h.plan(st)
	if err := h.execute(ctx, plans); err != nil {
		return Report{}, err
	}
	failed := make(map[string]error)
	made := 0
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
		}
		made += n
		if n > 0 && h.drifted(p.name, st, removed) {
			report.Repairs += n
			h.cfg.Logger.Warn("repaired a workload interface that something else changed",
				slog.String("interface", p.name), slog.Int("changes", n), slog.String("first", p.changes[0].what))
		}
	}
	report.Writes += made
	if made > 0 {
		if st, err = read(); err != nil {
			return Report{}, err
		}
		plans = h.plan(st)
	}
	h.settle(&report, st, plans, failed)
	if report.Writes == 0 {
		h.right = before
	}
	return report, nil
}

// drifted says whether what was found differing had been right before.
func (h *HostPath) drifted(name string, st *state, removed map[string]bool) bool {
	e, wanted := h.desired[name]
	if !wanted {
		return h.ready && !removed[name]
	}
	was, ok := h.settled[name]
	return ok && was.endpoint.equal(e) && was.index == st.links[name].Index
}

// settle reports what the plans after the last read say is still to do.
func (h *HostPath) settle(report *Report, st *state, plans []interfacePlan, failed map[string]error) {
	for _, p := range plans {
		e, wanted := h.desired[p.name]
		err := p.err
		for _, c := range p.changes {
			err = errors.Join(err, fmt.Errorf("read back: still to do: %s", c.what))
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
		report.Endpoints = append(report.Endpoints, Status{p.name, err})
		if err == nil {
			h.settled[p.name] = settled{e, st.links[p.name].Index}
		} else {
			delete(h.settled, p.name)
		}
	}
}

// stray notes a link that no endpoint has, if there is one.
func (r *Report) stray(l Link) {
	if l.Up && l.Alias != "" {
		r.Strays = append(r.Strays, Stray{l.Name, l.Alias})
	}
}

// execute makes the changes: what adds before what takes away. Failures stand in
// the changes; the error is of the socket or the context.
func (h *HostPath) execute(ctx context.Context, plans []interfacePlan) error {
	var early, late, sysctls []*change
	for _, p := range plans {
		for _, c := range p.changes {
			switch {
			case c.sysctl != "":
				sysctls = append(sysctls, c)
			case c.late:
				late = append(late, c)
			default:
				early = append(early, c)
			}
		}
	}
	if len(sysctls) > 0 {
		err := h.ns.enter(func() error {
			for _, c := range sysctls {
				if strings.HasSuffix(c.sysctl, "/forwarding") {
					c.err = h.forwardIPv6(c.sysctl)
				} else {
					c.err = writeSysctl(c.sysctl, c.value)
				}
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(append(early, late...), maxBatch) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := h.send(batch); err != nil {
			return err
		}
	}
	return nil
}

func (h *HostPath) send(changes []*change) error {
	writes := make([]*kchange, len(changes))
	for i, c := range changes {
		writes[i] = &c.kchange
	}
	if err := h.sock.carryOut(writes); err != nil {
		return err
	}
	for _, c := range changes {
		if c.add != nil && errors.Is(c.err, unix.EEXIST) {
			refused, err := h.takeOver(*c.add)
			if err != nil {
				return err
			}
			c.err = refused
		}
	}
	return nil
}

// takeOver adds a route where there is one to the same destination already: one
// of ours gives way, without a moment between; a foreign one stays.
func (h *HostPath) takeOver(want route) (refused, err error) {
	routes, err := h.sock.routes(routeFilter{family: familyOf(want.dst.Addr())})
	if err != nil {
		return nil, err
	}
	requests := []*message{addRoute(want, 0)}
	for _, r := range routes {
		if r.dst != want.dst || r.metric != want.metric {
			continue
		}
		if r.protocol != h.cfg.Protocol {
			by := fmt.Sprintf("link %d", r.index)
			if l, err := h.sock.link(r.index, ""); err == nil {
				by = l.Name
			}
			return fmt.Errorf("there is a route by %s that is not ours, of protocol %d: delete it with `ip route del %s proto %d`, or give the workload another address",
				by, r.protocol, r.dst, r.protocol), nil
		}
		requests = append(requests, deleteRoute(r))
	}
	answers, err := h.sock.do(requests...)
	if err != nil {
		return nil, err
	}
	refused = answers[0].err
	for _, a := range answers[1:] {
		if !isGone(a.err) {
			refused = errors.Join(refused, a.err)
		}
	}
	return refused, nil
}
