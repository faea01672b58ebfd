// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
)

// pass is one pass over the kernel's state.
type pass struct {
	*Fabric
	links    map[string]link.Link // those read so far; the zero Link = none
	sources  map[netip.Addr]bool
	refusals map[string]error // the kernel's answers to writes, by subject
	problems []Problem
	writes   int
	repairs  int
	repaired string                     // the first repair
	had      map[plan.TunnelKind]device // what was right before this pass
}

func newPass(f *Fabric) *pass {
	return &pass{Fabric: f, links: make(map[string]link.Link), sources: make(map[netip.Addr]bool), refusals: make(map[string]error), had: maps.Clone(f.held.devices)}
}

func (p *pass) problem(subject string, err error) {
	p.problems = append(p.problems, Problem{subject, err})
}

// unmet reports what is still to do after everything was written: with the kernel's refusal, or because it was undone.
func (p *pass) unmet(subject, what string) {
	if err := p.refusals[subject]; err != nil {
		p.problem(subject, err)
		return
	}
	p.problem(subject, fmt.Errorf("read back: still to do: %s", what))
}

func (p *pass) report() Report {
	slices.SortStableFunc(p.problems, func(a, b Problem) int { return strings.Compare(a.Subject, b.Subject) })
	return Report{Problems: p.problems, Writes: p.writes, Repairs: p.repairs}
}

// link returns the link with that name, and false if there is none.
func (p *pass) link(name string) (link.Link, bool, error) {
	l, known := p.links[name]
	if !known && link.CheckName(name) == nil {
		var err error
		l, err = link.Get(p.conn, 0, name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return link.Link{}, false, fmt.Errorf("read link %s: %w", name, err)
		}
		p.links[name] = l
	}
	return l, l.Index != 0, nil
}

// isLocal reports whether an address is the namespace's own.
func (p *pass) isLocal(a netip.Addr) bool {
	is, known := p.sources[a]
	if !known {
		r, ok := p.conn.Lookup(a, 0)
		is = ok && r.Local
		p.sources[a] = is
	}
	return is
}

// change is one difference between the desired state and the kernel's.
type change struct {
	subject string
	what    string
	make    func() error
	late    bool    // removes: done after all that adds
	drifted bool    // it was right before
	route   *route  // that it creates
	former  []route // what that replaces and must not stay
	err     error   // why it failed
}

// write makes the changes: additions before removals. If the kernel refuses a route, the one that it should replace is removed too: no
// route is better than one to a next hop that is no longer desired. Refusals are recorded in the pass and in the changes; the error is the
// context's.
func (p *pass) write(ctx context.Context, changes []*change) error {
	var late []*change
	for _, c := range changes {
		if c.late {
			late = append(late, c)
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		p.do(c)
		if c.err == nil {
			continue
		}
		for _, r := range c.former {
			late = append(late, p.deleteRoute(r))
		}
	}
	for _, c := range late {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.do(c)
	}
	return nil
}

// do makes one change.
func (p *pass) do(c *change) (done bool) {
	if c.err = c.make(); c.late && rtnl.IsGone(c.err) {
		c.err = nil
	}
	if c.err != nil {
		err, was := fmt.Errorf("%s: %w", c.what, c.err), p.refusals[c.subject]
		if was == nil || !slices.Contains(strings.Split(was.Error(), "\n"), err.Error()) { // a tunnel is handled several times
			p.refusals[c.subject] = errors.Join(was, err)
		}
		return false
	}
	if c.route != nil {
		p.held.routes[c.route.dst] = *c.route
	}
	p.writes++
	if c.drifted {
		if p.repairs++; p.repairs == 1 {
			p.repaired = c.what
		}
	}
	return true
}

// logRepairs logs what another program changed.
func (p *pass) logRepairs() {
	if p.repairs > 0 && p.Fabric.repairs.Say("", time.Now()) {
		p.cfg.Logger.Warn("repaired what leads to other hosts: something else changed it", slog.Int("changes", p.repairs), slog.String("first", p.repaired))
	}
}

// round reads routes, neighbours and forwarding entries and writes the differences.
func (p *pass) round(ctx context.Context) error {
	changes, err := p.differences()
	if err != nil {
		return err
	}
	return p.write(ctx, changes)
}

// check reads everything and reports what differs; it writes nothing.
func (p *pass) check() error {
	for _, t := range p.tunnels {
		if err := p.checkTunnel(t); err != nil {
			return err
		}
	}
	changes, err := p.differences()
	if err != nil {
		return err
	}
	for _, c := range changes {
		p.unmet(c.subject, c.what)
	}
	return nil
}

// differences returns the changes that routes, neighbours and forwarding entries need; what cannot be done now is a problem.
func (p *pass) differences() ([]*change, error) {
	entries, err := p.entries()
	if err != nil {
		return nil, err
	}
	routes, err := p.routeDifferences()
	if err != nil {
		return nil, err
	}
	return append(entries, routes...), nil
}
