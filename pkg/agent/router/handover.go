// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/netip"
	"sync"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/policy"
)

// Handover is what loop and router leave each other. Each takes the latest when it
// comes to it, so that neither waits for the other.
type Handover struct {
	// ForLoop receives when there is news.
	ForLoop   mailbox.Signal
	forRouter mailbox.Signal

	mu     sync.Mutex
	news   *News
	orders orders
}

// News is what the loop must know of the way to other hosts.
type News struct {
	Tunnels policy.Tunnels
	MTU     int                   // of workloads, 0 = not known
	Hosts   map[netip.Addr]string // the other hosts' names, by address
	Routers map[netip.Addr]string // the links to the host's own next hops, by address
	// Stands is closed by the loop when the firewall stands with these tunnels. Tell makes it.
	Stands chan struct{}
}

// orders is what the router must know of the loop.
type orders struct {
	params *params.Params // those that stand in etcd included; nil = as before
	look   bool           // the host's own links or routes may have changed
}

// NewHandover has nothing in it.
func NewHandover() *Handover {
	return &Handover{ForLoop: mailbox.NewSignal(), forRouter: mailbox.NewSignal()}
}

// Tell leaves the loop news. What it returns is closed when the firewall stands with
// these, or later ones.
func (x *Handover) Tell(n News) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.news != nil {
		n.Stands = x.news.Stands
	} else {
		n.Stands = make(chan struct{})
	}
	x.news = &n
	x.ForLoop.Send()
	return n.Stands
}

// TakeNews gives the latest, nil where there is none.
func (x *Handover) TakeNews() *News {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.news
	x.news = nil
	return n
}

// Configure leaves the router the parameters, those that stand in etcd included.
func (x *Handover) Configure(p params.Params) {
	x.mu.Lock()
	x.orders.params = &p
	x.mu.Unlock()
	x.forRouter.Send()
}

// Look has the router read the host's own links and routes.
func (x *Handover) Look() {
	x.mu.Lock()
	x.orders.look = true
	x.mu.Unlock()
	x.forRouter.Send()
}

func (x *Handover) takeOrders() orders {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.orders
	x.orders = orders{}
	return o
}
