// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Verdict is the decision on a workload endpoint of this host.
type Verdict struct {
	Connect bool // it has access; else its interface passes nothing
	Active  bool
	// Untranslated: only those outer addresses that are among Addrs are translated.
	Untranslated bool
	Addrs        []netip.Addr
	// Outside is the endpoint's interface if no prefix of workloads covers it. It is closed, unless it is the host's own.
	Outside string
}

// Take takes in new decisions on workload endpoints, by path, and reads the host's links if they matter for these.
func (r *Reconciler) Take(verdicts map[string]Verdict) {
	for path, v := range verdicts {
		r.decided[path] = struct{}{}
		if v.Connect {
			r.verdicts[path] = v
		} else {
			delete(r.verdicts, path)
		}
		r.closed.note(path, v.Outside)
	}
	if err := r.closed.look(r.cfg.Roles); err != nil {
		r.cfg.Logger.Warn("the host's own links could not be read, to close those of endpoints that no prefix covers; trying again", "err", err)
		r.again()
	}
}

// Decide works out the kernel's changes from what was taken in. It returns the interfaces of new and changed endpoints.
func (r *Reconciler) Decide() (interfaces []string) {
	for _, path := range r.closed.judge() {
		r.decided[path] = struct{}{}
	}
	c := r.follow(r.decided)
	clear(r.decided)
	r.table.Update(c)
	for _, ep := range c.Endpoints {
		if ep != nil && ep.Workload && ep.Interface != "" {
			interfaces = append(interfaces, ep.Interface)
		}
	}
	return interfaces
}

// follow works out the changes. The paths are those of endpoints that may have gained or lost access without a change of policy.
func (r *Reconciler) follow(paths map[string]struct{}) policy.Changes {
	c := r.engine.Flush()
	for path, ep := range c.Endpoints {
		if before := r.found[path]; ep != nil && !ep.Workload || before != nil && !before.Workload {
			r.ReportHost(path)
		}
		if ep == nil {
			delete(r.found, path)
		} else {
			r.found[path] = ep
		}
	}
	for path := range paths {
		c.Endpoints[path] = r.found[path]
	}
	moved := map[netip.Addr]struct{}{} // of workloads that came or left
	for path, ep := range c.Endpoints {
		before := r.state.Endpoints[path]
		if ep != nil && ep.Workload {
			if v, ok := r.verdicts[path]; ok {
				ep = translated(ep, v, before)
			} else if ep.Dropped == "" || !r.closed.has(path) {
				ep = nil
			}
		}
		if ep == nil {
			delete(r.failing, path)
		}
		if ep == before {
			delete(c.Endpoints, path)
			continue
		}
		c.Endpoints[path] = ep
		r.counts.users.put(path, before, ep)
		r.suspect(before, ep, moved)
		noteOuter(r.work.Outer, before, ep)
	}
	for id, set := range c.Sets {
		if err := r.state.Fits(id, set); err != nil {
			r.misfit = fmt.Errorf("what policy says of itself does not fit together, this part stays as it was (a mistake of this program: report it, and restart the agent): %w", err)
			delete(c.Sets, id)
			continue
		}
		r.suspectMembers(set, moved)
		var nets []netip.Prefix
		if old := r.state.Sets[id]; old != nil {
			nets = old.Nets
			r.work.All = r.work.All || !set.Gone && !slices.Equal(nets, set.Nets) // whose addresses they are isn't known
		}
		if set.Gone {
			r.counts.members -= len(r.state.Sets[id].Members)
		}
		r.counts.members += len(set.Added) - len(set.Removed) + len(set.Nets) - len(nets)
	}
	r.addOwn(c)
	r.mu.Lock()
	if err := r.state.Apply(c); err != nil {
		r.misfit = err // Fits has checked that there is none
	}
	r.mu.Unlock()
	r.work.Masquerades = r.work.Masquerades || c.Pools != nil && len(c.Pools.Masquerade) > 0
	r.count(c, moved)
	return c
}

// translated returns the endpoint with the 1:1 NAT that it gets; before itself if that is the same.
func translated(ep *policy.Endpoint, v Verdict, before *policy.Endpoint) *policy.Endpoint {
	if !v.Untranslated {
		return ep
	}
	less := *ep
	less.NAT = slices.DeleteFunc(slices.Clone(ep.NAT), func(n model.NAT) bool { return !slices.Contains(v.Addrs, n.ExtIP) })
	if before != nil && reflect.DeepEqual(less, *before) {
		return before
	}
	return &less
}

