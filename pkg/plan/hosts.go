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

// defaultAS is the AS number of hosts if none is set.
const defaultAS model.ASNumber = 64512

// hostAddr is an address that a host claims to have.
type hostAddr struct {
	addr    netip.Addr // invalid = it claims none
	path    string     // of the key that contains it
	created int64      // creation revision of that key
}

// host is what etcd says about a host. The zero value is a host that doesn't exist.
type host struct {
	exists bool
	// reports says that its agent's lease holds; alive says that too, or that it never reported.
	reports, alive bool
	addrs          [2]hostAddr    // by family
	as             model.ASNumber // 0 = none that is readable
	cluster        netip.Addr     // of a route reflector
	// mine are the host's addresses, without those for which another host takes precedence.
	mine [2]netip.Addr
}

// readHost collects what etcd says about a host. self is the name of this host.
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
	h.cluster, _ = netip.ParseAddr(valueOf[string](field(model.BGPHostReflector))) // a number in the form of an address; 224.0.0.1 is valid
	return h
}

// addrOf reads a host's address from its key. It treats an address that no host can have as none.
func addrOf(o *object, is4 bool) hostAddr {
	a, err := netip.ParseAddr(valueOf[string](o))
	if err != nil || a.Is4() != is4 || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return hostAddr{}
	}
	return hostAddr{a, o.path, o.created}
}

// hosts are all hosts as seen by this one, self.
type hosts struct {
	self   string
	byName map[string]host
	claims map[netip.Addr][]string // host names by claimed address, sorted
	addrs  []netip.Addr            // the keys of claims, sorted
}

// newHosts determines which host each address belongs to.
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

// at returns the host that an address belongs to, "" for none. Among several that claim it, this host comes first, then
// a live one, then the first that claimed it.
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

// other returns the host that an address belongs to, "" for this one or none.
func (h *hosts) other(a netip.Addr) string {
	if name := h.at(a); name != h.self {
		return name
	}
	return ""
}

// me returns this host's addresses by family.
func (h *hosts) me() [2]netip.Addr { return h.byName[h.self].mine }

// otherThan returns the host that has an address if the holder doesn't claim it; "" for none.
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

// conflictError says that another live host has an address that this host would take.
type conflictError struct {
	Host string     // the other host
	Addr netip.Addr // the address in conflict
}

// Error names the conflict and says what to do.
func (e *conflictError) Error() string {
	return fmt.Sprintf("address %s is that of host %s, which lives: give one of them another address; if %s is a former name of this machine, its status in etcd ends ReportingTTLSecs after its agent",
		e.Addr, e.Host, e.Host)
}

// Others returns addresses of other live hosts, at most so many of each family.
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

// Conflict returns an error if this host must not take the addresses in own, which it has found: one belongs to another
// host whose agent's lease holds. said are the addresses that this very agent has written since it started: if two
// hosts took the same one at the same time, the first to write it keeps it. Conflict relies on the last compute. Errors
// are *conflictError.
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

// familyOf returns 0 for IPv4, 1 for IPv6.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func familyName(family int) string { return [...]string{"IPv4", "IPv6"}[family] }

// addrSetting returns the name of the agent's setting for its host's address.
func addrSetting(family int) string { return [...]string{"IP", "IP6"}[family] }

func addrField(family int) model.BGPHostField {
	return [...]model.BGPHostField{model.BGPHostIPv4, model.BGPHostIPv6}[family]
}
