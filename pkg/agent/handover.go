// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"sync"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/policy"
)

// handover is what loop and router leave each other. Each takes the latest when it
// comes to it, so that neither waits for the other.
type handover struct {
	forLoop, forRouter chan struct{}

	mu     sync.Mutex
	news   *routeNews
	orders routeOrders
}

// routeNews is what the loop must know of the way to other hosts.
type routeNews struct {
	tunnels policy.Tunnels
	mtu     int                   // of workloads, 0 = not known
	hosts   map[netip.Addr]string // the other hosts' names, by address
	routers map[netip.Addr]string // the links to the host's own next hops, by address
	// stands is closed by the loop when the firewall stands with these tunnels.
	stands chan struct{}
}

// routeOrders is what the router must know of the loop.
type routeOrders struct {
	params *params.Params // those that stand in etcd included; nil = as before
	look   bool           // the host's own links or routes may have changed
}

func newHandover() *handover {
	return &handover{forLoop: make(chan struct{}, 1), forRouter: make(chan struct{}, 1)}
}

// tell leaves the loop news. What it returns is closed when the firewall stands with
// these, or later ones.
func (x *handover) tell(n routeNews) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.news != nil {
		n.stands = x.news.stands
	} else {
		n.stands = make(chan struct{})
	}
	x.news = &n
	nudge(x.forLoop)
	return n.stands
}

// takeNews gives the latest, nil where there is none.
func (x *handover) takeNews() *routeNews {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.news
	x.news = nil
	return n
}

// configure leaves the router the parameters.
func (x *handover) configure(p params.Params) {
	x.mu.Lock()
	x.orders.params = &p
	x.mu.Unlock()
	nudge(x.forRouter)
}

// look has the router read the host's own links and routes.
func (x *handover) look() {
	x.mu.Lock()
	x.orders.look = true
	x.mu.Unlock()
	nudge(x.forRouter)
}

func (x *handover) takeOrders() routeOrders {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.orders
	x.orders = routeOrders{}
	return o
}

// nudge wakes who waits for the channel, once; it never blocks.
func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
