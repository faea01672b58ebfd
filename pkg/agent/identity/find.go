// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

const (
	// departure is how long find waits for an address that is gone before it takes another one, or none.
	departure = 10 * time.Second
	// lookupTimeout bounds the lookup of can-reach's target.
	lookupTimeout = 5 * time.Second
)

// chosenMethods returns the methods, with defaults for those that aren't set.
func chosenMethods(given [2]plan.Method) [2]plan.Method {
	for family, m := range given {
		if m.Kind == "" {
			// The empty method always parses.
			given[family], _ = plan.ParseMethod("", family == 1)
		}
	}
	return given
}

// finding is the result of find.
type finding struct {
	own [2]plan.Identity // by family
	// keep: what etcd holds for the family stays.
	keep [2]bool
	errs [2]error
	// apart: packets to other hosts leave by another link than the one with the address.
	apart [2]error
	// again is when to look again even if nothing changes; 0 = never.
	again time.Duration
}

// reach returns the address from which the host sends to a target, invalid if no route leads there. The error is that of a failed name
// lookup.
type reach func(ctx context.Context, target string, v6 bool) (netip.Addr, error)

// sight is the last result of can-reach.
type sight struct {
	links int // the note's sight at the time
	addr  netip.Addr
	err   error
	at    time.Time
}

// familyState is what is kept about the host's address of one family.
type familyState struct {
	looked    sight
	departing time.Time // since when an address other than the former is found
}

// find determines the host's addresses. When an address is gone, find waits before another takes its place, unless the same link has
// another: a flapping link must not move the host for all others.
func (i *Host) find(ctx context.Context, n note) finding {
	var f finding
	for family, m := range i.methods {
		own := n.own[family]
		former := own.Addr.Addr()
		if !former.IsValid() {
			former = storedAddress(n.stored, i.host, family)
		}
		reached, lookup := i.reached(ctx, family, m, n.sight)
		// A pool created over the host's present address must not move the host.
		pools := slices.DeleteFunc(slices.Collect(maps.Values(n.pools)), func(p netip.Prefix) bool { return p.Contains(former) })
		id, err := m.Choose(plan.Surroundings{Links: n.links, Pools: pools, Reached: reached, Former: former}, family == 1)
		if lookup != nil {
			id, err = plan.Identity{}, lookup
			f.again = sooner(f.again, mostPause)
		}
		there := hasAddress(n.links.Links, former)
		stays := id.Addr.Addr() == former || !there && id.Link != "" && id.Link == own.Link
		unknown := lookup != nil && there // nothing says that it must go
		left := i.leaving(family, m, former.IsValid() && !stays && !unknown)
		switch {
		case unknown, left > 0:
			// The address stays as it was. After a start n.own is empty, and what etcd says is kept.
			f.own[family], f.keep[family], f.errs[family] = own, true, lookup
			f.again = sooner(f.again, left)
		case err != nil:
			f.errs[family] = err
		default:
			i.families[family].departing = time.Time{}
			f.own[family] = id
			if id.Addr.IsValid() && id.Link == "" {
				f.errs[family] = fmt.Errorf("no link has %s: other hosts cannot reach this one by it; give it to a link, or choose another", id.Addr.Addr())
			}
		}
		if m.Kind == plan.MethodFirstFound || m.Kind == plan.MethodSkip {
			f.apart[family] = i.apart(ctx, family, f.own[family], n)
			f.errs[family] = cmp.Or(f.errs[family], f.apart[family])
		}
		if f.errs[family] == nil || m.Kind == plan.MethodAddress {
			f.errs[family] = cmp.Or(refused(n.links.Links, m, family), f.errs[family])
		}
	}
	// Where pods have only IPv6, it is no fault that the default finds no IPv4.
	isIPv4 := func(p netip.Prefix) bool { return p.Addr().Is4() }
	if i.methods[0].Unset && !f.own[0].Addr.IsValid() && f.own[1].Addr.IsValid() && !slices.ContainsFunc(slices.Collect(maps.Values(n.pools)), isIPv4) {
		f.errs[0] = nil
	}
	return f
}

