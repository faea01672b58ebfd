// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/agent/identity"
	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/plan"
)

// leastRetention is how long a host that doesn't speak BGP keeps what it learned
// before the agent was started anew: its address may be on its way to etcd.
const leastRetention = 2 * time.Minute

// leastLook is the least time between two looks at the kernel that events ask for.
const leastLook = 20 * time.Millisecond

// begin makes the engine, which keeps the routes that a former run of the agent
// learned until BGP has learned them again.
func (r *Router) begin() bool {
	former, err := r.network.routes()
	if !r.well(formerTrouble, "the routes that BGP learned before could not be read, trying again", err) {
		r.again()
		return false
	}
	if r.routerID, err = r.network.readRouterID(); err != nil {
		r.log.Warn("the host's IPv4 address is its BGP router id", "reason", err)
	}
	r.engine = plan.NewEngine(r.host, r.routing())
	r.engine.Retain(former...)
	r.begun, r.retained = time.Now(), len(former) > 0
	r.look, r.whole = true, true
	return true
}

// open opens the kernel's side, where it isn't.
func (r *Router) open(ctx context.Context) bool {
	if r.fabric != nil {
		return true
	}
	err := r.openFabric(ctx)
	if err != nil && ctx.Err() != nil {
		return false // the agent stops
	}
	if !r.well(openTrouble, "routes to other hosts can't be programmed, trying again", err) {
		r.again()
		return false
	}
	return true
}

func (r *Router) openFabric(ctx context.Context) error {
	f, err := r.network.open(r.params.InterfacePrefixes)
	if err != nil {
		return fmt.Errorf("open the way to other hosts: %w", err)
	}
	watch, unwatch := context.WithCancel(ctx)
	events, err := f.Subscribe(watch)
	if err != nil {
		unwatch()
		f.Close()
		return errors.Join(err, ctx.Err())
	}
	r.fabric, r.events, r.unwatch, r.whole = f, events, unwatch, true
	return nil
}

func (r *Router) closeFabric() {
	if r.fabric == nil {
		return
	}
	r.unwatch()
	r.fabric.Close()
	r.fabric, r.events = nil, nil
}

// release ends the keeping of what a former run learned.
func (r *Router) release(complete bool) {
	if !r.retained || !r.applied {
		return
	}
	speaks := r.state.Speaker.AS != 0
	if speaks && complete || !speaks && time.Since(r.begun) > leastRetention {
		r.retained = false
		r.engine.Retain()
	}
}

// glance looks at the kernel where it may have changed: at the host's own links and
// routes, and whether ours are as they were. Where links come and go by the hundred,
// or another program undoes what is done here, that is done for a tenth of the time.
func (r *Router) glance(ctx context.Context) {
	if !r.look && !r.audit {
		return
	}
	if since := time.Since(r.looked); since < r.lookPause {
		r.lookAgain.Reset(r.lookPause - since)
		return
	}
	start := time.Now()
	if r.look {
		r.readLinks()
	}
	r.audit = false
	if !r.whole {
		same, err := r.fabric.Unchanged(ctx)
		r.whole = !same || err != nil // where an error lasts, taking all apart tells of it
	}
	r.looked = time.Now()
	r.lookPause = max(leastLook, 10*r.looked.Sub(start))
}

// readLinks reads the host's own links and routes. The kernel gives them with all
// workloads', so it is not done at each audit: notices tell where they change.
func (r *Router) readLinks() {
	links, err := r.network.links(r.params.InterfacePrefixes)
	if r.well(linkTrouble, "the host's own links could not be read; what was known of them is used", err) {
		r.look, r.links = false, links
		r.engine.SetLinks(links)
		if len(r.carriers) == 0 { // what is lost from now on counts
			r.lookAtCarriers(time.Now())
		}
	} else {
		r.again()
	}
}

// fencePatience is how long a tunnel that is new waits for the firewall to know from
// whom it may take packets.
const fencePatience = time.Second

// tellLoop hands the loop what the firewall and the plugin must know. A tunnel that
// is new waits until the firewall knows of it, and comes without where that takes
// too long: the loop must not be able to cut off other hosts.
func (r *Router) tellLoop(ctx context.Context) {
	n := News{MTU: r.state.MTU.Pods, Hosts: maps.Clone(r.state.Hosts), Routers: map[netip.Addr]string{}}
	for _, route := range r.links.Routes {
		if route.Gateway.IsGlobalUnicast() { // others are no endpoint's
			n.Routers[route.Gateway] = route.Device
		}
	}
	for _, t := range r.tunnels(time.Time{}) {
		if t.Kind == plan.IPIP {
			n.Tunnels.IPIP = true
		} else {
			n.Tunnels.VXLANPort = t.Port
		}
	}
	if n.Tunnels.IPIP || n.Tunnels.VXLANPort != 0 {
		n.Tunnels.Hosts = slices.SortedFunc(maps.Keys(r.state.Hosts), netip.Addr.Compare)
	}
	if r.toldOnce && n.equal(r.told) {
		return
	}
	opens := n.Tunnels.IPIP && !r.told.Tunnels.IPIP || n.Tunnels.VXLANPort != 0 && n.Tunnels.VXLANPort != r.told.Tunnels.VXLANPort
	r.told, r.toldOnce = n, true
	stands := r.handover.Tell(n)
	if !opens {
		return
	}
	late := time.NewTimer(fencePatience)
	defer late.Stop()
	select {
	case <-stands:
	case <-ctx.Done():
	case <-late.C:
		r.log.Warn("a tunnel comes before the firewall knows of it: that takes too long")
	}
}

func (n News) equal(o News) bool {
	return n.MTU == o.MTU && maps.Equal(n.Hosts, o.Hosts) && maps.Equal(n.Routers, o.Routers) && n.Tunnels.IPIP == o.Tunnels.IPIP && n.Tunnels.VXLANPort == o.Tunnels.VXLANPort &&
		slices.Equal(n.Tunnels.Hosts, o.Tunnels.Hosts)
}

// wish tells the identity what is known of this host. Addresses of tunnels are not given
// up while routes go by these.
func (r *Router) wish() {
	if r.identity == nil {
		return
	}
	w := identity.Wish{Revision: r.inbox.UpTo(), Links: r.links, Devices: plan.Devices{Tunnels: r.state.Tunnels}, Conflict: r.engine.Conflict}
	if !r.opening {
		w.Devices.Releases = r.state.Releases
	}
	r.identity.Want(w)
}

// speak has BGP do what is desired now.
func (r *Router) speak() {
	d := bgp.Desired{
		Speaker: r.state.Speaker, Neighbours: maps.Clone(r.state.Neighbours), Advertisements: r.advertisements(),
	}
	r.talker.say(d, r.params.RefreshInterval)
	r.memory.note(d)
}
