// SPDX-License-Identifier: Apache-2.0

// Package availability marks nodes whose agent is gone in the Kubernetes API: it sets their condition NetworkUnavailable to
// True until the agent is back. An agent sets the condition to False itself when it starts; the status of a restarting agent
// stays in etcd meanwhile. While the agents are being uninstalled no node is marked: pods keep working.
package availability

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
)

const (
	// interval is the time between two checks of all agents. A status outlives its agent by a minute and a half.
	interval = 15 * time.Second
	// batch is how many nodes one request to etcd covers.
	batch = 50
)

// Etcd reads etcd.
type Etcd interface {
	Read(ctx context.Context, ranges ...model.Range) (model.Snapshot, error)
}

// API is the Kubernetes API.
type API interface {
	// Watch reports every Node's condition, and each change, until the context ends.
	Watch(ctx context.Context, seen func(node string, n kube.Network), gone func(node string)) error
	// Installed reports whether the agents' DaemonSet exists and isn't being deleted.
	Installed(ctx context.Context) (bool, error)
	// SetNetwork sets a Node's condition.
	SetNetwork(ctx context.Context, node string, unavailable bool) error
}

// Config configures a Keeper.
type Config struct {
	Etcd     Etcd
	API      API
	Problems *problems.Ledger
	Logger   *slog.Logger
}

// Keeper keeps the condition NetworkUnavailable of all nodes up to date.
type Keeper struct {
	cfg Config

	mu    sync.Mutex
	nodes map[string]kube.Network

	// The fields below belong to Run.
	absent   map[string]bool // nodes whose agent was gone at the last check
	unmarked bool            // it has been logged that nodes aren't marked
}

// New returns a Keeper that knows no nodes yet.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg} }

// Run keeps the conditions up to date until the context ends. It may then be called again.
func (k *Keeper) Run(ctx context.Context) {
	k.mu.Lock()
	k.nodes = map[string]kube.Network{}
	k.mu.Unlock()
	k.absent = map[string]bool{}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { k.say(k.cfg.API.Watch(ctx, k.seen, k.gone)) })
	if retry.Wait(ctx, interval) != nil {
		return
	}
	_ = reconcile.New(reconcile.Timing{Every: interval}, func(ctx context.Context) (time.Duration, error) { // the context ended
		err := k.look(ctx)
		if ctx.Err() == nil {
			k.say(err)
		}
		return 0, err
	}).Run(ctx)
}

func (k *Keeper) seen(node string, n kube.Network) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[node] = n
}

func (k *Keeper) gone(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.nodes, node)
}

// say records err, or clears it if nil, in the ledger of problems.
func (k *Keeper) say(err error) {
	k.cfg.Problems.Tell(problems.Host, "the condition NetworkUnavailable of nodes", err)
}

// look compares the conditions that are ours with the agents' statuses in etcd. What can't be read changes nothing.
func (k *Keeper) look(ctx context.Context) error {
	installed := sync.OnceValues(func() (bool, error) { return k.cfg.API.Installed(ctx) })
	var unknown error
	k.mu.Lock()
	nodes := maps.Clone(k.nodes)
	k.mu.Unlock()
	maps.DeleteFunc(nodes, func(_ string, n kube.Network) bool { return !n.Ours })
	maps.DeleteFunc(k.absent, func(node string, _ bool) bool { _, there := nodes[node]; return !there })
	for names := range slices.Chunk(slices.Sorted(maps.Keys(nodes)), batch) {
		ranges := make([]model.Range, 0, 2*len(names))
		for _, node := range names {
			ranges = append(ranges, model.KeyRange(model.StatusKey{Host: node}), model.KeyRange(model.LastStatusKey{Host: node}))
		}
		snapshot, err := k.cfg.Etcd.Read(ctx, ranges...)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, e := range snapshot.Entries() {
			there[e.Path] = e.Exists()
		}
		for _, node := range names {
			lives := model.AgentLives(there[model.StatusKey{Host: node}.Path()], there[model.LastStatusKey{Host: node}.Path()])
			due := k.due(node, nodes[node].Unavailable, lives)
			if due && !lives {
				due, unknown = installed()
				k.notice(node, !due && unknown == nil)
			}
			if due {
				if err := k.set(ctx, node, lives); err != nil {
					return err
				}
			}
		}
	}
	return unknown
}

// notice logs, once, that a node isn't marked.
func (k *Keeper) notice(node string, unmarked bool) {
	if unmarked && !k.unmarked {
		k.cfg.Logger.Info("a node's agent is gone, and its condition NetworkUnavailable stays False: in this program's namespace is no DaemonSet calico-node, so Calico is being uninstalled, or its agents run otherwise", "node", node)
	}
	k.unmarked = unmarked
}

// due reports whether a node's condition must be set: to True when its agent was gone at two checks in a row, to False at
// once.
func (k *Keeper) due(node string, unavailable, lives bool) bool {
	twice := k.absent[node]
	k.absent[node] = !lives
	return unavailable == lives && (lives || twice)
}

func (k *Keeper) set(ctx context.Context, node string, lives bool) error {
	if err := k.cfg.API.SetNetwork(ctx, node, !lives); err != nil {
		return err
	}
	if lives {
		k.cfg.Logger.Info("a node's agent is back: its network is available", "node", node)
	} else {
		k.cfg.Logger.Warn("a node's agent is gone: its condition NetworkUnavailable is set to True", "node", node)
	}
	return nil
}
