// SPDX-License-Identifier: Apache-2.0

package router

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/plan"
)

// bridgeTime is how long a route of a pool that lost its encapsulation waits for
// BGP to say the same.
const bridgeTime = 30 * time.Second

// bridge keeps packets flowing where pools have lost their encapsulation: the
// routes by etcd are gone then, and BGP takes a moment to tell of the blocks. Until
// it has, they lead straight to the hosts that etcd named, where these are on a link of
// ours; what they need for that is only their own link and forwarding.
func (r *Router) bridge(c plan.Changes) plan.Changes {
	if len(c.Routes) == 0 || r.retained {
		return c
	}
	imports := r.state.Speaker.Import
	if c.Speaker != nil {
		imports = c.Speaker.Import
	}
	var kept []plan.Route
	for p, now := range c.Routes {
		was, had := r.state.Routes[p]
		if now != nil || !had || was.Origin != plan.FromHost || !slices.ContainsFunc(imports, func(i netip.Prefix) bool { return i.Overlaps(p) }) {
			continue
		}
		if hop, ok := r.straightTo(was.Host, p.Addr().Is4()); ok {
			was.Hops = []plan.Hop{hop}
			kept = append(kept, was)
		}
	}
	if len(kept) == 0 {
		return c
	}
	for _, route := range kept {
		r.bridged[route.Destination] = route
	}
	r.bridgeEnd = time.Now().Add(bridgeTime)
	r.unbridging.Reset(bridgeTime)
	r.engine.Retain(slices.Collect(maps.Values(r.bridged))...)
	return overlay(c, r.engine.Compute())
}

// unbridge ends that where BGP has told of all, or has had its time.
func (r *Router) unbridge() {
	if len(r.bridged) == 0 || time.Now().Before(r.bridgeEnd) {
		return
	}
	clear(r.bridged)
	r.engine.Retain()
}

// learn takes in what BGP learned.
func (r *Router) learn(learned []plan.Learned) {
	r.engine.Learn(learned...)
	if len(r.bridged) == 0 {
		return
	}
	for _, l := range learned {
		if len(l.Paths) > 0 {
			delete(r.bridged, l.Prefix)
		}
	}
	if len(r.bridged) == 0 {
		r.engine.Retain()
	}
}

// mostPassed is how many prefixes are looked at each time.
const mostPassed = 1000

// lookAtPassed has BGP look at prefixes whose best paths are of no use: of the others it
// tells only then.
func (r *Router) lookAtPassed() {
	if r.engine == nil {
		return
	}
	if passed := r.engine.Passed(mostPassed); len(passed) > 0 {
		r.network.lessons.LookAgain(passed)
	}
}

// straightTo is the next hop to another host on a link that it shares with this one.
func (r *Router) straightTo(host string, is4 bool) (plan.Hop, bool) {
	for a, name := range r.state.Hosts {
		if name != host || a.Is4() != is4 {
			continue
		}
		for _, l := range r.links.Links {
			for _, own := range l.Addrs {
				if l.Up && own.Masked().Contains(a) && !own.IsSingleIP() {
					return plan.Hop{Gateway: a, Device: l.Name}, true
				}
			}
		}
	}
	return plan.Hop{}, false
}

// overlay is one change after another.
func overlay(c, next plan.Changes) plan.Changes {
	maps.Copy(c.Routes, next.Routes)
	maps.Copy(c.Remotes, next.Remotes)
	maps.Copy(c.Hosts, next.Hosts)
	maps.Copy(c.Neighbours, next.Neighbours)
	maps.Copy(c.Advertisements, next.Advertisements)
	maps.Copy(c.Problems, next.Problems)
	if next.Devices != nil {
		c.Devices = next.Devices
	}
	if next.MTU != nil {
		c.MTU = next.MTU
	}
	if next.Speaker != nil {
		c.Speaker = next.Speaker
	}
	return c
}
