// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// slot is the place of one element.
type slot struct{ set, key string }

// claim is what an endpoint wants an element to be. Of several the lowest order wins.
type claim struct{ order, path, data string }

// putEndpoint takes an endpoint; nil = it is gone.
func (d *desired) putEndpoint(path string, ep *policy.Endpoint) {
	d.touched[path] = true
	old := d.endpoints[path]
	if ep == nil {
		delete(d.endpoints, path)
	} else {
		d.endpoints[path] = ep
	}
	if d.asksOther(old, ep) {
		d.shift(ep.Interface, &old.Outbound, &ep.Outbound, model.Outbound)
		d.shift(ep.Interface, &old.Inbound, &ep.Inbound, model.Inbound)
		return
	}
	d.count(old, ep)
	for _, list := range [...]map[string][]string{d.interfaces, d.hosts} {
		if old != nil && old.Interface != "" {
			d.disown(list, old.Interface, path)
		}
	}
	d.wildcards = without(d.wildcards, path)
	d.claim(path, nil)
	if ep != nil && ep.Dropped == "" {
		switch {
		case ep.Wildcard:
			d.wildcards = with(d.wildcards, path)
		case ep.Interface == "", ep.Interface == policy.Loopback:
		case !ep.Workload:
			d.hosts[ep.Interface] = with(d.hosts[ep.Interface], path)
		case d.isWorkload(ep.Interface):
			d.interfaces[ep.Interface] = with(d.interfaces[ep.Interface], path)
		}
	}
	for i, e := range [...]*policy.Endpoint{old, ep} {
		if i == 0 && e != nil && ep != nil && e.Workload == ep.Workload && e.Interface == ep.Interface {
			continue // it is the same one's turn
		}
		if e != nil && e.Workload {
			d.putWorkload(e.Interface)
		} else if e != nil {
			d.putHost(e.Interface)
		}
	}
	d.putWildcard()
	switch {
	case ep == nil || !ep.Workload || ep.Interface == "":
	case ep.Dropped == "":
		d.claimNAT(path, ep)
	case d.isWorkload(ep.Interface):
		d.claim(path, map[slot]claim{{render.SetClosed, table.NameBytes(ep.Interface)}: {path, path, render.Comment(path, "")}})
	case ep.Interface != policy.Loopback && len(ep.Interface) <= table.MaxInterface:
		d.claim(path, map[slot]claim{{render.SetShut, table.NameBytes(ep.Interface)}: {path, path, render.Comment(path, "")}})
	}
}

// disown takes a path off a list of claimants. The next one must be told of.
func (d *desired) disown(lists map[string][]string, name, path string) {
	lists[name] = without(lists[name], path)
	if len(lists[name]) == 0 {
		delete(lists, name)
	}
}

// asksOther says whether what an endpoint asks is all that is new of it, and it has
// the interface.
func (d *desired) asksOther(old, ep *policy.Endpoint) bool {
	return old != nil && ep != nil && ep.Workload && old.Workload && ep.Dropped == "" && old.Dropped == "" &&
		!ep.Wildcard && !old.Wildcard && old.Interface == ep.Interface && old.MAC == ep.MAC &&
		slices.Equal(old.Addrs, ep.Addrs) && slices.Equal(old.NAT, ep.NAT) &&
		d.isWorkload(ep.Interface) && len(d.interfaces[ep.Interface]) == 1 && d.interfaces[ep.Interface][0] == ep.Path
}

// count keeps how many endpoints ask each policy and profile.
func (d *desired) count(old, ep *policy.Endpoint) {
	before, after := old.Lists(), ep.Lists()
	for i := range before {
		before[i], after[i] = policy.Trim(before[i], after[i])
		d.use(after[i], 1) // first: what both ask stays
	}
	for _, had := range before {
		d.use(had, -1)
	}
}

// use counts n references more, or less.
func (d *desired) use(ids []policy.RulesID, n int) {
	for _, id := range ids {
		before := d.users[id]
		d.users[id] += n
		switch {
		case before == 0:
			d.putRulesChains(id)
		case d.users[id] == 0:
			delete(d.users, id)
			d.dropRules(id)
		}
	}
}

