// SPDX-License-Identifier: Apache-2.0

// Package hostpath keeps the host's side of the workload interfaces as the agent wants it: it reads what the kernel holds,
// writes the difference and reads it back.
package hostpath

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/model"
)

// Endpoint is what one workload interface of this host shall have. Only an
// active one has routes and neighbours.
type Endpoint struct {
	Interface string
	Container string       // that has the interface; "" = whoever has it
	MAC       model.MAC    // of the workload's end; zero = found out by ARP and neighbour discovery
	Addrs     []netip.Addr // NAT addresses included
	Active    bool
}

func (e Endpoint) equal(o Endpoint) bool {
	return e.Interface == o.Interface && e.Container == o.Container && e.MAC == o.MAC && e.Active == o.Active && slices.Equal(e.Addrs, o.Addrs)
}

func (e Endpoint) hasIPv6() bool {
	return e.Active && slices.ContainsFunc(e.Addrs, netip.Addr.Is6)
}

// Config says what is ours on the host.
type Config struct {
	Protocol uint8        // of our routes; 0 = RouteProtocol
	Prefixes []string     // of workload interfaces' names; empty = "cali"
	Logger   *slog.Logger // nil = none
}

// Path keeps the host's side of the workload interfaces: sysctls, routes,
// permanent neighbours, HostGatewayLL. It owns the routes of its protocol and the permanent
// neighbours on links with its prefixes, and changes nothing else. It belongs to
// the network namespace that it was made in. Safe for concurrent use.
type Path struct {
	ns   rtnl.Netns
	port func() uint32 // of sock, to know our own changes among the events

	indexes indexes

	auditing sync.Mutex // comes before mu
	auditor  reader

	mu sync.Mutex
	reader
	told    *rtnl.Journal
	touched map[string]bool // interfaces that ApplySome was about while an Audit reads; nil = none does
	desired map[string]Endpoint
	claims  map[netip.Addr][]string // interfaces of the active endpoints with the address
	settled map[string]settled
	ready   bool    // Apply has been through: what differs now has drifted
	hostV6  bool    // IPv6 forwarding was seen to
	right   *glance // what the kernel showed when there was nothing to do; nil = there was, or is
	repairs rtnl.Repairs
}

// reader reads the kernel's state. Not for concurrent use.
type reader struct {
	cfg  Config
	sock *rtnl.Socket
	hash maphash.Hash
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
	// Endpoints has a Status for each desired endpoint, in their order; then, of
	// ApplySome, those of others that share an address with one of them.
	Endpoints []Status
	// Lost are addresses that routes led to which were deleted, stale ones of a
	// former run included: connections to them are over. Of the first Apply also those
	// of interfaces to which no route led with them: whoever has them came since the former
	// run, and connections of who had them before may be tracked still.
	Lost []netip.Addr
	// Strays are the links with the workload prefix and an alias that are up and that no
	// endpoint has, or that of another container; of ApplySome, those that it was about.
	Strays []Stray
	// Problems of the host as a whole.
	Problems []error
	// Writes is how many changes were made, Repairs how many of them undid what
	// someone else had done to state that was right before.
	Writes, Repairs int
}

// Stray is a link with the workload prefix that no endpoint of its container has.
type Stray struct {
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
	ns, err := rtnl.OpenNetns(rtnl.OwnNetns)
	if err != nil {
		return nil, err
	}
	h := &Path{ns: ns, settled: make(map[string]settled)}
	h.cfg, h.auditor.cfg = cfg, cfg
	h.auditor.hash.SetSeed(h.hash.Seed()) // one's glance is compared with the other's
	if err := ns.Enter(h.open); err != nil {
		ns.Close()
		return nil, err
	}
	port := h.sock.Port
	h.port = func() uint32 { return port }
	h.setDesired(nil)
	return h, nil
}

func (h *Path) open() error {
	var err error
	if h.sock, err = rtnl.Open(); err != nil {
		return err
	}
	if h.auditor.sock, err = rtnl.Open(); err == nil {
		if h.told, err = rtnl.OpenJournal(h.sock.Port); err == nil {
			return nil
		}
		h.auditor.sock.Close()
	}
	h.sock.Close()
	return err
}

// Close releases what Path holds, once an Audit that runs is through. What it
// programmed stays.
func (h *Path) Close() {
	h.auditing.Lock()
	defer h.auditing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.auditor.sock.Close()
	h.sock.Close()
	h.told.Close()
	h.ns.Close()
}

