// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// interfaces tracks which endpoint has which interface, and the resulting elements and chains. If several claim an interface, the lowest
// path gets it.
type interfaces struct {
	ruleset  *ruleset
	rules    *ruleChains
	groups   *groups
	renderer func() render.Renderer
	prefixes []string // of workload interfaces

	byPath    map[string]*policy.Endpoint
	workloads map[string][]string // sorted paths of those that claim a workload interface
	hosts     map[string][]string // the same for a host's interface, and for render.Everywhere
	indexes   map[string]int      // of workloads' links; 0 = unknown
	sources   map[string][]slot   // elements of a workload interface
	bounds    map[string]slot     // elements that bound the connections of workload interfaces
	most      int                 // the default bound, if the endpoint has no lower one; 0 = any
	unbounded bool                // the kernel can't bound
	claims    claims
	toReport  map[string]bool // paths
}

func newInterfaces(rs *ruleset, rc *ruleChains, renderer func() render.Renderer) *interfaces {
	return &interfaces{
		ruleset: rs, rules: rc, groups: newGroups(rs, rc), renderer: renderer,
		byPath: make(map[string]*policy.Endpoint), workloads: make(map[string][]string), hosts: make(map[string][]string),
		indexes: make(map[string]int), sources: make(map[string][]slot), bounds: make(map[string]slot), claims: newClaims(rs), toReport: make(map[string]bool),
	}
}

// setPrefixes sets the prefixes of workload interfaces' names.
func (in *interfaces) setPrefixes(prefixes []string) {
	if slices.Equal(in.prefixes, prefixes) {
		return
	}
	in.prefixes = slices.Clone(prefixes)
	for _, path := range slices.Sorted(maps.Keys(in.byPath)) {
		in.put(path, in.byPath[path])
	}
}

// put sets an endpoint; nil = it is gone.
func (in *interfaces) put(path string, ep *policy.Endpoint) {
	in.toReport[path] = true
	old := in.byPath[path]
	if ep == nil {
		delete(in.byPath, path)
	} else {
		in.byPath[path] = ep
	}
	if in.asksOther(old, ep) {
		in.groups.join(ep.Interface, &ep.Outbound, model.Outbound)
		in.groups.join(ep.Interface, &ep.Inbound, model.Inbound)
		return
	}
	for n, e := range map[int]*policy.Endpoint{1: ep, -1: old} {
		if e != nil && !e.Workload { // workloads' policies are counted by their groups
			for _, ids := range e.Lists() {
				in.rules.use(ids, n)
			}
		}
	}
	if path == policy.MetricsPath {
		if ep == nil {
			in.ruleset.removeChain(render.ChainMetrics)
		} else {
			in.ruleset.putChain(render.ChainMetrics, func() table.Chain { return in.renderer().Metrics(ep) })
		}
		return
	}
	for _, list := range [...]map[string][]string{in.workloads, in.hosts} {
		if old != nil && nameOf(old) != "" {
			if list[nameOf(old)] = without(list[nameOf(old)], path); len(list[nameOf(old)]) == 0 {
				delete(list, nameOf(old))
			}
		}
	}
	if ep != nil && ep.Dropped == "" {
		switch {
		case nameOf(ep) == "", ep.Interface == policy.Loopback:
		case !ep.Workload:
			in.hosts[nameOf(ep)] = with(in.hosts[nameOf(ep)], path)
		case in.isWorkload(ep.Interface):
			in.workloads[ep.Interface] = with(in.workloads[ep.Interface], path)
		}
	}
	for i, e := range [...]*policy.Endpoint{old, ep} {
		switch {
		case e == nil, i == 0 && ep != nil && e.Workload == ep.Workload && nameOf(e) == nameOf(ep): // the new one is handled next
		case e.Workload:
			in.putWorkload(e.Interface)
		default:
			in.putHost(nameOf(e))
		}
	}
	in.claims.put(path, in.claimed(path, ep))
}

// nameOf returns the interface of an endpoint, or render.Everywhere.
func nameOf(ep *policy.Endpoint) string {
	if ep.Wildcard {
		return render.Everywhere
	}
	return ep.Interface
}

// claimed returns the elements that an endpoint claims.
func (in *interfaces) claimed(path string, ep *policy.Endpoint) map[slot]claim {
	switch {
	case ep == nil || !ep.Workload || ep.Interface == "":
	case ep.Dropped == "":
		return natClaims(path, ep)
	case in.isWorkload(ep.Interface):
		return map[slot]claim{{render.SetClosed, table.NameBytes(ep.Interface)}: {path, path, render.Comment(path, "")}}
	case ep.Interface != policy.Loopback && len(ep.Interface) <= table.MaxInterface:
		return map[slot]claim{{render.SetShut, table.NameBytes(ep.Interface)}: {path, path, render.Comment(path, "")}}
	}
	return nil
}

