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

// learnedRoutes is where the router hears what BGP learned: bgp.Subscription.
type learnedRoutes interface {
	Ready() <-chan struct{}
	Take() []plan.Learned
	LookAgain([]netip.Prefix)
}

// network is the host's part in the network as the router sees it; a test puts
// another in its place.
type network struct {
	open   func(prefixes []string) (programming, error)
	links  func(prefixes []string) (plan.Links, error)
	routes func() ([]plan.Route, error) // of a former run
	// carriers is how often links have lost their carrier.
	carriers func(names []string) (map[string]uint32, error)
	etcd     func() map[netip.Addr]bool // etcd's addresses, as plan.Planner.SetEtcd has them
	speaker  speaker
	learned  learnedRoutes
	state    stateStore
}

// NetworkConfig is what a host's part in the network is made of.
type NetworkConfig struct {
	Node   string                     // the host's name in the data model
	VarDir string                     // where BGPStateName is kept
	Boot   string                     // of identity.Place, "" = it isn't known
	Etcd   func() map[netip.Addr]bool // of plan.Planner.SetEtcd, asked at each turn
	Logger *slog.Logger
}

// HostNetwork is that of the host which the process runs on. Its BGP speaks when the router has it.
func HostNetwork(cfg NetworkConfig) network {
	s, links := bgp.New(bgp.Config{Logger: cfg.Logger}), new(hostnet.Network)
	return network{
		open: func(prefixes []string) (programming, error) {
			return fabric.New(fabric.Config{Prefixes: prefixes, Logger: cfg.Logger})
		},
		links:    func(prefixes []string) (plan.Links, error) { return links.Read(prefixes...) },
		routes:   fabric.Routes,
		carriers: hostnet.CarrierLosses,
		etcd:     cfg.Etcd,
		speaker:  s,
		learned:  s.Subscribe(),
		state:    newStateFile(cfg.VarDir, cfg.Node, cfg.Boot),
	}
}
