// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"path/filepath"
	"strconv"

	"github.com/calico-go/calico/pkg/agent/connections"
	"github.com/calico-go/calico/pkg/agent/firewall"
	"github.com/calico-go/calico/pkg/agent/forward"
	"github.com/calico-go/calico/pkg/agent/probe"
	"github.com/calico-go/calico/pkg/agent/workload"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/daemon/statefile"
	"github.com/calico-go/calico/pkg/kernel/conntrack"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
)

// Names of files in the run and the var directory.
const (
	socketName   = "agent.sock"
	nodenameName = "nodename"
	mtuName      = "mtu"
)

// system is the host as the loop sees it.
type system struct {
	kernel  kernel
	tracker connections.Tracker
	files   pluginFiles
	forward *forward.Rules // nil: other chains are not looked at
	probe   *probe.Prober  // nil: the path of packets is not tried
}

// kernel is what the loop opens and reads; tests replace it.
type kernel interface {
	// Workloads opens the links of workloads, whose names begin with one of the prefixes.
	Workloads(prefixes []string) (workload.Path, error)
	// Firewall opens the table of rules. alive is called during long work.
	Firewall(alive func()) (firewall.Table, error)
	// Interfaces returns the host's own, Roles the purpose of the links whose names begin with one of the prefixes.
	Interfaces(prefixes []string) ([]hostnet.Interface, error)
	Roles(prefixes []string) ([]hostnet.Role, error)
}

// accepted returns how many of the prober's packets policy has let pass.
func accepted() (uint64, error) {
	packets, _, err := nft.Counted(firewall.ProbeRules(), model.Inbound, -1)
	return packets, err
}

// hostSystem is the host that the process runs on.
func hostSystem(cfg Config, env run.Env, wake mailbox.Signal) system {
	prober := probe.New(probe.Config{
		Accepted: accepted, Period: cfg.probePeriod, Wake: wake, Logger: env.Logger,
	})
	return system{
		kernel: hostKernel{env.Logger}, tracker: hostTracker{}, files: pluginFiles{cfg.VarDir, cfg.Node},
		forward: forward.New(forward.Config{Path: prober.Findings, Logger: env.Logger, Problems: env.Problems, Health: env.Health}),
		probe:   prober,
	}
}

type hostKernel struct{ log *slog.Logger }

func (k hostKernel) Workloads(prefixes []string) (workload.Path, error) {
	return hostpath.New(hostpath.Config{Prefixes: prefixes, Logger: k.log})
}

func (k hostKernel) Firewall(alive func()) (firewall.Table, error) {
	return nft.Open(nft.Config{Logger: k.log, Between: alive})
}

func (hostKernel) Interfaces(prefixes []string) ([]hostnet.Interface, error) {
	return hostnet.Interfaces(prefixes)
}

func (hostKernel) Roles(prefixes []string) ([]hostnet.Role, error) { return hostnet.Roles(prefixes) }

type hostTracker struct{}

func (hostTracker) List(keep func(conntrack.Connection) bool) ([]conntrack.Tracked, error) {
	return conntrack.List(keep)
}

func (hostTracker) Delete(list []conntrack.Tracked) (int, error) { return conntrack.Delete(list) }

func (hostTracker) Routes() connections.Routes { return &hostnet.Lookup{} }

// pluginFiles write the files that give the plugin the node's name, which also tells it that there is an agent to wait for, and the MTU.
type pluginFiles struct{ dir, node string }

func (f pluginFiles) writeNode() error {
	return statefile.Write(filepath.Join(f.dir, nodenameName), []byte(f.node+"\n"))
}

func (f pluginFiles) writeMTU(mtu int) error {
	return statefile.Write(filepath.Join(f.dir, mtuName), []byte(strconv.Itoa(mtu)+"\n"))
}
