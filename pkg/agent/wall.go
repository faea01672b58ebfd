// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// wall is the firewall that policy wants of this host, as far as it decides: what
// has been asked of the kernel is applied by the loop.
type wall struct {
	engine *policy.Engine
	// state is what the kernel is asked for: without the endpoints that keep no
	// access, whose interfaces pass nothing, but with those whose interface is shut.
	state *policy.State
	shut  *shut
	found map[string]*policy.Endpoint // every local endpoint, by path
	// failing is why an endpoint's firewall isn't as it should be.
	failing map[string]error
	// invalid are the objects that only policy finds wrong.
	invalid map[string]struct{}
	// settings are those that the firewall was told.
	settings policy.Settings
	// hosts are the host endpoints, by path, on which is to be reported.
	hosts map[string]struct{}
	// rules is how many rules each endpoint's policies and profiles have.
	rules   map[string]int
	askers  askers
	members int   // of all sets
	err     error // why the latest turn was not applied
	misfit  error // what of all changes could not be used, the latest
	applied bool  // it has been applied once
	// work is which connections may not go on once the firewall stands.
	work connections.Work
	// mu guards state, settings and interfaces, which are read where connections are judged.
	mu         sync.RWMutex
	interfaces []policy.Interface // the host's own
}

func newWall(host string) *wall {
	return &wall{
		engine: policy.NewEngine(host), state: &policy.State{}, shut: newShut(),
		found: map[string]*policy.Endpoint{}, failing: map[string]error{}, rules: map[string]int{}, askers: newAskers(), hosts: map[string]struct{}{}, work: newWork(),
	}
}

// follow works out what changes for the kernel. The paths are those of endpoints
// that may have gained or lost access without a change of policy.
func (w *wall) follow(d *desired, paths map[string]struct{}) policy.Changes {
	c := w.engine.Flush()
	for path, ep := range c.Endpoints {
		if before := w.found[path]; ep != nil && !ep.Workload || before != nil && !before.Workload {
			w.hosts[path] = struct{}{}
		}
		if ep == nil {
			delete(w.found, path)
		} else {
			w.found[path] = ep
		}
	}
	for path := range paths {
		c.Endpoints[path] = w.found[path]
	}
	moved := map[netip.Addr]struct{}{} // of workloads that came or left
	for path, ep := range c.Endpoints {
		before := w.state.Endpoints[path]
		if ep != nil && ep.Workload {
			if t := d.targets[path]; t == nil || t.refused != nil {
				if ep.Dropped == "" || !w.shut.has(path) {
					ep = nil
				}
			} else {
				ep = translatedAs(ep, t, before)
			}
		}
		if ep == nil {
			delete(w.failing, path)
		}
		if ep == before {
			delete(c.Endpoints, path)
			continue
		}
		c.Endpoints[path] = ep
		w.askers.put(path, before, ep)
		w.suspect(before, ep, moved)
		w.noteOuter(before, ep)
	}
	for id, set := range c.Sets {
		if err := w.state.Fits(id, set); err != nil {
			w.misfit = fmt.Errorf("what policy says of itself does not fit together, this part stays as it was (a mistake of this program: report it, and restart the agent): %w", err)
			delete(c.Sets, id)
			continue
		}
		w.suspectMembers(set, moved)
		if set.Gone {
			w.members -= len(w.state.Sets[id].Members)
		}
		w.members += len(set.Added) - len(set.Removed)
	}
	w.mu.Lock()
	if err := w.state.Apply(c); err != nil {
		w.misfit = err // Fits has looked: there is none
	}
	w.mu.Unlock()
	w.work.Masquerades = w.work.Masquerades || c.Pools != nil && len(c.Pools.Masquerade) > 0
	w.count(c, moved)
	return c
}

// translatedAs is the endpoint with the 1:1 NAT that its target has. Where that is the
// same as before, it is before.
func translatedAs(ep *policy.Endpoint, t *target, before *policy.Endpoint) *policy.Endpoint {
	if t.untranslated == nil {
		return ep
	}
	less := *ep
	less.NAT = slices.DeleteFunc(slices.Clone(ep.NAT), func(n model.NAT) bool { return !slices.Contains(t.want.Addrs, n.ExtIP) })
	if before != nil && reflect.DeepEqual(less, *before) {
		return before
	}
	return &less
}

