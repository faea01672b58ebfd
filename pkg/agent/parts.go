// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/agent/dhcpd"
	"github.com/calico-go/calico/pkg/agent/etcdguard"
	"github.com/calico-go/calico/pkg/agent/identity"
	"github.com/calico-go/calico/pkg/agent/leftovers"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/reentry"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/dhcpsock"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// parts are what the loop uses and what runs beside it.
type parts struct {
	metrics  *metrics
	wake     mailbox.Signal // wakes the loop
	report   *status.Reporter
	source   source
	handover *router.Handover // to and from the router, if there is one
	routed   bool             // there is a router
	dhcp     *dhcpd.Servers
	// warnPod records an event of a pod; nil without an API.
	warnPod func(key model.WorkloadEndpointKey, reason, message string)
}

// source is where the agent's updates come from.
type source interface {
	// Expect announces that a caller waits for what exists as of a revision.
	Expect(revision int64)
	// Held says why no pod is admitted; "" = pods are.
	Held() string
	// Needed returns the addresses that updates depend on: no workload may have them.
	Needed() []netip.Addr
}

// etcdSource is etcd.
type etcdSource struct {
	client  *store.Client
	guard   *etcdguard.Guard
	reentry *reentry.Pods
}

func (s etcdSource) Expect(revision int64) { s.client.Expect(revision) }
func (s etcdSource) Held() string          { return s.reentry.Held() }
func (s etcdSource) Needed() []netip.Addr  { return s.guard.Needed() }

// plainSource needs nothing of the host.
type plainSource struct{}

func (plainSource) Expect(int64)         {}
func (plainSource) Held() string         { return "" }
func (plainSource) Needed() []netip.Addr { return nil }

// newRouter returns the router, the host's identity, and the blocks that the host no longer needs.
func newRouter(cfg Config, env run.Env, client *store.Client, p parts, guard *etcdguard.Guard) (*router.Router, *identity.Host, *leftovers.Blocks) {
	m := router.NewMetrics()
	n := router.HostNetwork(router.NetworkConfig{Node: cfg.Node, VarDir: cfg.VarDir, Boot: cfg.place, Etcd: guard.Addrs, Logger: env.Logger})
	p.metrics.attach(m, router.NewPeerMetrics(n), newHostMetrics(env.Problems), newWatchMetric(client))
	id := identity.New(identity.Config{
		Node: cfg.Node, Methods: cfg.Methods, AS: cfg.AS, Naming: p.report.Naming, Health: env.Health, Problems: env.Problems, Logger: env.Logger,
	}, client)
	left := leftovers.New(env.Logger, client, cfg.Node)
	return router.New(router.Config{
		Node: cfg.Node, Settings: routerSettings(params.Resolve().Params), Handover: p.handover, Identity: id, Naming: p.report.Naming, Leftovers: left, Status: p.report,
		Problems: env.Problems, Health: env.Health, Metrics: m, Logger: env.Logger,
	}, n), id, left
}

// newDHCP returns the DHCP servers for virtual machines.
func newDHCP(cfg Config, env run.Env, m *metrics) *dhcpd.Servers {
	return dhcpd.New(dhcpd.Config{
		Host: cfg.Node, MAC: link.TapMAC(), Logger: env.Logger, Problems: env.Problems, Metrics: m.dhcp,
		Open: func(iface string) (dhcpd.Socket, error) {
			s, err := dhcpsock.Open(iface)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	})
}

// newReentry returns what re-enters the host's pods in an etcd that lacks them.
func newReentry(cfg Config, env run.Env, client *store.Client, report *status.Reporter, m *metrics) *reentry.Pods {
	return reentry.New(reentry.Config{
		Node: cfg.Node, RunDir: cfg.RunDir, VarDir: cfg.VarDir, Etcd: client, Links: func() ([]link.Link, error) { return link.List("") },
		LeadsTo: link.Link.LeadsTo, Naming: report.Naming, Health: env.Health, Problems: env.Problems, Logger: env.Logger, Entered: m.reentered,
	})
}
