// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/agent/dhcpd"
	"github.com/calico-go/calico/pkg/agent/identity"
	"github.com/calico-go/calico/pkg/agent/leftovers"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/dhcpsock"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/store"
)

// attach makes the router that works beside the loop, and what works beside that. etcd are etcdguard.Guard's addresses.
func attach(cfg Config, client *store.Client, l *loop, etcd func() map[netip.Addr]bool) (*router.Router, *identity.Keeper, *leftovers.Keeper) {
	m := router.NewMetrics()
	n := router.HostNetwork(router.NetworkConfig{Node: cfg.Node, VarDir: cfg.VarDir, Boot: cfg.place, Etcd: etcd, Logger: l.log})
	l.metrics.attach(m, router.NewPeerMetrics(n), newHostMetrics(l.problems), newWatchMetric(client))
	l.router.attached = true
	id := identity.New(identity.Config{
		Node: cfg.Node, Methods: cfg.Methods, AS: cfg.AS, Naming: l.report.Naming, Health: l.health, Problems: l.problems, Logger: l.log,
	}, client)
	left := leftovers.New(l.log, client, cfg.Node)
	r := router.New(router.Config{
		Node: cfg.Node, Settings: routerSettings(params.Resolve().Params), Handover: l.router.handover, Identity: id, Naming: l.report.Naming, Leftovers: left,
		Problems: l.problems, Health: l.health, Metrics: m, Logger: l.log,
	}, n)
	l.serving.AddPage("GET /debug/state", debugPage{l, r})
	return r, id, left
}

// newDHCP makes what serves virtual machines, and has the loop tell it of endpoints.
func newDHCP(cfg Config, l *loop) *dhcpd.Keeper {
	k := dhcpd.New(dhcpd.Config{
		Host: cfg.Node, MAC: link.TapMAC(), Logger: l.log, Problems: l.problems, Metrics: l.metrics.dhcp,
		Open: func(iface string) (dhcpd.Socket, error) {
			s, err := dhcpsock.Open(iface)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	})
	l.system.programmed = k.Programmed
	return k
}
