// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/ownership"
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
	iface    string // the host endpoint's interface, even if the endpoint is invalid
	dirty    touched
	told     *Endpoint // as returned by the last Flush
	applied  *applied  // its rules, as returned
}

// touched says what may have changed since the last Flush.
type touched int

const (
	nothing  touched = iota
	itsRules         // the policies that pick it, their order, or its profiles
	anything
)

// locals has the endpoints of this host.
type locals struct {
	index      *index
	prefixes   []string    // of workload interfaces
	interfaces []Interface // the host's own, sorted by name
	byPath     map[string]*local
	owners     *ownership.Table
	dirty      []*local // to be examined by the next Flush
	place      bool     // interfaces of host endpoints must be determined again
	// unplaced says why host endpoints have no interface, by path.
	unplaced map[string]error
}

// setPrefixes sets the prefixes of workload interface names.
func (ls *locals) setPrefixes(prefixes []string) {
	if slices.Equal(ls.prefixes, prefixes) {
		return
	}
	ls.prefixes, ls.place = slices.Clone(prefixes), true
	for _, l := range ls.byPath {
		ls.touch(l, anything)
		ls.claim(l)
	}
}

// setInterfaces replaces the host's own interfaces.
func (ls *locals) setInterfaces(interfaces []Interface) {
	interfaces = slices.Clone(interfaces)
	slices.SortFunc(interfaces, func(a, b Interface) int { return strings.Compare(a.Name, b.Name) })
	same := func(a, b Interface) bool { return a.Name == b.Name && slices.Equal(a.Addrs, b.Addrs) }
	if !slices.EqualFunc(ls.interfaces, interfaces, same) {
		ls.interfaces, ls.place = interfaces, true
	}
}

func (ls *locals) touch(l *local, what touched) {
	if l.dirty == nothing {
		ls.dirty = append(ls.dirty, l)
	}
	l.dirty = max(l.dirty, what)
}

// claim enters a workload endpoint in the table of owners if its interface is a workload interface.
func (ls *locals) claim(l *local) {
	spec := l.workload
	if spec != nil && !ls.isWorkload(spec.Name) {
		spec = nil
	}
	ls.owners.Put(l.path, l.created, spec)
}

func (ls *locals) isWorkload(name string) bool {
	return len(ls.prefixes) == 0 || model.IsWorkloadInterface(name, ls.prefixes)
}

// update processes an endpoint of this host.
func (ls *locals) update(entry model.Entry, l *local) {
	if old := ls.byPath[entry.Path]; old != nil {
		l.dirty, l.told, l.applied = old.dirty, old.told, old.applied
		if l.host != nil {
			l.iface = old.iface
		}
		*old = *l
		l = old
	}
	ls.touch(l, anything)
	ls.place = ls.place || l.isHost
	ls.byPath[entry.Path] = l
	if ep := ls.index.endpoints[entry.Path]; ep != nil {
		if ep.local == nil {
			ls.index.adopt(ep, l)
		}
		ep.local = l
	}
	ls.claim(l)
}

// placeHosts determines the interface of each host endpoint if it may have changed. In the order of their IDs, each
// takes the interface of its name, existing or not, else the first by name that has one of its addresses and isn't
// taken.
func (ls *locals) placeHosts() (placed bool) {
	if !ls.place {
		return false
	}
	ls.place = false
	clear(ls.unplaced)
	var hosts []*local
	for _, l := range ls.byPath {
		if l.host != nil {
			hosts = append(hosts, l)
		}
	}
	slices.SortFunc(hosts, func(a, b *local) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.path, b.path)) })
	taken := map[string]string{} // paths by interface
	for _, l := range hosts {
		name, err := ls.findInterface(l.host, taken)
		if err != nil {
			ls.unplaced[l.path] = err
		} else {
			taken[name] = l.path
		}
		if name != l.iface {
			l.iface = name
			ls.touch(l, anything)
		}
	}
	return true
}

// findInterface returns the interface of a host endpoint, or the reason why it has none.
func (ls *locals) findInterface(h *model.HostEndpoint, taken map[string]string) (string, error) {
	if name := h.Name; name != "" {
		switch {
		case name == Loopback:
			return "", fmt.Errorf("name %s: what a host sends to itself is not policed, so it is not enforced: name the interface by which others reach the host, or delete it", name)
		case len(ls.prefixes) > 0 && ls.isWorkload(name):
			return "", fmt.Errorf("name %s: interfaces that begin with %s are workloads', so it is not enforced: name one of the host's own", name, strings.Join(ls.prefixes, " or "))
		case taken[name] != "":
			return "", fmt.Errorf("interface %s is that of %s, so it is not enforced: delete one of the two", name, taken[name])
		}
		return name, nil
	}
	owner := ""
	for _, i := range ls.interfaces {
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
		Loopback, listed(slices.Concat(h.ExpectedIPv4Addrs, h.ExpectedIPv6Addrs), ""), cmp.Or(ls.addresses(), "none at all"))
}

// addresses lists the addresses that could identify an interface, without link-local ones, which say little.
func (ls *locals) addresses() string {
	var all []string
	for _, i := range ls.interfaces {
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

// untilCorrected returns the error of an invalid entry. For a host endpoint of this host it adds the consequences.
func (ls *locals) untilCorrected(path string, err error) error {
	l := ls.byPath[path]
	switch {
	case l == nil || !l.isHost:
		return err
	case l.host == nil:
		return fmt.Errorf("%w; until it is corrected, it has no effect, as it isn't known what it is on", l.invalid)
	case l.iface == "":
		return fmt.Errorf("%w; %w", l.invalid, ls.unplaced[path])
	case l.iface == "*":
		return fmt.Errorf("%w; until it is corrected, it lets pass nothing by interfaces without a host endpoint of their own but fail-safe ports", l.invalid)
	}
	return fmt.Errorf("%w; until it is corrected, it lets pass nothing by %s but fail-safe ports", l.invalid, l.iface)
}
