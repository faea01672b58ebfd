// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/plan"
	"golang.org/x/sys/unix"
)

// round reads routes, neighbours and forwarding entries and writes the
// difference.
func (p *pass) round(ctx context.Context) error {
	changes, err := p.differences()
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return nil
	}
	if err := p.write(ctx, changes); err != nil {
		return err
	}
	return p.write(ctx, withoutFormer(changes))
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
		p.unmet(c.subject, c.What)
	}
	return nil
}

// differences are what routes, neighbours and forwarding entries need; what
// cannot be done now is a problem.
func (p *pass) differences() ([]*change, error) {
	changes, err := p.entries()
	if err != nil {
		return nil, err
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		more, err := p.routeDifferences(family)
		if err != nil {
			return nil, err
		}
		changes = append(changes, more...)
	}
	return changes, nil
}

// routeDifferences compares the routes of one family.
func (p *pass) routeDifferences(family uint8) ([]*change, error) {
	all, err := readRoutes(p.sock, family, 0)
	if err != nil {
		return nil, err
	}
	there := make(map[netip.Prefix][]route, len(all))
	for _, r := range all {
		if _, wanted := p.routes[r.dst]; wanted || r.protocol == p.cfg.Protocol {
			there[r.dst] = append(there[r.dst], r)
		}
	}
	var changes []*change
	for dst, want := range p.routes {
		if dst.IsValid() && rtnl.FamilyOf(dst.Addr()) != family || !dst.IsValid() && family != unix.AF_INET {
			continue
		}
		if c, err := p.routeChange(want, there[dst]); err != nil {
			return nil, err
		} else if c != nil {
			changes = append(changes, c)
		}
	}
	for dst, routes := range there {
		stale := p.staleRoutes(dst, routes)
		changes = append(changes, stale...)
	}
	for _, dst := range p.unresolved {
		delete(p.held, dst) // what stood there before was deleted as stale
	}
	p.unresolved = p.unresolved[:0]
	for dst := range p.held {
		if _, wanted := p.routes[dst]; !wanted && rtnl.FamilyOf(dst.Addr()) == family {
			delete(p.held, dst)
		}
	}
	// Maps have no order: a log that names the first shall name the same each time.
	slices.SortFunc(changes, func(a, b *change) int { return strings.Compare(a.subject, b.subject) })
	return changes, nil
}

// routeChange is what a desired route needs, nil = nothing.
func (p *pass) routeChange(want plan.Route, there []route) (*change, error) {
	dst := want.Destination
	r, ok, lacks, err := p.resolve(want)
	if err != nil {
		return nil, err
	}
	if lacks != nil {
		p.problem(dst.String(), lacks)
	}
	if !ok {
		p.unresolved = append(p.unresolved, dst)
		return nil, nil
	}
	for _, o := range there {
		if o.protocol != p.cfg.Protocol && o.protocol != link.RouteProtocol && o.metric < r.metric {
			p.problem(dst.String(), foreignRoute(o))
			break
		}
	}
	was, known := p.held[dst]
	if slices.ContainsFunc(there, r.equal) {
		p.held[dst] = r
		return nil, nil
	}
	delete(p.held, dst)
	c := setRoute(want, r, 0)
	c.drifted = known && was.equal(r)
	for _, o := range there {
		switch {
		case o.protocol != p.cfg.Protocol || o.metric != r.metric:
		case o.within(r):
			p.held[dst] = o
		default:
			c.former = append(c.former, o)
		}
	}
	return c, nil
}

// setRoute makes a route as it is resolved, whatever is there of ours.
func setRoute(want plan.Route, r route, flags uint16) *change {
	return &change{
		Change:  rtnl.Change{What: "set route to " + r.dst.String(), Requests: []*rtnl.Message{r.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|flags)}},
		subject: r.dst.String(),
		route:   &want,
	}
}

func unsetRoute(r route) *change {
	return &change{
		Change:  rtnl.Change{What: "delete route to " + r.dst.String(), Requests: []*rtnl.Message{r.message(unix.RTM_DELROUTE, 0)}, Late: true},
		subject: r.dst.String(),
	}
}