// count counts the rules of endpoints that changed, or whose rules did, and records the addresses of the latter as suspects.
func (r *Reconciler) count(c policy.Changes, moved map[netip.Addr]struct{}) {
	counted := map[[2]policy.Place]int{} // of workloads: counted once for all with the same policies
	recount := func(path string, ep *policy.Endpoint) {
		at := [2]policy.Place{ep.Inbound.Place(), ep.Outbound.Place()}
		n, known := counted[at]
		if !known || !ep.Workload {
			n = rulesOf(r.state, ep)
		}
		if ep.Workload {
			counted[at] = n
		}
		r.counts.rules[path] = n
	}
	for path, ep := range c.Endpoints {
		if ep == nil || r.isOwn(path) {
			delete(r.counts.rules, path)
		} else {
			recount(path, ep)
		}
	}
	for id, rules := range c.Rules {
		resized := r.counts.users.resize(id, rules)
		for path := range r.counts.users.of[id] {
			ep := r.state.Endpoints[path]
			if ep == nil {
				continue
			}
			r.work.All = r.work.All || !ep.Workload
			r.suspectAddrs(ep.Addrs, moved)
			if resized {
				recount(path, ep)
			}
		}
	}
}

// rulesOf counts the rules that an endpoint's packets may be compared with.
func rulesOf(st *policy.State, ep *policy.Endpoint) int {
	n := 0
	for _, ids := range [][]policy.RulesID{ep.Inbound.Policies, ep.Inbound.Profiles, ep.UntrackedInbound, ep.PreDNAT, ep.ForwardInbound.Policies} {
		for _, id := range ids {
			if rules := st.Rules[id]; rules != nil {
				n += len(rules.Inbound)
			}
		}
	}
	for _, ids := range [][]policy.RulesID{ep.Outbound.Policies, ep.Outbound.Profiles, ep.UntrackedOutbound, ep.ForwardOutbound.Policies} {
		for _, id := range ids {
			if rules := st.Rules[id]; rules != nil {
				n += len(rules.Outbound)
			}
		}
	}
	return n
}

// suspect records the addresses of a changed endpoint. Connections with a former holder of a new workload's address are over; the host's
// own continue when its interface becomes an endpoint.
func (r *Reconciler) suspect(before, after *policy.Endpoint, moved map[netip.Addr]struct{}) {
	for _, ep := range []*policy.Endpoint{before, after} {
		switch {
		case ep == nil:
		case !ep.Workload:
			r.work.All = true
		case before == nil || after == nil:
			for _, a := range ep.Addrs {
				moved[a] = struct{}{}
			}
		default:
			r.suspectAddrs(ep.Addrs, nil)
		}
	}
}

// suspectAddrs records addresses as suspects, those that moved as less urgent.
func (r *Reconciler) suspectAddrs(addrs []netip.Addr, moved map[netip.Addr]struct{}) {
	for _, a := range addrs {
		if _, has := moved[a]; has {
			r.work.Moved[a] = struct{}{}
		} else {
			r.work.Suspects[a] = struct{}{}
		}
	}
}

func (r *Reconciler) suspectMembers(set *policy.SetChange, moved map[netip.Addr]struct{}) {
	if set.New || set.Gone {
		return // the rules that use it are new too, or gone
	}
	for _, members := range [][]policy.Member{set.Added, set.Removed} {
		for _, m := range members {
			r.suspectAddrs([]netip.Addr{m.Addr}, moved)
		}
	}
}

// noteOuter records the outer addresses that now lead to an endpoint and didn't before.
func noteOuter(outer map[netip.Addr]netip.Addr, before, after *policy.Endpoint) {
	if after == nil || !after.Workload {
		return
	}
	for _, n := range after.NAT {
		if before == nil || before.Dropped != "" || !slices.Contains(before.NAT, n) {
			outer[n.ExtIP] = n.IntIP
		}
	}
}

func newWork() board.Doubts {
	return board.Doubts{Suspects: map[netip.Addr]struct{}{}, Moved: map[netip.Addr]struct{}{}, Outer: map[netip.Addr]netip.Addr{}}
}

// TakeWork returns, once, which connections may have to end; nothing before the firewall is applied.
func (r *Reconciler) TakeWork() board.Doubts {
	if !r.applied || r.err != nil {
		return board.Doubts{}
	}
	work := r.work
	r.work = newWork()
	return work
}

// Enforced calls use with what the firewall enforces, which doesn't change until use returns.
func (r *Reconciler) Enforced(use func(board.Enforced)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	use(board.Enforced{State: r.state, Settings: r.settings, Interfaces: r.interfaces})
}

// Denies returns why policy drops all packets of an active workload endpoint, nil if it doesn't.
func (r *Reconciler) Denies(path string) error {
	if !r.verdicts[path].Active {
		return nil
	}
	if ep := r.state.Endpoints[path]; ep != nil && ep.Dropped != "" {
		return fmt.Errorf("all its packets are dropped: %s", ep.Dropped)
	}
	return nil
}

// Stands returns why an endpoint's firewall isn't in place, nil if it was read back as wanted.
func (r *Reconciler) Stands(path string) error {
	if r.err != nil {
		return r.err
	}
	return r.failing[path]
}
