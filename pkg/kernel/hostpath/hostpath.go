// SPDX-License-Identifier: Apache-2.0

// Package hostpath keeps the host's side of the workload interfaces as the agent wants it: it reads what the kernel holds,
// writes the difference and reads it back.
package hostpath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
	"github.com/containernetworking/plugins/pkg/ns"
)

// Endpoint is what one workload interface of this host is to have. Only an active one has routes and neighbours.
type Endpoint struct {
	Interface string
	Container string       // that has the interface; "" = whichever has it
	MAC       model.MAC    // of the workload's end; zero = found out by ARP and neighbour discovery
	Addrs     []netip.Addr // NAT addresses included
	Active    bool
	// Loopback: something that workloads ask is translated to the host's loopback (route_localnet).
	Loopback bool
}

func (e Endpoint) equal(o Endpoint) bool {
	return e.Interface == o.Interface && e.Container == o.Container && e.MAC == o.MAC && e.Active == o.Active && e.Loopback == o.Loopback && slices.Equal(e.Addrs, o.Addrs)
}

func (e Endpoint) hasIPv6() bool {
	return e.Active && slices.ContainsFunc(e.Addrs, netip.Addr.Is6)
}

// Config says what is ours on the host.
type Config struct {
	Protocol uint8        // of our routes; 0 = link.RouteProtocol
	Prefixes []string     // of workload interfaces' names; empty = "cali"
	Logger   *slog.Logger // nil = none
}

// owns says whether a link of that name is a workload's.
func (c Config) owns(name string) bool {
	return model.IsWorkloadInterface(name, c.Prefixes)
}

// Path keeps the host's side of the workload interfaces: sysctls, routes, permanent neighbours, the gateway of IPv6. It
// owns the routes of its protocol and the permanent neighbours on links with its prefixes, and changes nothing else. It
// belongs to the network namespace that it was made in. Safe for concurrent use.
type Path struct {
	cfg     Config
	ns      ns.NetNS
	indexes indexes

	mu      sync.Mutex
	conn    *rtnl.Conn
	desired desired
	settled map[string]settled
	ready   bool // Apply has been through: what differs now has drifted
	hostV6  bool // IPv6 forwarding was switched on for a workload
	repairs rtnl.Repairs
}

// settled is an endpoint that was read back as programmed on a link.
type settled struct {
	endpoint Endpoint
	index    int
}

// Status is the truth about one interface, as read back from the kernel.
type Status struct {
	Interface string
	Err       error // why it isn't as desired; nil: it is
}

// Report says what an Apply found and did.
type Report struct {
	// Endpoints has a Status for each desired endpoint, in their order; then, of ApplySome, those of others that share an
	// address with one of them.
	Endpoints []Status
	// Lost are addresses that routes led to which were deleted, stale ones of a former run included: connections to them
	// are over. Of the first Apply also those of interfaces to which no route led with them: whichever workload has them
	// came since the former run, and connections of its predecessor may be tracked still.
	Lost []netip.Addr
	// Stale are the links with the workload prefix and an alias that are up and that no endpoint has, or that of another
	// container; of ApplySome, those that it was about.
	Stale []StaleLink
	// Problems of the host as a whole.
	Problems []error
	// Writes is how many changes were made, Repairs how many of them undid what another program had done to state that
	// was right before.
	Writes, Repairs int
}

// StaleLink is a link with the workload prefix that no endpoint of its container has.
type StaleLink struct {
	Interface, Alias string
}

// New opens the current network namespace.
func New(cfg Config) (*Path, error) {
	if cfg.Protocol == 0 {
		cfg.Protocol = link.RouteProtocol
	}
	if len(cfg.Prefixes) == 0 {
		cfg.Prefixes = []string{"cali"}
	}
	if slices.Contains(cfg.Prefixes, "") {
		return nil, errors.New("an empty interface prefix would make every interface a workload's")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	here, err := ns.GetCurrentNS()
	if err != nil {
		return nil, err
	}
	conn, err := rtnl.DialAt(here)
	if err != nil {
		_ = here.Close()
		return nil, err
	}
	return &Path{cfg: cfg, ns: here, conn: conn, desired: newDesired(nil), settled: make(map[string]settled)}, nil
}

// Close releases what Path holds. What it programmed stays.
func (h *Path) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn.Close()
	_ = h.ns.Close()
}

// inNamespace runs fn on a thread in the host's namespace, whose sysctls are files there.
func (h *Path) inNamespace(fn func() error) error {
	return h.ns.Do(func(ns.NetNS) error { return fn() })
}

// Apply makes the kernel hold exactly the desired state and reports what it holds then, read back. The error says that
// the kernel could not be read, or that the context ended; what single endpoints lack is in the report.
func (h *Path) Apply(ctx context.Context, endpoints []Endpoint) (Report, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.desired
	h.desired = newDesired(endpoints)
	removed := make(map[string]bool)
	for name := range before.endpoints {
		if _, stays := h.desired.endpoints[name]; !stays {
			removed[name] = true
			delete(h.settled, name)
		}
	}
	report, err := h.converge(ctx, h.readWhole, removed)
	if err != nil {
		return Report{}, err
	}
	if err := h.withdrawGateway(&report); err != nil {
		report.Problems = append(report.Problems, err)
	}
	h.ready = true
	return report.inOrder(endpoints), nil
}

// maxSome is from how many interfaces on a read of everything is cheaper.
const maxSome = 24

// ApplySome changes the desired state of a few endpoints and applies that alone: its cost doesn't grow with the others.
func (h *Path) ApplySome(ctx context.Context, changed, removed []Endpoint) (Report, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := affected{h.desired, make(map[string]map[netip.Addr]bool)}
	gone := make(map[string]bool)
	for _, e := range removed {
		a.add(e.Interface)
		gone[e.Interface] = true
		h.desired.remove(e.Interface)
		delete(h.settled, e.Interface)
	}
	for i, e := range changed {
		if slices.ContainsFunc(changed[:i], func(o Endpoint) bool { return o.Interface == e.Interface }) {
			continue
		}
		a.add(e.Interface)
		h.desired.set(e)
		a.add(e.Interface)
		delete(gone, e.Interface)
	}
	read := h.readWhole
	if len(a.addrs) <= maxSome {
		read = func() (*state, error) { return h.readSome(a.addrs) }
	}
	report, err := h.converge(ctx, read, gone)
	if err != nil {
		return Report{}, err
	}
	return report.inOrder(changed), nil
}

// inOrder puts the statuses into the order of the endpoints asked for, the rest after them by name, and reports endpoints
// that share an interface.
func (r Report) inOrder(asked []Endpoint) Report {
	byName := make(map[string]Status, len(r.Endpoints))
	for _, s := range r.Endpoints {
		byName[s.Interface] = s
	}
	ordered := make([]Status, 0, len(r.Endpoints))
	seen := make(map[string]bool, len(asked))
	for _, e := range asked {
		s := byName[e.Interface]
		if seen[e.Interface] {
			s = Status{e.Interface, fmt.Errorf("another endpoint has the interface %s too, and comes first", e.Interface)}
		}
		seen[e.Interface] = true
		ordered = append(ordered, s)
	}
	for _, s := range r.Endpoints { // sorted by name
		if !seen[s.Interface] {
			ordered = append(ordered, s)
		}
	}
	r.Endpoints = ordered
	return r
}