// count counts the rules of endpoints that changed, or whose rules did, and
// notes the addresses of the latter.
func (w *wall) count(c policy.Changes, moved map[netip.Addr]struct{}) {
	counted := map[[2]policy.Place]int{} // of workloads: once for all that ask the same
	recount := func(path string, ep *policy.Endpoint) {
		at := [2]policy.Place{ep.Inbound.Place(), ep.Outbound.Place()}
		n, known := counted[at]
		if !known || !ep.Workload {
			n = w.rulesOf(ep)
		}
		if ep.Workload {
			counted[at] = n
		}
		w.rules[path] = n
	}
	for path, ep := range c.Endpoints {
		if ep == nil {
			delete(w.rules, path)
		} else {
			recount(path, ep)
		}
	}
	for id, r := range c.Rules {
		resized := w.askers.resize(id, r)
		for path := range w.askers.of[id] {
			ep := w.state.Endpoints[path]
			if ep == nil {
				continue
			}
			w.work.All = w.work.All || !ep.Workload
			w.suspectAddrs(ep.Addrs, moved)
			if resized {
				recount(path, ep)
			}
		}
	}
}

// rulesOf counts the rules that an endpoint's packets may be compared with.
func (w *wall) rulesOf(ep *policy.Endpoint) int {
	n := 0
	for _, ids := range [][]policy.RulesID{ep.Inbound.Policies, ep.Inbound.Profiles, ep.UntrackedInbound} {
		for _, id := range ids {
			if r := w.state.Rules[id]; r != nil {
				n += len(r.Inbound)
			}
		}
	}
	for _, ids := range [][]policy.RulesID{ep.Outbound.Policies, ep.Outbound.Profiles, ep.UntrackedOutbound} {
		for _, id := range ids {
			if r := w.state.Rules[id]; r != nil {
				n += len(r.Outbound)
			}
		}
	}
	return n
}

// suspect notes the addresses of an endpoint that changed. Connections with a
// former holder of a new workload's address are over; those of the host go on
// when its interface becomes an endpoint.
func (w *wall) suspect(before, after *policy.Endpoint, moved map[netip.Addr]struct{}) {
	for _, ep := range []*policy.Endpoint{before, after} {
		switch {
		case ep == nil:
		case !ep.Workload:
			w.work.All = true
		case before == nil || after == nil:
			for _, a := range ep.Addrs {
				moved[a] = struct{}{}
			}
		default:
			w.suspectAddrs(ep.Addrs, nil)
		}
	}
}

// suspectAddrs notes addresses, those that moved for later.
func (w *wall) suspectAddrs(addrs []netip.Addr, moved map[netip.Addr]struct{}) {
	for _, a := range addrs {
		if _, has := moved[a]; has {
			w.work.Moved[a] = struct{}{}
		} else {
			w.work.Suspects[a] = struct{}{}
		}
	}
}

func (w *wall) suspectMembers(set *policy.SetChange, moved map[netip.Addr]struct{}) {
	if set.New || set.Gone {
		return // the rules that use it are new too, or gone
	}
	for _, members := range [][]policy.Member{set.Added, set.Removed} {
		for _, m := range members {
			w.suspectAddrs([]netip.Addr{m.Addr}, moved)
		}
	}
}

// noteOuter notes the outer addresses that lead to an endpoint and didn't before.
func (w *wall) noteOuter(before, after *policy.Endpoint) {
	if after == nil || !after.Workload {
		return
	}
	for _, n := range after.NAT {
		if before == nil || before.Dropped != "" || !slices.Contains(before.NAT, n) {
			w.work.Outer[n.ExtIP] = n.IntIP
		}
	}
}

func newWork() connections.Work {
	return connections.Work{Suspects: map[netip.Addr]struct{}{}, Moved: map[netip.Addr]struct{}{}, Outer: map[netip.Addr]netip.Addr{}}
}

// takeWork returns which connections may not go on, once: nothing before the firewall stands.
func (w *wall) takeWork() connections.Work {
	if !w.applied || w.err != nil {
		return connections.Work{}
	}
	work := w.work
	w.work = newWork()
	return work
}

// enforced calls a function with what the firewall enforces, which doesn't change meanwhile.
func (w *wall) enforced(use func(connections.Policy)) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	use(connections.Policy{State: w.state, Settings: w.settings, Interfaces: w.interfaces})
}

// denies says why policy drops everything of an endpoint that is to be connected, nil = it doesn't.
func (w *wall) denies(t *target) error {
	if t == nil || t.refused != nil || !t.want.Active {
		return nil
	}
	if ep := w.state.Endpoints[t.path]; ep != nil && ep.Dropped != "" {
		return fmt.Errorf("all its packets are dropped: %s", ep.Dropped)
	}
	return nil
}

// stands says why an endpoint's firewall isn't up, nil = it is read back as wanted.
func (w *wall) stands(path string) error {
	if w.err != nil {
		return w.err
	}
	return w.failing[path]
}
