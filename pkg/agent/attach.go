// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/calico-go/calico/pkg/agent/identity"
	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
)

// attach makes the router that works beside the loop.
func attach(cfg Config, client *store.Client, l *loop) *router {
	m := newRouteMetrics()
	r := newRouter(cfg, hostNetwork(cfg), l.problems, l.health, m, l.handover)
	l.metrics.attach(m, newPeerMetrics(r.network.speaker), newHostMetrics(l.problems), newWatchMetric(client))
	l.route.attached = true
	r.naming = l.report.Naming
	r.identity = identity.New(identity.Config{
		Node: cfg.Node, Methods: cfg.Methods, AS: cfg.AS, VarDir: cfg.VarDir, RunDir: cfg.RunDir, Lonely: cfg.lonely, Logger: cfg.Logger,
	}, client, identity.Tells{Report: l.report, Health: l.health, Problems: l.problems})
	l.serving.AddPage("GET /debug/state", debugState{l, r})
	return r
}

// hostNetwork is that of the host which the process runs on.
func hostNetwork(cfg Config) network {
	s, file := bgp.New(bgp.Config{Logger: cfg.Logger}), newRouterIDFile(cfg)
	return network{
		open: func(prefixes []string) (fabric, error) {
			return kernel.NewFabric(kernel.FabricConfig{Prefixes: prefixes, Logger: cfg.Logger})
		},
		links:    func(prefixes []string) (plan.Links, error) { return kernel.HostNetwork(prefixes...) },
		routes:   kernel.FabricRoutes,
		carriers: kernel.CarrierLosses,
		speaker:  s,
		lessons:  s.Subscribe(),

		readRouterID:  file.read,
		writeRouterID: file.write,
	}
}
