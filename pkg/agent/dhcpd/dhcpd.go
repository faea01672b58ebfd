// SPDX-License-Identifier: Apache-2.0

// Package dhcpd serves the virtual machines of this host: on each tap whose endpoint names subnets it answers DHCPv4, DHCPv6 and router
// solicitations while the endpoint is programmed.
package dhcpd

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/dhcp"
	"github.com/calico-go/calico/pkg/model"
)

// problemKind is the kind of problem of endpoints that are connected but not served.
const problemKind = "dhcp"

// Socket receives requests on one tap: dhcpsock.Socket.
type Socket interface {
	Receive(buf []byte, until time.Time) ([]byte, error) // nil once until has passed
	Send(frame []byte) error
	MTU() int // 0 = unknown
	Close() error
}

// Config configures Servers.
type Config struct {
	Host     string    // this host's name in etcd
	MAC      model.MAC // of every tap
	Open     func(iface string) (Socket, error)
	Logger   *slog.Logger
	Problems *problems.Ledger
	Metrics  Metrics
}

// Servers are the DHCP servers of this host, one at each tap.
type Servers struct {
	cfg     Config
	wake    mailbox.Signal
	servers map[string]*server // by the endpoint's path; only Run uses it

	mu         sync.Mutex
	endpoints  map[string]endpoint // those of this host that name subnets, by path
	subnets    map[string]subnet   // by id
	programmed map[string]int64    // as of which revision, by path
	dirty      map[string]struct{} // paths to look at
}

type endpoint struct {
	spec     model.WorkloadEndpoint
	revision int64
}

type subnet struct {
	model.Subnet
	err error
}

// New returns Servers that know no endpoint.
func New(cfg Config) *Servers {
	return &Servers{
		cfg: cfg, wake: mailbox.NewSignal(), servers: map[string]*server{}, endpoints: map[string]endpoint{}, subnets: map[string]subnet{},
		programmed: map[string]int64{}, dirty: map[string]struct{}{},
	}
}

// Update takes in an update of what etcd holds. It never waits.
func (k *Servers) Update(u model.Update) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var before map[string]endpoint // where this is a snapshot
	if u.Resync {
		before = k.endpoints
		k.touchAll()
		k.endpoints = map[string]endpoint{}
		clear(k.subnets)
	}
	for _, e := range u.Entries {
		switch key := e.Key.(type) {
		case model.WorkloadEndpointKey:
			if key.Host == k.cfg.Host {
				k.hearEndpoint(e)
			}
		case model.DHCPSubnetKey:
			k.touchAll()
			delete(k.subnets, key.ID)
			if s, ok := e.Value.(model.Subnet); ok || e.Err != nil {
				k.subnets[key.ID] = subnet{s, e.Err}
			}
		}
	}
	for path := range before { // what a snapshot lacks
		if _, ok := k.endpoints[path]; !ok {
			delete(k.programmed, path)
		}
	}
	if len(k.dirty) > 0 {
		k.wake.Send()
	}
}

// hearEndpoint takes in an endpoint of this host. An unreadable one isn't connected, which is reported elsewhere.
func (k *Servers) hearEndpoint(e model.Entry) {
	_, had := k.endpoints[e.Path]
	spec, ok := e.Value.(model.WorkloadEndpoint)
	served := ok && e.Err == nil && dhcp.IsServed(spec)
	switch {
	case served:
		k.endpoints[e.Path] = endpoint{spec, e.Revision}
	case had:
		delete(k.endpoints, e.Path)
		delete(k.programmed, e.Path)
	default:
		return
	}
	k.dirty[e.Path] = struct{}{}
}

func (k *Servers) touchAll() {
	for path := range k.endpoints {
		k.dirty[path] = struct{}{}
	}
}

// Programmed records that an endpoint is connected as of a revision, 0 = it isn't. It never blocks, and must follow the endpoint's Update.
func (k *Servers) Programmed(path string, revision int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.endpoints[path]; !ok || k.programmed[path] == revision {
		return
	}
	k.programmed[path] = revision
	k.dirty[path] = struct{}{}
	k.wake.Send()
}

// Run serves until the context ends; the error is always nil.
func (k *Servers) Run(ctx context.Context) error {
	defer func() {
		for path := range k.servers {
			k.stop(path)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
			k.reconcile(ctx)
		}
	}
}

// reconcile acts on what changed.
func (k *Servers) reconcile(ctx context.Context) {
	k.mu.Lock()
	dirty := k.dirty
	k.dirty = map[string]struct{}{}
	subnets := maps.Clone(k.subnets)
	todo := make(map[string]want, len(dirty))
	for path := range dirty {
		ep, ok := k.endpoints[path]
		todo[path] = want{ep, ok, k.programmed[path]}
	}
	k.mu.Unlock()
	for path, w := range todo {
		k.bring(ctx, path, w, subnets)
	}
	k.cfg.Metrics.ports.Set(float64(len(k.servers)))
}

// want is what is known of one endpoint.
type want struct {
	endpoint
	there      bool
	programmed int64
}

// bring brings one tap's server in line. The former service goes on until it is known whether the endpoint is programmed in its present
// form.
func (k *Servers) bring(ctx context.Context, path string, w want, subnets map[string]subnet) {
	if !w.there {
		k.report(path, nil)
		k.stop(path)
		return
	}
	port, err := dhcp.NewPort(w.spec, k.cfg.MAC, func(id string) (model.Subnet, error) {
		s, ok := subnets[id]
		if !ok {
			return model.Subnet{}, errors.New("there is none: make it with calicoctl apply, as a DHCPSubnet of this name")
		}
		return s.Subnet, s.err
	})
	k.report(path, err)
	s := k.servers[path]
	switch {
	case len(port.Leases) == 0, w.spec.State != model.StateActive, w.programmed == 0:
		k.stop(path)
	case w.programmed != w.revision:
	case s != nil && s.iface == w.spec.Name:
		s.update(port)
	default:
		k.stop(path)
		k.servers[path] = start(ctx, k.cfg, w.spec.Name, port)
	}
}

func (k *Servers) stop(path string) {
	if s := k.servers[path]; s != nil {
		s.stop()
		delete(k.servers, path)
	}
}

func (k *Servers) report(path string, err error) {
	switch before, after := k.cfg.Problems.Note(problemKind, path, err); {
	case after == before:
	case after == "":
		k.cfg.Logger.Info("endpoint is served by DHCP again", "key", path)
	default:
		k.cfg.Logger.Warn("endpoint is not served by DHCP", "key", path, "reason", after)
	}
}
