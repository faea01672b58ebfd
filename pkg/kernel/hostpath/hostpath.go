// SPDX-License-Identifier: Apache-2.0

// Package hostpath keeps the host's side of the workload interfaces as the agent wants it: it reads what the kernel holds, writes the
// differences and reads them back.
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

// Endpoint describes one workload interface of this host. Only an active one has routes and neighbours.
type Endpoint struct {
	Interface string
	Container string       // that has the interface; "" = any
	MAC       model.MAC    // of the workload's end; zero = resolved by ARP and neighbour discovery
	Addrs     []netip.Addr // NAT addresses included
	Active    bool
	// Loopback: some of the workload's requests are translated to the host's loopback (route_localnet).
	Loopback bool
}

func (e Endpoint) equal(o Endpoint) bool {
	return e.Interface == o.Interface && e.Container == o.Container && e.MAC == o.MAC && e.Active == o.Active && e.Loopback == o.Loopback && slices.Equal(e.Addrs, o.Addrs)
}

func (e Endpoint) hasIPv6() bool {
	return e.Active && slices.ContainsFunc(e.Addrs, netip.Addr.Is6)
}

// Config identifies what is ours on the host.
type Config struct {
	Protocol uint8        // of our routes; 0 = link.RouteProtocol
	Prefixes []string     // of workload interfaces' names; empty = "cali"
	Logger   *slog.Logger // nil = none
}

// owns reports whether a link with that name is a workload's.
func (c Config) owns(name string) bool {
	return model.IsWorkloadInterface(name, c.Prefixes)
}

// Path keeps the host's side of the workload interfaces: sysctls, routes, permanent neighbours, the IPv6 gateway. It owns the routes of its
// protocol and the permanent neighbours on links with its prefixes, and changes nothing else. It belongs to the network namespace that it
// was created in. It is safe for concurrent use.
type Path struct {
	cfg     Config
	ns      ns.NetNS
	indexes indexes

	mu      sync.Mutex
	conn    *rtnl.Conn
	desired desired
	settled map[string]settled
	ready   bool // Apply has completed: what differs now has drifted
	hostV6  bool // IPv6 forwarding was enabled for a workload
	repairs rtnl.Repairs
}

// settled is an endpoint that was read back as programmed on a link.
type settled struct {
	endpoint Endpoint
	index    int
}

// Status is the state of one interface, as read back from the kernel.
type Status struct {
	Interface string
	Err       error // why it isn't as desired; nil if it is
}

// Report is the result of an Apply.
type Report struct {
	// Endpoints has a Status for each desired endpoint, in their order; after ApplySome also, at the end, those of others that share an
	// address with one of them.
	Endpoints []Status
	// Lost are addresses whose routes were deleted, including a former run's stale ones: connections with them are over. After the first
	// Apply they include addresses that no route by their interface led to before: their workloads came after the former run, and
	// connections of the addresses' former owners may still be tracked.
	Lost []netip.Addr
	// Stale are the links with a workload prefix and an alias that are up but have no endpoint, or one of another container; after
	// ApplySome, only those that it concerned.
	Stale []StaleLink
	// Problems concern the host as a whole.
	Problems []error
	// Writes is the number of changes made, Repairs how many of them undid another program's changes.
	Writes, Repairs int
}

// StaleLink is a link with a workload prefix but without an endpoint of its container.
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

// inNamespace runs fn on a thread in the host's namespace, where its sysctls are files.
func (h *Path) inNamespace(fn func() error) error {
	return h.ns.Do(func(ns.NetNS) error { return fn() })
}

// Apply makes the kernel hold exactly the desired state, reads it back and reports it. The error says that the kernel could not be read, or
// that the context ended; what single endpoints lack is in the report.
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

// maxSome is the number of interfaces above which reading everything is cheaper.
const maxSome = 24

// ApplySome changes the desired state of a few endpoints and applies only that: its cost doesn't grow with the others.
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

// inOrder sorts the statuses in the order of the requested endpoints, then the rest by name, and reports endpoints that share an interface.
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
