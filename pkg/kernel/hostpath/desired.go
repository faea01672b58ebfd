// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
)

// desired is the whole desired state.
type desired struct {
	endpoints map[string]Endpoint     // by interface
	claims    map[netip.Addr][]string // interfaces of the active endpoints with the address, sorted
}

// newDesired returns a desired state. Of two endpoints with the same interface the first wins.
func newDesired(endpoints []Endpoint) desired {
	d := desired{make(map[string]Endpoint, len(endpoints)), make(map[netip.Addr][]string, len(endpoints))}
	for _, e := range endpoints {
		if _, twice := d.endpoints[e.Interface]; !twice {
			d.set(e)
		}
	}
	return d
}

// set replaces the endpoint of an interface.
func (d desired) set(e Endpoint) {
	d.remove(e.Interface)
	e.Addrs = slices.Clone(e.Addrs)
	d.endpoints[e.Interface] = e
	for _, a := range e.claimed() {
		names := append(d.claims[a], e.Interface)
		slices.Sort(names)
		d.claims[a] = names
	}
}

func (d desired) remove(name string) {
	for _, a := range d.endpoints[name].claimed() {
		others := slices.DeleteFunc(d.claims[a], func(n string) bool { return n == name })
		if len(others) == 0 {
			delete(d.claims, a)
		} else {
			d.claims[a] = others
		}
	}
	delete(d.endpoints, name)
}

// winner returns the interface that an address leads to if several endpoints have it: the first by name whose link is up and belongs to the
// endpoint, else the first by name.
func (d desired) winner(a netip.Addr, links map[string]link.Link) string {
	names := d.claims[a]
	for _, name := range names {
		if l := links[name]; l.Up && !link.IsAnothers(l.Alias, d.endpoints[name].Container) {
			return name
		}
	}
	return names[0]
}

func (d desired) wantsIPv6() bool {
	for _, e := range d.endpoints {
		if e.hasIPv6() {
			return true
		}
	}
	return false
}

// claimed returns the addresses that should lead to the endpoint, without duplicates.
func (e Endpoint) claimed() []netip.Addr {
	if !e.Active {
		return nil
	}
	addrs := slices.SortedFunc(slices.Values(e.Addrs), netip.Addr.Compare)
	return slices.Compact(addrs)
}

// affected are the interfaces that a change of some endpoints concerns, each with the addresses that it had or should have.
type affected struct {
	desired desired
	addrs   map[string]map[netip.Addr]bool
}

// add adds an interface in its desired state, and those that share an address with it, which may win or lose that.
func (a affected) add(name string) {
	addrs := a.addrs[name]
	if addrs == nil {
		addrs = make(map[netip.Addr]bool)
		a.addrs[name] = addrs
	}
	for _, addr := range a.desired.endpoints[name].claimed() {
		if addrs[addr] {
			continue
		}
		addrs[addr] = true
		for _, other := range a.desired.claims[addr] {
			a.add(other)
		}
	}
}