// asksOther reports whether an endpoint that has its interface changed at most in its policies and profiles.
func (in *interfaces) asksOther(old, ep *policy.Endpoint) bool {
	return old != nil && ep != nil && ep.Workload && old.Workload && ep.Dropped == "" && old.Dropped == "" &&
		old.Interface == ep.Interface && old.MAC == ep.MAC && old.MaxConnections == ep.MaxConnections &&
		slices.Equal(old.Addrs, ep.Addrs) && slices.Equal(old.NAT, ep.NAT) &&
		in.isWorkload(ep.Interface) && len(in.workloads[ep.Interface]) == 1 && in.workloads[ep.Interface][0] == ep.Path
}

func (in *interfaces) isWorkload(name string) bool {
	return model.IsWorkloadInterface(name, in.prefixes)
}

func with(list []string, s string) []string {
	list = append(without(list, s), s)
	slices.Sort(list)
	return list
}

func without(list []string, s string) []string {
	return slices.DeleteFunc(list, func(have string) bool { return have == s })
}

// owner returns the endpoint that has an interface, nil = none. It marks all that claim it for the report.
func (in *interfaces) owner(paths []string) *policy.Endpoint {
	if len(paths) == 0 {
		return nil
	}
	for _, path := range paths {
		in.toReport[path] = true
	}
	return in.byPath[paths[0]]
}

// putWorkload gives a workload interface to the first endpoint that claims it.
func (in *interfaces) putWorkload(name string) {
	if name == "" {
		return
	}
	key := table.NameBytes(name)
	workload, from, to := slot{render.SetWorkloads, key}, slot{render.SetDeniedFrom, key}, slot{render.SetDeniedTo, key}
	if ep := in.owner(in.workloads[name]); ep != nil {
		in.ruleset.put(workload, render.Comment(ep.Path, ""))
		in.ruleset.put(from, "")
		in.ruleset.put(to, "")
		in.groups.join(name, &ep.Outbound, model.Outbound)
		in.groups.join(name, &ep.Inbound, model.Inbound)
	} else {
		for _, at := range [...]slot{workload, from, to} {
			in.ruleset.remove(at)
		}
		in.groups.join(name, nil, model.Outbound)
		in.groups.join(name, nil, model.Inbound)
		delete(in.indexes, name)
	}
	in.putSources(name)
	in.putBound(name)
}

// setMost sets how many connections the endpoint of a workload interface may begin; 0 = any.
func (in *interfaces) setMost(most int) {
	if in.most == most {
		return
	}
	in.most = most
	for name := range in.workloads {
		in.putBound(name)
	}
}

// putBound sets how many connections the owner of an interface may begin. The sets for that exist only while an endpoint has a bound.
func (in *interfaces) putBound(name string) {
	most := 0
	if owners := in.workloads[name]; len(owners) > 0 && !in.unbounded {
		most = in.byPath[owners[0]].Bound(in.most)
	}
	set, n := render.CountedIn(most)
	at := slot{set, table.NameBytes(name)}
	old, had := in.bounds[name]
	if had && (most == 0 || old != at) {
		in.ruleset.remove(old)
	}
	switch {
	case most > 0:
		if len(in.bounds) == 0 {
			for _, def := range render.BoundSets() {
				in.ruleset.addSet(def)
			}
		}
		in.bounds[name] = at
		in.ruleset.put(at, strconv.Itoa(n))
	case had:
		delete(in.bounds, name)
		if len(in.bounds) == 0 {
			for _, def := range render.BoundSets() {
				in.ruleset.removeSet(def.Name)
			}
		}
	}
}

// setIndexes sets the indexes of links; 0 = there is none.
func (in *interfaces) setIndexes(indexes map[string]int) {
	for name, index := range indexes {
		if len(in.workloads[name]) > 0 && in.indexes[name] != index {
			in.indexes[name] = index
			in.putSources(name)
		}
	}
}

