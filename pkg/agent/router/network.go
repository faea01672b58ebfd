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
	kernel  hostKernel
	etcd    func() map[netip.Addr]bool // etcd's addresses, as plan.Planner.SetEtcd has them
	speaker speaker
	learned learnedRoutes
	state   stateStore
}

// hostKernel is what the router opens and reads of the host.
type hostKernel interface {
	// Open opens what programs routes and tunnels. prefixes are of workload interfaces' names.
	Open(prefixes []string) (programming, error)
	Links(prefixes []string) (plan.Links, error)
	// FormerRoutes are those of a former run.
	FormerRoutes() ([]plan.Route, error)
	// CarrierLosses is how often links have lost their carrier.
	CarrierLosses(names []string) (map[string]uint32, error)
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
	s := bgp.New(bgp.Config{Logger: cfg.Logger})
	return network{
		kernel: &ownKernel{log: cfg.Logger}, etcd: cfg.Etcd, speaker: s, learned: s.Subscribe(), state: newStateFile(cfg.VarDir, cfg.Node, cfg.Boot),
	}
}

type ownKernel struct {
	log   *slog.Logger
	links hostnet.Network
}

func (k *ownKernel) Open(prefixes []string) (programming, error) {
	return fabric.New(fabric.Config{Prefixes: prefixes, Logger: k.log})
}

func (k *ownKernel) Links(prefixes []string) (plan.Links, error) { return k.links.Read(prefixes...) }

func (*ownKernel) FormerRoutes() ([]plan.Route, error) { return fabric.Routes() }

func (*ownKernel) CarrierLosses(names []string) (map[string]uint32, error) {
	return hostnet.CarrierLosses(names)
}
