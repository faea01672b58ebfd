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
	// departure is how long an address that can't be used is waited for before
	// another one is taken, or none: a link that goes down for a moment, or is set up
	// anew, must not move the host for all others. Where the same link has another
	// address in its place nothing is waited for.
	departure = 10 * time.Second
	// lookupTimeout bounds the look for the target of can-reach.
	lookupTimeout = 5 * time.Second
)

// chosenMethods are the methods, those that aren't set included.
func chosenMethods(given [2]plan.Method) [2]plan.Method {
	for family, m := range given {
		if m.Kind == "" {
			// Nothing is always a method.
			given[family], _ = plan.ParseMethod("", family == 1)
		}
	}
	return given
}

// finding is what the host's addresses are.
type finding struct {
	own [2]plan.Identity // by family
	// keep: what etcd says of the family stays as it is.
	keep [2]bool
	errs [2]error
	// again is when to look again though nothing changes; 0 = needn't be.
	again time.Duration
}

// reach is the address from which the host sends to a target, invalid where no
// route leads there. The error is of a name that couldn't be looked up.
type reach func(ctx context.Context, target string, v6 bool) (netip.Addr, error)

// sight is what can-reach last saw.
type sight struct {
	links int // which of the notes' links it was
	addr  netip.Addr
	err   error
	at    time.Time
}

// familyState is what is remembered of the host's address of one family.
type familyState struct {
	looked    sight
	departing time.Time  // since when another address than the former is found
	link      string     // that has, or had, the address
	carries   bool       // the link did when it was last looked at
	missed    bool       // the last find had no address to offer
	stood     netip.Addr // the host's own that was last in etcd as such
}

// find finds the host's addresses.
func (i *Keeper) find(ctx context.Context, n note) finding {
	var f finding
	for family, m := range i.methods {
		reached, lookup := i.reached(ctx, family, m, n.sight)
		choose := func(former netip.Addr) (plan.Identity, error) {
			// A pool made over the address that the host has must not move it.
			pools := slices.DeleteFunc(slices.Collect(maps.Values(n.pools)), func(p netip.Prefix) bool { return p.Contains(former) })
			return m.Choose(plan.Surroundings{Links: n.links.Links, Pools: pools, Reached: reached, Former: former}, family == 1)
		}
		// An address that stood in etcd stays, whatever is written over it. One that was found
		// and couldn't be written yet gives way to what the others know.
		former, own := storedAddress(n.stored, i.host, family), n.own[family].Addr.Addr()
		if own == former {
			i.families[family].stood = own
		}
		if own.IsValid() && own == i.families[family].stood {
			former = own
		}
		id, err := choose(former)
		if own.IsValid() && own != former && (!former.IsValid() || id.Addr.Addr() != former) {
			former = own
			id, err = choose(own)
		}
		if lookup != nil {
			id, err = plan.Identity{}, lookup
			f.again = sooner(f.again, mostPause)
		}
		there := hasAddress(n.links.Links, former)
		// After a start, a former one that could be used and isn't chosen is not the method's, which
		// somebody has changed. Only where a target is reached from may change for a moment.
		unfit := !own.IsValid() && id.Addr.Addr() != former && isUsable(n.links.Links, former)
		left := time.Duration(0)
		if lookup == nil {
			returns := there || i.isElsewhere(n, family, former, id)
			if i.isBack(n, family, former) {
				i.families[family].departing = time.Time{}
			}
			left = i.leaving(family, m, id.Addr.Addr(), former, returns && (!unfit || m.Kind == plan.MethodCanReach))
		} else {
			i.families[family].departing = time.Time{} // nothing says that it has to go
		}
		switch {
		case lookup != nil && there, left > 0:
			// It stays as it was. After a start n.own is none, and what etcd says is kept.
			f.own[family], f.keep[family], f.errs[family] = n.own[family], true, lookup
			if unfit || i.families[family].missed {
				f.errs[family] = err
			}
			f.again = sooner(f.again, left)
		case err != nil:
			f.errs[family] = err
		default:
			f.own[family] = id
			if id.Addr.IsValid() && id.Link == "" {
				f.errs[family] = fmt.Errorf("no link has %s: other hosts cannot reach this one by it; give it to a link, or choose another", id.Addr.Addr())
			}
		}
		i.families[family].missed = f.errs[family] != nil && lookup == nil
		if f.errs[family] == nil || m.Kind == plan.MethodAddress {
			f.errs[family] = cmp.Or(refused(n.links.Links, m, family), f.errs[family])
		}
	}
	return f
}

