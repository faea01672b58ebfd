// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
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
	links    map[string]link.Link // those asked for so far; the zero Link = none
	sources  map[netip.Addr]bool
	refusals map[string]error // what the kernel said to a write, by subject
	problems []Problem
	writes   int
	repairs  int
	repaired string // the first of them
	// unresolved are destinations whose routes cannot be, for want of a device or an address.
	unresolved []netip.Prefix
	// What was right before this pass.
	hadDevices map[plan.TunnelKind]int
	hadTunnels map[plan.TunnelKind]plan.Tunnel
}

func newPass(f *Fabric) *pass {
	return &pass{
		Fabric: f, links: make(map[string]link.Link), sources: make(map[netip.Addr]bool), refusals: make(map[string]error),
		hadDevices: maps.Clone(f.devices), hadTunnels: maps.Clone(f.settledTunnels),
	}
}

func (p *pass) problem(subject string, err error) {
	p.problems = append(p.problems, Problem{subject, err})
}

// unmet reports what is still to do after all was written: what the kernel said
// to it, or that it has been undone.
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

// Get returns the link of that name, and false where there is none.
func (p *pass) link(name string) (link.Link, bool, error) {
	l, known := p.links[name]
	if !known && link.CheckName(name) == nil {
		var err error
		l, err = link.Get(p.sock, 0, name)
		if err != nil && !isNotExist(err) {
			return link.Link{}, false, fmt.Errorf("read link %s: %w", name, err)
		}
		p.links[name] = l
	}
	return l, l.Index != 0, nil
}

// change is one difference between the desired state and the kernel's.
type change struct {
	rtnl.Change
	subject string
	drifted bool        // it was right before
	route   *plan.Route // that it makes
	former  []route     // what that replaces and must not stay
}

// write makes the changes: what adds before what takes away. What is refused
// stands in refusals; the error is of the socket or the context.
func (p *pass) write(ctx context.Context, changes []*change) error {
	slices.SortStableFunc(changes, func(a, b *change) int { return btoi(a.Late) - btoi(b.Late) })
	for batch := range slices.Chunk(changes, rtnl.MaxBatch) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.send(batch); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) send(batch []*change) error {
	changes := make([]*rtnl.Change, len(batch))
	for i, c := range batch {
		changes[i] = &c.Change
	}
	if err := p.sock.CarryOut(changes); err != nil {
		return err
	}
	for _, c := range batch {
		p.wrote(c)
	}
	return nil
}

func (p *pass) wrote(c *change) {
	if c.Err != nil {
		what := c.What
		if c.route != nil {
			what = "set route " + c.route.String()
		}
		err, was := fmt.Errorf("%s: %w", what, c.Err), p.refusals[c.subject]
		if was == nil || !slices.Contains(strings.Split(was.Error(), "\n"), err.Error()) { // a tunnel is gone over several times
			p.refusals[c.subject] = errors.Join(was, err)
		}
		return
	}
	p.writes++
	if !c.drifted {
		return
	}
	if p.repairs++; p.repairs == 1 {
		p.repaired = c.What
	}
}

// sayRepairs tells the log of what somebody else changed.
func (p *pass) sayRepairs() {
	if p.repairs == 0 {
		return
	}
	if say := p.said.Say("", p.repairs, time.Now()); say > 0 {
		p.cfg.Logger.Warn("repaired what leads to other hosts: something else changed it", slog.Int("changes", say), slog.String("first", p.repaired))
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