// apart returns an error if packets to other hosts leave by another link than the one with the host's address: most likely no other host
// reaches this one by that address. It returns nil if they don't, or if no route leads to another host. A loopback's address is reached by
// any link.
func (i *Host) apart(ctx context.Context, family int, own plan.Identity, n note) error {
	if own.Link == "" || n.links.Of(own.Addr.Addr()).Loopback {
		return nil
	}
	var other, from netip.Addr
	for _, a := range n.others[family] {
		source, err := i.reach(ctx, a.String(), family == 1)
		if err != nil || !source.IsValid() {
			continue
		}
		if n.links.Of(source).Name == own.Link {
			return nil
		}
		other, from = a, source
	}
	if !from.IsValid() {
		return nil
	}
	parameter := problemAddress(family)
	return fmt.Errorf("this host's address is %s on %s, but what it sends to other hosts, such as %s, leaves from %s: they don't reach its pods, unless %[2]s leads to them as well; start its agent with %[5]s=%[4]s, or with %[5]s=interface= and the name of the link",
		own.Addr.Addr(), own.Link, other, from, parameter)
}

// leaving returns how much longer to wait for the host's former address. goes says that another was found.
func (i *Host) leaving(family int, m plan.Method, goes bool) time.Duration {
	since := &i.families[family].departing
	if !goes || m.Kind == plan.MethodNone || m.Kind == plan.MethodAddress {
		*since = time.Time{}
		return 0
	}
	if since.IsZero() {
		*since = i.now()
	}
	return max(0, departure-i.now().Sub(*since))
}

// refused returns an error if the kernel refuses an address of this host, nil = none. It doesn't matter if the host needs no address of the
// family.
func refused(links []plan.Link, m plan.Method, family int) error {
	if m.Kind == plan.MethodNone {
		return nil
	}
	for _, r := range plan.RefusedAddresses(links, family == 1) {
		return fmt.Errorf("the kernel doesn't use %s on %s, as another host there has it (duplicate address detection): take it from one of them, then give it to this one again", r.Addr.Addr(), r.Link)
	}
	return nil
}

func hasAddress(links []plan.Link, a netip.Addr) bool {
	return slices.ContainsFunc(links, func(l plan.Link) bool {
		return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

// storedAddress returns the host's address according to etcd, invalid for none.
func storedAddress(stored map[string]model.Entry, host string, family int) netip.Addr {
	field := model.BGPHostIPv4
	if family == 1 {
		field = model.BGPHostIPv6
	}
	text, _ := stored[model.BGPHostKey{Host: host, Field: field}.Path()].Value.(model.Text)
	a, _ := netip.ParseAddr(string(text)) // unreadable counts as none
	return a
}

// reached returns the address from which the host sends to the target of can-reach, or to etcd, with these links. It retries a failed
// lookup.
func (i *Host) reached(ctx context.Context, family int, m plan.Method, links int) (netip.Addr, error) {
	if m.Kind == plan.MethodFirstFound || m.Kind == plan.MethodSkip {
		return i.towardsEtcd(ctx, family), nil
	}
	if m.Kind != plan.MethodCanReach {
		return netip.Addr{}, nil
	}
	s := &i.families[family].looked
	if s.links == links && (s.err == nil || i.now().Sub(s.at) < mostPause) {
		return s.addr, s.err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addr, err := i.reach(ctx, m.Target, family == 1)
	if err != nil {
		err = fmt.Errorf("%s: %w", m, err)
	}
	*s = sight{links, addr, err, i.now()}
	return s.addr, s.err
}

// towardsEtcd returns the address from which the host sends to etcd, invalid if no member has an address of the family, other than a
// loopback's.
func (i *Host) towardsEtcd(ctx context.Context, family int) netip.Addr {
	members := i.members()
	slices.SortFunc(members, netip.Addr.Compare)
	for _, a := range members {
		if familyOf(a) != family || a.IsLoopback() {
			continue
		}
		if from, err := i.reach(ctx, a.String(), family == 1); err == nil && from.IsValid() {
			return from
		}
	}
	return netip.Addr{}
}

// reachByKernel resolves the name and asks the kernel for the route.
func reachByKernel(ctx context.Context, target string, v6 bool) (netip.Addr, error) {
	targets := []netip.Addr{}
	if a, err := netip.ParseAddr(target); err == nil {
		targets = append(targets, a)
	} else {
		network := "ip4"
		if v6 {
			network = "ip6"
		}
		if targets, err = net.DefaultResolver.LookupNetIP(ctx, network, target); err != nil {
			return netip.Addr{}, err
		}
	}
	for _, a := range targets {
		source, err := hostnet.SourceTo(a.Unmap())
		if err == nil {
			return source, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return netip.Addr{}, err
		}
	}
	return netip.Addr{}, nil
}