// owns says whether a link of that name is a workload's.
func (r *reader) owns(name string) bool {
	return slices.ContainsFunc(r.cfg.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// setDesired replaces the whole desired state. Of two endpoints of one interface
// the first stands.
func (h *Path) setDesired(endpoints []Endpoint) {
	h.desired = make(map[string]Endpoint, len(endpoints))
	h.claims = make(map[netip.Addr][]string, len(endpoints))
	for _, e := range endpoints {
		if _, twice := h.desired[e.Interface]; !twice {
			h.want(e)
		}
	}
}

// want puts one endpoint into the desired state, in place of the one before.
func (h *Path) want(e Endpoint) {
	h.forget(e.Interface)
	e.Addrs = slices.Clone(e.Addrs)
	h.desired[e.Interface] = e
	for _, a := range e.claimed() {
		names := append(h.claims[a], e.Interface)
		slices.Sort(names)
		h.claims[a] = names
	}
}

// claimants are the interfaces of the active endpoints with the address.
func (h *Path) claimants(a netip.Addr) []string {
	if !a.IsValid() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.claims[a])
}

// claimed are the addresses that shall lead to the endpoint, each once.
func (e Endpoint) claimed() []netip.Addr {
	if !e.Active {
		return nil
	}
	addrs := slices.SortedFunc(slices.Values(e.Addrs), netip.Addr.Compare)
	return slices.Compact(addrs)
}

func (h *Path) forget(name string) {
	for _, a := range h.desired[name].claimed() {
		others := slices.DeleteFunc(h.claims[a], func(n string) bool { return n == name })
		if len(others) == 0 {
			delete(h.claims, a)
		} else {
			h.claims[a] = others
		}
	}
	delete(h.desired, name)
}

// Apply makes the kernel hold exactly the desired state and reports what it
// holds then, read back. The error says that the kernel could not be read, or
// that the context ended; what single endpoints lack is in the report.
func (h *Path) Apply(ctx context.Context, desired []Endpoint) (Report, error) {
	h.auditing.Lock()
	defer h.auditing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.desired
	h.setDesired(desired)
	removed := make(map[string]bool)
	for name := range before {
		if _, stays := h.desired[name]; !stays {
			removed[name] = true
			delete(h.settled, name)
		}
	}
	// Before all is read: what changes later will be seen by one or the other.
	h.told.Hear(h.sock.Buf, h.matters)
	seen, unseen := h.glance(nil)
	report, err := h.converge(ctx, extent{h.convergeHostWhole, h.readWhole, removed})
	if err != nil {
		return Report{}, err
	}
	if report.Writes == 0 && unseen == nil {
		h.right = &seen
		h.told.ReadAll()
	}
	h.ready = true
	return h.inOrder(report, desired), nil
}

// ApplySome changes the desired state of a few endpoints and applies that alone:
// its cost doesn't grow with the others.
func (h *Path) ApplySome(ctx context.Context, changed, removed []Endpoint) (Report, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := make(map[string]bool)
	affected := make(map[string]bool)
	// moved are the addresses that endpoints had or shall have, of those that change.
	moved := make(map[string][]netip.Addr)
	// Who shares an address with the endpoint may win or lose it, and so on.
	var affect func(e Endpoint)
	affect = func(e Endpoint) {
		affected[e.Interface] = true
		for _, a := range e.claimed() {
			for _, name := range h.claims[a] {
				if !affected[name] {
					affect(h.desired[name])
				}
			}
		}
	}
	for _, e := range removed {
		affect(h.was(e))
		gone[e.Interface] = true
		h.forget(e.Interface)
		delete(h.settled, e.Interface)
	}
	for i, e := range changed {
		if slices.ContainsFunc(changed[:i], func(o Endpoint) bool { return o.Interface == e.Interface }) {
			continue
		}
		was := h.was(e)
		affect(was)
		h.want(e)
		affect(e)
		delete(gone, e.Interface)
		if !was.equal(e) {
			moved[e.Interface] = slices.Concat(was.Addrs, e.Addrs)
		}
	}
	if h.touched != nil {
		maps.Copy(h.touched, affected)
	}
	read := h.readWhole
	if len(affected) <= maxSome {
		names := make([]string, 0, len(affected))
		for name := range affected {
			names = append(names, name)
		}
		slices.Sort(names)
		if len(moved) < len(affected) { // some share addresses, or go: all of theirs is read
			clear(moved)
		}
		read = func() (*state, error) { return h.readSome(names, moved) }
	}
	report, err := h.converge(ctx, extent{h.convergeHost, read, gone})
	if err != nil {
		return Report{}, err
	}
	return h.inOrder(report, changed), nil
}

// was is the endpoint as it is desired so far.
func (h *Path) was(e Endpoint) Endpoint {
	if before, ok := h.desired[e.Interface]; ok {
		return before
	}
	return Endpoint{Interface: e.Interface}
}

// maxSome is from how many interfaces on a read of everything is cheaper.
const maxSome = 24

// inOrder puts the statuses into the order of the endpoints asked for, the rest
// after them by name, and reports endpoints that share an interface.
func (h *Path) inOrder(r Report, asked []Endpoint) Report {
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