// putSources sets the addresses and the MAC that the owner of an interface may send from.
func (in *interfaces) putSources(name string) {
	var slots []slot
	if owners := in.workloads[name]; len(owners) > 0 {
		ep := in.byPath[owners[0]]
		for _, a := range ep.Addrs {
			s := render.Source{Interface: name, Index: in.indexes[name], Addr: a.Unmap()}
			slots = append(slots, slot{s.Set(), s.Key()})
			if s.Index != 0 {
				slots = append(slots, slot{s.IndexedSet(), s.IndexedKey()})
			}
		}
		if ep.MAC.IsZero() {
			slots = append(slots, slot{render.SetAnyMAC, table.NameBytes(name)})
		} else {
			slots = append(slots, slot{render.SetMACs, table.Concat(table.NameBytes(name), string(ep.MAC[:]))})
		}
	}
	for _, s := range in.sources[name] {
		if !slices.Contains(slots, s) {
			in.ruleset.remove(s)
		}
	}
	for _, s := range slots {
		in.ruleset.put(s, "")
	}
	if in.sources[name] = slots; len(slots) == 0 {
		delete(in.sources, name)
	}
}

// putHosts renders the chains of all host endpoints again.
func (in *interfaces) putHosts() {
	for name := range in.hosts {
		in.putHost(name)
	}
}

// putHost gives an interface of the host, or render.Everywhere, to the first host endpoint that claims it.
func (in *interfaces) putHost(name string) {
	if name == "" {
		return
	}
	key := table.NameBytes(name)
	ep := in.owner(in.hosts[name])
	if ep == nil {
		ep = &policy.Endpoint{}
	}
	if named := (slot{render.SetNamed, key}); ep.Path != "" && name != render.Everywhere {
		in.ruleset.put(named, render.Comment(ep.Path, ""))
	} else {
		in.ruleset.remove(named)
	}
	for _, side := range [...]struct {
		direction           model.Direction
		dispatch, untracked string
		raw                 bool
	}{
		{model.Inbound, render.MapHostIn, render.MapUntrackIn, len(ep.UntrackedInbound) > 0},
		{model.Outbound, render.MapHostOut, render.MapUntrackOut, len(ep.UntrackedOutbound) > 0},
	} {
		in.offer(ep.Path != "", slot{side.dispatch, key}, render.HostChain(name, side.direction), func() table.Chain {
			return in.renderer().Host(name, ep, side.direction)
		})
		in.offer(side.raw, slot{side.untracked, key}, render.UntrackedChain(name, side.direction), func() table.Chain {
			return in.renderer().Untracked(name, ep, side.direction)
		})
	}
	in.offer(len(ep.PreDNAT) > 0, slot{render.MapPreDNAT, key}, render.PreDNATChain(name), func() table.Chain { return in.renderer().PreDNAT(name, ep) })
	in.offer(len(ep.ForwardInbound.Policies) > 0, slot{render.MapForwardIn, key}, render.ForwardChain(name, model.Inbound), func() table.Chain {
		return render.Forward(name, ep, model.Inbound)
	})
	in.offer(len(ep.ForwardOutbound.Policies) > 0, slot{render.MapForwardOut, key}, render.ForwardChain(name, model.Outbound), func() table.Chain {
		return render.Forward(name, ep, model.Outbound)
	})
}

// offer puts a chain and its element in a verdict map, or removes both. The chains of render.Everywhere have no element: rules jump there.
// Such a rule may be there for other policies than the chain's, so while Everywhere has an endpoint, each of its chains exists.
func (in *interfaces) offer(wanted bool, at slot, chain string, chainOf func() table.Chain) {
	everywhere := at.key == table.NameBytes(render.Everywhere)
	if !wanted && !(everywhere && len(in.hosts[render.Everywhere]) > 0) {
		in.ruleset.remove(at)
		in.ruleset.removeChain(chain)
		return
	}
	if !everywhere {
		in.ruleset.put(at, chain)
	}
	in.ruleset.putChain(chain, chainOf)
}

// problem returns why an endpoint is not enforced, nil if it is or need not be.
func (in *interfaces) problem(path string) error {
	ep := in.byPath[path]
	if ep == nil || ep.Dropped != "" {
		return nil
	}
	owners := in.hosts[nameOf(ep)]
	switch {
	case nameOf(ep) == "":
		return nil
	case ep.Interface == policy.Loopback:
		return fmt.Errorf("interface %s: what a host sends to itself is not policed: it is not enforced", ep.Interface)
	case ep.Workload && !in.isWorkload(ep.Interface):
		return fmt.Errorf("interface %s begins with none of the prefixes of workload interfaces (%s): it is not enforced", ep.Interface, strings.Join(in.prefixes, ", "))
	case ep.Workload:
		owners = in.workloads[ep.Interface]
	}
	if len(owners) > 0 && owners[0] != path {
		return fmt.Errorf("interface %s is also that of %s, which has it", nameOf(ep), owners[0])
	}
	return nil
}
