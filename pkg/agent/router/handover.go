// SPDX-License-Identifier: Apache-2.0

package router

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Handover connects the router and the rest of the agent. Each takes the latest value when ready, so that neither waits for the other.
type Handover struct {
	// News is from the router.
	News   *mailbox.Box[News]
	orders *mailbox.Box[orders]
}

// News is what the rest of the agent must know of other hosts.
type News struct {
	Tunnels policy.Tunnels
	MTU     int                   // of workloads, 0 = unknown
	Hosts   map[netip.Addr]string // the other hosts' names, by address
	Routers map[netip.Addr]string // the links to the host's own next hops, by address
	Blocks  []netip.Prefix        // of this host
	VXLAN   []netip.AddrPort      // where this host receives VXLAN
	// Stands is to be closed when the firewall has been applied with these tunnels. Tell creates it.
	Stands chan struct{}
}

func (n News) equal(o News) bool {
	return n.MTU == o.MTU && maps.Equal(n.Hosts, o.Hosts) && maps.Equal(n.Routers, o.Routers) && n.Tunnels.IPIP == o.Tunnels.IPIP &&
		n.Tunnels.VXLANPort == o.Tunnels.VXLANPort && slices.Equal(n.Tunnels.Hosts, o.Tunnels.Hosts) &&
		n.Tunnels.BGP.Port == o.Tunnels.BGP.Port && slices.Equal(n.Tunnels.BGP.Peers, o.Tunnels.BGP.Peers) && slices.Equal(n.Blocks, o.Blocks) && slices.Equal(n.VXLAN, o.VXLAN)
}

// orders is what the router receives.
type orders struct {
	settings *Settings // those in etcd included; nil = as before
	look     bool      // the host's own links or routes may have changed
	etcd     fold
}

// NewHandover returns an empty Handover. news wakes the reader of News.
func NewHandover(news mailbox.Signal) *Handover {
	return &Handover{News: mailbox.NewFor[News](news), orders: mailbox.New[orders]()}
}

// Tell passes news. The channel is closed when the firewall has been applied with these, or later, news.
func (h *Handover) Tell(n News) <-chan struct{} {
	h.News.Update(func(before News) News {
		if n.Stands = before.Stands; n.Stands == nil {
			n.Stands = make(chan struct{})
		}
		return n
	})
	return n.Stands
}

// wake makes the router take a turn.
func (h *Handover) wake() { h.orders.Update(func(o orders) orders { return o }) }

// Configure passes the router its settings, those in etcd included.
func (h *Handover) Configure(s Settings) {
	h.orders.Update(func(o orders) orders {
		o.settings = &s
		return o
	})
}

// Look makes the router read the host's own links and routes.
func (h *Handover) Look() {
	h.orders.Update(func(o orders) orders {
		o.look = true
		return o
	})
}

// fold is what etcd holds that the router has not taken in: only the latest entry of each key, so that it is never larger than etcd's
// content. The zero value is empty.
type fold struct {
	whole    bool // all keys are among latest
	latest   map[string]model.Entry
	revision int64
	heard    bool
}

// add adds a later update.
func (f *fold) add(u model.Update) {
	if u.Resync || f.latest == nil {
		f.latest = make(map[string]model.Entry, len(u.Entries))
	}
	f.whole = f.whole || u.Resync
	f.revision, f.heard = u.Revision, true
	for _, e := range u.Entries {
		if f.whole && !e.Exists() {
			delete(f.latest, e.Path)
		} else {
			f.latest[e.Path] = e
		}
	}
}

// update returns the whole as one update.
func (f *fold) update() model.Update {
	return model.Update{Revision: f.revision, Resync: f.whole, Entries: slices.Collect(maps.Values(f.latest))}
}

// etcd is what the router knows of etcd besides what the plan has taken in.
type etcd struct {
	synced, ready bool
	pending       fold  // not taken in yet
	revision      int64 // up to which everything was taken in
}

// update takes in a fold.
func (s *etcd) update(f fold) {
	if !f.heard {
		return
	}
	u := f.update()
	s.synced = s.synced || u.Resync
	ready, told := f.latest[model.ReadyKey{}.Path()]
	if told || u.Resync {
		value, ok := ready.Value.(model.Ready)
		s.ready = ok && bool(value)
	}
	s.pending.add(u)
}

// waits returns what must be known before anything follows from etcd; "" = nothing. So an emptied etcd cuts off no host.
func (s *etcd) waits() string { return health.WaitsFor("etcd", s.synced, s.ready) }
