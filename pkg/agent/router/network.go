// SPDX-License-Identifier: Apache-2.0

package router

import (
	"log/slog"
	"net/netip"

	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/plan"
)

// NetworkConfig is what a host's part in the network is made of.
type NetworkConfig struct {
	Node   string                     // the host's name in the data model
	VarDir string                     // where IDName and SpokenName are kept
	Place  string                     // of identity.Place, "" = it isn't known
	Etcd   func() map[netip.Addr]bool // of plan.Engine.SetEtcd, asked at each turn
	Logger *slog.Logger
}

// HostNetwork is that of the host which the process runs on. Its BGP speaks when the router has it.
func HostNetwork(cfg NetworkConfig) Network {
	s, file := bgp.New(bgp.Config{Logger: cfg.Logger}), newIDFile(cfg.VarDir, cfg.Node)
	links := new(hostnet.Network)
	spoken := newSpokenFile(cfg.VarDir, cfg.Node, cfg.Place)
	return Network{
		open: func(prefixes []string) (wayOut, error) {
			return fabric.New(fabric.Config{Prefixes: prefixes, Logger: cfg.Logger})
		},
		links:    func(prefixes []string) (plan.Links, error) { return links.Read(prefixes...) },
		routes:   fabric.Routes,
		carriers: hostnet.CarrierLosses,
		speaker:  s,
		lessons:  s.Subscribe(),
		etcd:     cfg.Etcd,

		readRouterID:  file.read,
		writeRouterID: file.write,
		hasSpoken:     spoken.isThere,
		readSpoken:    spoken.read,
		writeSpoken:   spoken.write,
	}
}