func (d *desired) isWorkload(name string) bool {
	return slices.ContainsFunc(d.settings.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func with(list []string, s string) []string {
	list = append(without(list, s), s)
	slices.Sort(list)
	return list
}

func without(list []string, s string) []string {
	return slices.DeleteFunc(list, func(have string) bool { return have == s })
}

// putWorkload gives a workload interface to the first that claims it.
func (d *desired) putWorkload(name string) {
	if name == "" {
		return
	}
	owners := d.interfaces[name]
	key := table.NameBytes(name)
	if len(owners) == 0 {
		for _, set := range [...]string{render.SetWorkloads, render.SetDeniedFrom, render.SetDeniedTo} {
			d.sets[set].remove(key)
		}
		d.join(name, nil, model.Outbound)
		d.join(name, nil, model.Inbound)
	} else {
		for _, other := range owners {
			d.touched[other] = true
		}
		ep := d.endpoints[owners[0]]
		d.sets[render.SetWorkloads].put(key, render.Comment(owners[0], ""))
		d.sets[render.SetDeniedFrom].put(key, "")
		d.sets[render.SetDeniedTo].put(key, "")
		d.join(name, &ep.Outbound, model.Outbound)
		d.join(name, &ep.Inbound, model.Inbound)
	}
	for _, set := range [...]string{render.SetWorkloads, render.SetDeniedFrom, render.SetDeniedTo} {
		d.changed[set] = true
	}
	d.putSources(name)
}

// putSources are the addresses, and the MAC, that the owner of an interface may send from.
func (d *desired) putSources(name string) {
	var slots []slot
	if owners := d.interfaces[name]; len(owners) == 0 {
		delete(d.indexes, name)
	} else {
		ep := d.endpoints[owners[0]]
		for _, a := range ep.Addrs {
			s := render.Source{Interface: name, Index: d.indexes[name], Addr: a.Unmap()}
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
	key := "interface\x00" + name // no path looks like this
	for _, s := range d.claimed[key] {
		if !slices.Contains(slots, s) {
			d.sets[s.set].remove(s.key)
			d.changed[s.set] = true
		}
	}
	for _, s := range slots {
		d.sets[s.set].put(s.key, "")
		d.changed[s.set] = true
	}
	d.claimed[key] = slots
	if len(slots) == 0 {
		delete(d.claimed, key)
	}
}

// putHost gives an interface of the host to the first host endpoint that claims it.
func (d *desired) putHost(name string) {
	if name == "" {
		return
	}
	key := table.NameBytes(name)
	owners := d.hosts[name]
	var ep *policy.Endpoint
	path := ""
	if len(owners) > 0 {
		path, ep = owners[0], d.endpoints[owners[0]]
		for _, other := range owners {
			d.touched[other] = true
		}
	}
	in, out := model.Inbound, model.Outbound
	for _, side := range [...]struct {
		direction           model.Direction
		dispatch, untracked string
		raw                 bool
	}{
		{in, render.MapHostIn, render.MapUntrackIn, ep != nil && len(ep.UntrackedInbound) > 0},
		{out, render.MapHostOut, render.MapUntrackOut, ep != nil && len(ep.UntrackedOutbound) > 0},
	} {
		d.offer(ep != nil, side.dispatch, key, render.HostChain(name, side.direction), func() table.Chain {
			return d.renderer().Host(name, d.endpoints[path], side.direction)
		})
		d.offer(side.raw, side.untracked, key, render.UntrackedChain(name, side.direction), func() table.Chain {
			return d.renderer().Untracked(name, d.endpoints[path], side.direction)
		})
	}
}

// offer puts a chain and its element in a verdict map, or removes both.
func (d *desired) offer(wanted bool, dispatch, key, name string, render func() table.Chain) {
	d.changed[dispatch] = true
	if !wanted {
		d.sets[dispatch].remove(key)
		d.removeChain(name)
		return
	}
	d.sets[dispatch].put(key, name)
	d.putChain(name, render)
}

func (d *desired) putWildcard() {
	for _, direction := range [...]model.Direction{model.Inbound, model.Outbound} {
		name := render.WildcardChain(direction)
		if len(d.wildcards) == 0 {
			d.removeChain(name)
			continue
		}
		path := d.wildcards[0]
		d.putChain(name, func() table.Chain { return render.Wildcard(d.endpoints[path], direction) })
	}
}

// problem says why an endpoint is not enforced, nil where it is or need not be.
func (d *desired) problem(path string) error {
	ep := d.endpoints[path]
	if ep == nil || ep.Dropped != "" {
		return nil
	}
	owners := d.hosts[ep.Interface]
	switch {
	case ep.Wildcard:
		owners = d.wildcards
	case ep.Interface == "":
		return nil
	case ep.Interface == policy.Loopback:
		return fmt.Errorf("interface %s: what a host sends to itself is not policed: it is not enforced", ep.Interface)
	case ep.Workload && !d.isWorkload(ep.Interface):
		return fmt.Errorf("interface %s begins with none of the prefixes of workload interfaces (%s): it is not enforced", ep.Interface, strings.Join(d.settings.Prefixes, ", "))
	case ep.Workload:
		owners = d.interfaces[ep.Interface]
	}
	if len(owners) > 0 && owners[0] != path {
		return fmt.Errorf("interface %s is also that of %s, which has it", ep.Interface, owners[0])
	}
	return nil
}