// refused says that the kernel refuses an address of this host, nil = none. Where no
// address of the family is wished nobody asks.
func refused(links []plan.Link, m plan.Method, family int) error {
	if m.Kind == plan.MethodNone {
		return nil
	}
	for _, r := range plan.RefusedAddresses(links, family == 1) {
		return fmt.Errorf("the kernel doesn't use %s on %s, as another host there has it (duplicate address detection): take it from one of them, then give it to this one again", r.Addr.Addr(), r.Link)
	}
	return nil
}

// isElsewhere says whether what was found isn't in the former address's place: not on the link that had
// it or, where an earlier process knew that, not in its subnet.
func (i *Keeper) isElsewhere(n note, family int, former netip.Addr, found plan.Identity) bool {
	if own := n.own[family]; own.Addr.Addr() == former && own.Link != "" {
		return own.Link != found.Link
	}
	if family == 1 {
		return false // its subnet isn't in etcd
	}
	text, _ := n.stored[model.BGPHostKey{Host: i.host, Field: model.BGPHostNetworkV4}.Path()].Value.(model.Text)
	subnet, err := netip.ParsePrefix(string(text)) // what can't be read says nothing
	return err == nil && subnet.Contains(former) && !subnet.Contains(found.Addr.Addr())
}

// isBack says whether the former address may be about to come back, so that it is to be waited for anew: the link that
// had it has come up, or the kernel asks whether another host has it. A link gets its addresses one after the other,
// which takes DHCP or the kernel's question a second or two. Before it has a carrier neither begins.
func (i *Keeper) isBack(n note, family int, former netip.Addr) bool {
	home := &i.families[family]
	if link := n.own[family].Link; link != "" && link != home.link {
		home.link, home.carries = link, true
	}
	carries, asked := false, false
	for _, l := range n.links.Links {
		if l.Up && !l.NoCarrier {
			carries = carries || l.Name == home.link
			asked = asked || slices.Contains(l.Pending, former)
		}
	}
	came := carries && !home.carries
	home.carries = carries
	return came || asked
}

// leaving says how long the former address is yet waited for. returns says that it may be
// of use again, though another one was found.
func (i *Keeper) leaving(family int, m plan.Method, found, former netip.Addr, returns bool) time.Duration {
	wished := m.Kind == plan.MethodNone || m.Kind == plan.MethodAddress
	if wished || !former.IsValid() || found == former || !returns && found.IsValid() {
		i.families[family].departing = time.Time{}
		return 0
	}
	now := i.now()
	if i.families[family].departing.IsZero() {
		i.families[family].departing = now
	}
	left := departure - now.Sub(i.families[family].departing)
	if left <= 0 && found.IsValid() {
		i.families[family].departing = time.Time{}
	}
	return max(0, left)
}

func hasAddress(links []plan.Link, a netip.Addr) bool {
	return slices.ContainsFunc(links, func(l plan.Link) bool {
		return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

// isUsable reports whether a link that is up has the address, and the kernel uses it.
func isUsable(links []plan.Link, a netip.Addr) bool {
	return slices.ContainsFunc(links, func(l plan.Link) bool {
		return l.Up && !slices.Contains(l.Pending, a) && hasAddress([]plan.Link{l}, a)
	})
}

// storedAddress is what etcd says is the host's address, invalid for none.
func storedAddress(stored map[string]model.Entry, host string, family int) netip.Addr {
	field := model.BGPHostIPv4
	if family == 1 {
		field = model.BGPHostIPv6
	}
	text, _ := stored[model.BGPHostKey{Host: host, Field: field}.Path()].Value.(model.Text)
	a, _ := netip.ParseAddr(string(text)) // what can't be read is none
	return a
}

// reached is what can-reach sees with these links; it looks again where a look failed.
func (i *Keeper) reached(ctx context.Context, family int, m plan.Method, links int) (netip.Addr, error) {
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

// reachByKernel asks the resolver for the name and the kernel for the way.
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