// withoutFormer deletes what was to be replaced by routes that the kernel refuses: no route is better
// than one that leads where nobody says any longer that the packets should go.
func withoutFormer(sets []*change) (deletions []*change) {
	for _, c := range sets {
		if c.Err == nil {
			continue
		}
		for _, r := range c.former {
			deletions = append(deletions, unsetRoute(r))
		}
	}
	return deletions
}

func foreignRoute(o route) error {
	return fmt.Errorf("there is a route that is not ours and comes first, of protocol %d and metric %d: delete it with `ip route del %s proto %d`", o.protocol, o.metric, o.dst, o.protocol)
}

// staleRoutes deletes what is there of ours and not desired so. What has our
// metric and is replaced is gone by then.
func (p *pass) staleRoutes(dst netip.Prefix, there []route) []*change {
	want, wanted := p.routes[dst]
	var r route
	if wanted {
		r, wanted, _, _ = p.resolve(want) // links are known by now
	}
	_, known := p.held[dst]
	replaced := false // by the write of the desired route: one, the first of our metric
	if wanted && !slices.ContainsFunc(there, r.equal) {
		replaced = true
	}
	var changes []*change
	right := false
	for _, o := range there {
		if o.protocol != p.cfg.Protocol {
			continue
		}
		if wanted && o.equal(r) && !right {
			right = true
			continue
		}
		if replaced && o.metric == r.metric {
			replaced = false
			continue
		}
		c := unsetRoute(o)
		c.drifted = p.ready && (wanted || !known)
		changes = append(changes, c)
	}
	return changes
}

// someRoutes brings the routes to a few destinations to what is desired. The
// kernel's echo of each tells what it holds now.
func (p *pass) someRoutes(destinations []netip.Prefix) error {
	var sets, deletions []*change
	var wants []route
	for _, dst := range destinations {
		want, wanted := p.routes[dst]
		var r route
		ok := false
		if wanted {
			var lacks, err error
			if r, ok, lacks, err = p.resolve(want); err != nil {
				return err
			}
			if lacks != nil {
				p.problem(dst.String(), lacks)
			}
		}
		was, known := p.held[dst]
		switch {
		case ok && known && was.equal(r):
		case ok:
			c := setRoute(want, r, unix.NLM_F_ECHO)
			if known && !was.within(r) {
				c.former = []route{was}
			}
			wants, sets = append(wants, r), append(sets, c)
		case known:
			deletions = append(deletions, unsetRoute(was))
			delete(p.held, dst)
		}
	}
	for start := 0; start < len(sets); start += rtnl.MaxBatch {
		end := min(start+rtnl.MaxBatch, len(sets))
		if err := p.sendEchoed(sets[start:end], wants[start:end]); err != nil {
			return err
		}
	}
	deletions = append(deletions, withoutFormer(sets)...)
	for batch := range slices.Chunk(deletions, rtnl.MaxBatch) {
		if err := p.send(batch); err != nil {
			return err
		}
		for _, c := range batch {
			if c.Err != nil {
				p.problem(c.subject, p.refusals[c.subject])
			}
		}
	}
	return nil
}

// sendEchoed writes routes, one request each, and compares what the kernel says
// it holds now with what was asked for.
func (p *pass) sendEchoed(sets []*change, wants []route) error {
	var requests []*rtnl.Message
	for _, c := range sets {
		requests = append(requests, c.Requests...)
	}
	answers, err := p.sock.Do(requests...)
	if err != nil {
		return err
	}
	for i, c := range sets {
		dst := wants[i].dst
		c.Err = answers[i].Err
		p.wrote(c)
		if c.Err == nil || len(c.former) > 0 {
			delete(p.held, dst)
		}
		if c.Err != nil {
			p.problem(c.subject, p.refusals[c.subject])
			continue
		}
		if !slices.ContainsFunc(answers[i].Data, func(m rtnl.Received) bool {
			r, ok := parseFabricRoute(m.Body)
			return ok && m.Kind == unix.RTM_NEWROUTE && r.equal(wants[i])
		}) {
			p.unmet(c.subject, c.What)
			continue
		}
		p.held[dst] = wants[i]
		if o, ok := p.sock.Lookup(dst.Addr(), 0); ok && o.Dst == dst && o.Protocol != p.cfg.Protocol && o.Protocol != link.RouteProtocol && !o.Local {
			p.problem(c.subject, foreignRoute(route{dst: o.Dst, protocol: o.Protocol, metric: o.Metric}))
		}
	}
	return nil
}
