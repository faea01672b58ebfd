// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// local is an endpoint of this host, valid or not.
type local struct {
	path     string
	id       string // of a host endpoint
	created  int64
	workload *model.WorkloadEndpoint // nil = a host endpoint, or invalid
	host     *model.HostEndpoint
	isHost   bool
	invalid  error
	iface    string // that a host endpoint was found to be, invalid or not
	claims   []claim
	dirty    touched
	told     *Endpoint // by the last Flush
	applied  *applied  // the rules that it goes by, as told
}

// touched is what may be different of a local endpoint than was told.
type touched int

const (
	nothing  touched = iota
	itsRules         // which policies pick it, their order, its profiles
	anything
)

func (e *Engine) touch(l *local, what touched) {
	if l.dirty == nothing {
		e.dirty = append(e.dirty, l)
	}
	l.dirty = max(l.dirty, what)
}

// claim is what only one workload endpoint of a host may have.
type claim struct {
	iface string
	addr  netip.Addr
}

func (c claim) String() string {
	if c.addr.IsValid() {
		return "address " + c.addr.String()
	}
	return "interface " + c.iface
}

// compare orders endpoints that claim one thing: first those that can't be without,
// whichever is older, then by age, and those of one transaction by path.
func (c claim) compare(a, b *local) int {
	if is := a.is(c); is != b.is(c) {
		if is {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.path, b.path))
}

// is says that the workload can't be without what it claims: its interface or an
// address of its own, not an ext_ip.
func (l *local) is(c claim) bool {
	return !c.addr.IsValid() || slices.Contains(l.workload.Addrs(), c.addr)
}

// claim enters what a workload endpoint claims, instead of what it did.
func (e *Engine) claim(l *local, claims []claim) {
	for _, c := range l.claims {
		rest := slices.DeleteFunc(e.claims[c], func(o *local) bool { return o == l })
		if len(rest) == 0 {
			delete(e.claims, c)
		} else {
			e.claims[c] = rest
		}
		e.touchClaim(c)
	}
	l.claims = claims
	for _, c := range claims {
		e.touchClaim(c)
		e.claims[c] = append(e.claims[c], l)
	}
}

func (e *Engine) touchClaim(c claim) {
	for _, o := range e.claims[c] {
		e.touch(o, anything)
	}
}

// claimsOf lists what an endpoint claims: nothing where its name is none for
// a workload's interface.
func (e *Engine) claimsOf(w *model.WorkloadEndpoint) []claim {
	if !e.isWorkload(w.Name) {
		return nil
	}
	addrs := slices.Clone(w.Addrs())
	for _, nats := range [][]model.NAT{w.IPv4NAT, w.IPv6NAT} {
		for _, n := range nats {
			addrs = append(addrs, n.ExtIP)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	claims := []claim{{iface: w.Name}}
	for _, a := range slices.Compact(addrs) {
		claims = append(claims, claim{addr: a})
	}
	return claims
}

func (e *Engine) isWorkload(name string) bool {
	return len(e.prefixes) == 0 || slices.ContainsFunc(e.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// updateLocal takes in an endpoint of this host.
func (e *Engine) updateLocal(entry model.Entry, l *local) {
	if old := e.locals[entry.Path]; old != nil {
		e.claim(old, nil)
		l.dirty, l.told, l.applied = old.dirty, old.told, old.applied
		if l.host != nil {
			l.iface = old.iface
		}
		*old = *l
		l = old
	}
	e.touch(l, anything)
	e.place = e.place || l.isHost
	e.locals[entry.Path] = l
	if ep := e.endpoints[entry.Path]; ep != nil {
		if ep.local == nil {
			e.adopt(ep, l)
		}
		ep.local = l
	}
	if l.workload != nil {
		e.claim(l, e.claimsOf(l.workload))
	}
}

// placeHosts finds out which interface each host endpoint is. In the order of
// their ids, each takes the interface of its name, there or not, else the first
// by name that has one of its addresses; one that is taken is not had again.
func (e *Engine) placeHosts() {
	e.place, e.judged = false, nil
	clear(e.unplaced)
	var hosts []*local
	for _, l := range e.locals {
		if l.host != nil {
			hosts = append(hosts, l)
		}
	}
	slices.SortFunc(hosts, func(a, b *local) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.path, b.path)) })
	e.hosts = hosts
	taken := map[string]string{} // paths by interface
	for _, l := range hosts {
		name, err := e.findInterface(l.host, taken)
		if err != nil {
			e.unplaced[l.path] = err
		} else {
			taken[name] = l.path
		}
		if name != l.iface {
			l.iface = name
			e.touch(l, anything)
		}
	}
}

// findInterface is the interface that a host endpoint is, or why it is none.
func (e *Engine) findInterface(h *model.HostEndpoint, taken map[string]string) (string, error) {
	if name := h.Name; name != "" {
		switch {
		case name == Loopback:
			return "", fmt.Errorf("name %s: what a host sends to itself is not policed, so it is not enforced: name the interface by which others reach the host, or delete it", name)
		case len(e.prefixes) > 0 && e.isWorkload(name):
			return "", fmt.Errorf("name %s: interfaces that begin with %s are workloads', so it is not enforced: name one of the host's own", name, strings.Join(e.prefixes, " or "))
		case taken[name] != "":
			return "", fmt.Errorf("interface %s is that of %s, so it is not enforced: delete one of the two", name, taken[name])
		}
		return name, nil
	}
	owner := ""
	for _, i := range e.interfaces {
		if i.Name == Loopback || !slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool {
			return slices.Contains(h.ExpectedIPv4Addrs, a) || slices.Contains(h.ExpectedIPv6Addrs, a)
		}) {
			continue
		}
		if owner = taken[i.Name]; owner == "" {
			return i.Name, nil
		}
	}
	if owner != "" {
		return "", fmt.Errorf("the interface that has one of its addresses is that of %s, so it is not enforced: delete one of the two", owner)
	}
	return "", fmt.Errorf("none of its expected addresses is on an interface of this host other than %s, so it is not enforced: correct them, or give it the name of an interface; it expects %s, and the host has %s",
		Loopback, listed(slices.Concat(h.ExpectedIPv4Addrs, h.ExpectedIPv6Addrs), ""), cmp.Or(e.addresses(), "none at all"))
}

// addresses are those by which a host endpoint may have an interface, but for link-local ones, which tell little.
func (e *Engine) addresses() string {
	var all []string
	for _, i := range e.interfaces {
		addrs := slices.DeleteFunc(slices.Clone(i.Addrs), netip.Addr.IsLinkLocalUnicast)
		if i.Name != Loopback && len(addrs) > 0 {
			all = append(all, listed(addrs, " on "+i.Name))
		}
	}
	return strings.Join(all, ", ")
}

func listed(addrs []netip.Addr, suffix string) string {
	all := make([]string, 0, len(addrs))
	for _, a := range addrs {
		all = append(all, a.String()+suffix)
	}
	return strings.Join(all, ", ")
}
