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

// learnedRoutes is where the router receives what BGP learned: bgp.Subscription.
type learnedRoutes interface {
	Ready() <-chan struct{}
	Take() []plan.Learned
	LookAgain([]netip.Prefix)
}

// network is the router's view of the host's network; tests replace it.
type network struct {
	kernel  hostKernel
	etcd    func() map[netip.Addr]bool // etcd's addresses, for plan.Planner.SetEtcd
	speaker speaker
	learned learnedRoutes
	state   stateStore
}

// hostKernel is what the router opens and reads on the host.
type hostKernel interface {
	// Open opens the routes and tunnels. prefixes are those of workload interfaces' names.
	Open(prefixes []string) (programming, error)
	Links(prefixes []string) (plan.Links, error)
	// FormerRoutes returns those of a former run.
	FormerRoutes() ([]plan.Route, error)
	// CarrierLosses returns how often links have lost their carrier.
	CarrierLosses(names []string) (map[string]uint32, error)
}

// NetworkConfig configures a HostNetwork.
type NetworkConfig struct {
	Node   string                     // the host's name in the data model
	VarDir string                     // where BGPStateName is kept
	Boot   string                     // of status.Place, "" = unknown
	Etcd   func() map[netip.Addr]bool // for plan.Planner.SetEtcd, called in each turn
	Logger *slog.Logger
}

// HostNetwork returns the network of the host that the process runs on. Its BGP speaker is silent until the router starts it.
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
