// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// defaultAS is the AS number of hosts where nothing is set.
const defaultAS model.ASNumber = 64512

// hostAddr is what a host says is its address.
type hostAddr struct {
	addr    netip.Addr // invalid = it says none
	path    string     // of the key that says so
	created int64      // when
}

// host is what etcd says of one; the zero value is of one that isn't there.
type host struct {
	exists bool
	// reports: its agent's lease holds. alive: that, or it never reported at all.
	reports, alive bool
	addrs          [2]hostAddr    // by family
	as             model.ASNumber // 0 = none that can be read
	cluster        netip.Addr     // of a route reflector
	// mine are the addresses that are the host's: no other host comes first.
	mine [2]netip.Addr
}

// readHost puts together what etcd says of a host; self is this one's name.
func (s *objects) readHost(name, self string) host {
	bird := s.byKey[model.HostBirdIPKey{Host: name}]
	h := host{exists: name == self || bird != nil || s.byKey[model.HostMetadataKey{Host: name}] != nil}
	if !h.exists {
		return host{}
	}
	h.reports = s.byKey[model.StatusKey{Host: name}] != nil
	h.alive = name == self || model.AgentLives(h.reports, s.byKey[model.LastStatusKey{Host: name}] != nil)
	field := func(f model.BGPHostField) *object { return s.byKey[model.BGPHostKey{Host: name, Field: f}] }
	v4 := field(model.BGPHostIPv4)
	if v4 == nil || v4.value == "" {
		v4 = bird
	}
	h.addrs = [2]hostAddr{addrOf(v4, true), addrOf(field(model.BGPHostIPv6), false)}
	h.as, _ = model.ParseASNumber(valueOf[string](field(model.BGPHostAS)))
	h.cluster, _ = netip.ParseAddr(valueOf[string](field(model.BGPHostReflector))) // a number in an address's form: 224.0.0.1 is one
	return h
}

// addrOf reads a host's address from its key; an address that no host can have is none.
func addrOf(o *object, is4 bool) hostAddr {
	a, err := netip.ParseAddr(valueOf[string](o))
	if err != nil || a.Is4() != is4 || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return hostAddr{}
	}
	return hostAddr{a, o.path, o.created}
}

// hosts are all hosts as this one, self, sees them.
type hosts struct {
	self   string
	byName map[string]host
	claims map[netip.Addr][]string // hosts by the address that they say they have, sorted
	addrs  []netip.Addr            // the keys of claims, sorted
}

// newHosts finds which addresses are whose.
func newHosts(self string, said map[string]host) hosts {
	h := hosts{self: self, byName: maps.Clone(said), claims: map[netip.Addr][]string{}}
	for name, host := range said {
		for _, said := range host.addrs {
			if said.addr.IsValid() {
				h.claims[said.addr] = append(h.claims[said.addr], name)
			}
		}
	}
	for a, names := range h.claims {
		slices.Sort(names)
		winner := h.at(a)
		host := h.byName[winner]
		host.mine[familyOf(a)] = a
		h.byName[winner] = host
	}
	h.addrs = slices.SortedFunc(maps.Keys(h.claims), netip.Addr.Compare)
	return h
}

// at is the host to which an address belongs, "" = none. Among several that claim it, this
// host comes first, then a live one, then the first to say so.
func (h *hosts) at(a netip.Addr) string {
	best := ""
	for _, name := range h.claims[a] {
		if best == "" || h.before(name, best, familyOf(a)) {
			best = name
		}
	}
	return best
}

func (h *hosts) before(a, b string, family int) bool {
	x, y := h.byName[a], h.byName[b]
	switch {
	case a == h.self || b == h.self:
		return a == h.self
	case x.alive != y.alive:
		return x.alive
	}
	return cmp.Or(cmp.Compare(x.addrs[family].created, y.addrs[family].created), strings.Compare(a, b)) < 0
}

// other is the host to which an address belongs, "" = this one, or none.
func (h *hosts) other(a netip.Addr) string {
	if name := h.at(a); name != h.self {
		return name
	}
	return ""
}

// me are this host's addresses by family.
func (h *hosts) me() [2]netip.Addr { return h.byName[h.self].mine }

// otherThan is the host that has an address, where that isn't the holder; "" = none.
func (h *hosts) otherThan(holder string, a netip.Addr) string {
	if slices.Contains(h.claims[a], holder) {
		return ""
	}
	return h.at(a)
}

// shared returns a problem for each host that claims an address of another.
func (h *hosts) shared() []Problem {
	var all []Problem
	for a, names := range h.claims {
		winner := h.at(a)
		for _, name := range names {
			if name != winner {
				all = append(all, Problem{ProblemID{sameAddress, h.byName[name].addrs[familyOf(a)].path},
					fmt.Sprintf("host %s says that it has %s, which is host %s's: packets for it go to %s; give one of them another address, or delete the host that is gone",
						name, a, winner, winner)})
			}
		}
	}
	return all
}

// conflictError says that another live host has what this host would take.
type conflictError struct {
	Host string     // the other one
	Addr netip.Addr // that both would have
}

// Error says what to do.
func (e *conflictError) Error() string {
	return fmt.Sprintf("address %s is that of host %s, which lives: give one of them another address; if %s is a former name of this machine, its status in etcd ends ReportingTTLSecs after its agent",
		e.Addr, e.Host, e.Host)
}

// Others are addresses of other hosts that live, at most so many of each family.
func (e *engine) Others(most int) (all [2][]netip.Addr) {
	h := &e.view.hosts
	for _, a := range h.addrs {
		name, f := h.at(a), familyOf(a)
		if name != e.self && h.byName[name].alive && len(all[f]) < most {
			all[f] = append(all[f], a)
		}
	}
	return all
}

// Conflict says why this host must not take the addresses that it has found, own: one is
// another live host's, whose agent's lease holds. said are the addresses that this very agent
// has written since it started: of two hosts that took one at the same time, the first to
// write it keeps it. It goes by the last Compute. Errors are *conflictError.
func (e *engine) Conflict(own, said []netip.Addr) error {
	h := &e.view.hosts
	for _, a := range own {
		for _, name := range h.claims[a] {
			f := familyOf(a)
			ours, theirs := h.byName[e.self].addrs[f], h.byName[name].addrs[f]
			first := slices.Contains(said, a) && ours.addr == a && ours.created < theirs.created
			if name != e.self && h.byName[name].reports && !first {
				return &conflictError{Host: name, Addr: a}
			}
		}
	}
	return nil
}

// familyOf is 0 for IPv4, 1 for IPv6.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func familyName(family int) string { return [...]string{"IPv4", "IPv6"}[family] }

// addrSetting tells an agent how to find its host's address.
func addrSetting(family int) string { return [...]string{"IP", "IP6"}[family] }

func addrField(family int) model.BGPHostField {
	return [...]model.BGPHostField{model.BGPHostIPv4, model.BGPHostIPv6}[family]
}
