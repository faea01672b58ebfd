// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
)

// nodePause is the minimum time between two rounds caused by changed nodes: often many change at once.
const nodePause = 100 * time.Millisecond

// clusterPolicies turns ClusterNetworkPolicies into keys. The keys name nodes, so none is made before all nodes and their
// tunnels are known, and all are made again when a node changes. The same goes for the policies that protect nodes' ports.
type clusterPolicies struct {
	*controllers
	protect    func(tunnels []netip.Addr)
	conditions *conditions
	loop       *reconcile.Loop

	mu      sync.Mutex
	objects map[string]clusterPolicy
	nodes   map[string]kubepolicy.Node
	tunnels map[model.HostConfigKey]netip.Addr // of nodes; nil: not known yet
	changed map[string]bool                    // policies
	all     bool                               // nodes have changed
	known   bool                               // all nodes are known
	listed  bool                               // all policies are known
}

func newClusterPolicies(of *controllers) *clusterPolicies {
	c := &clusterPolicies{
		controllers: of, protect: of.protect, conditions: newConditions(of.kube, of.ledger),
		objects: map[string]clusterPolicy{}, nodes: map[string]kubepolicy.Node{}, changed: map[string]bool{},
	}
	c.loop = reconcile.New(reconcile.Timing{}, func(ctx context.Context) (time.Duration, error) {
		if c.round() {
			return 0, retry.Wait(ctx, nodePause)
		}
		return 0, nil
	})
	return c
}

// change applies a change to what is known and wakes the loop.
func (c *clusterPolicies) change(how func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how()
	c.loop.Wake()
}

func (c *clusterPolicies) set(p clusterPolicy) {
	c.change(func() { c.objects[p.Name], c.changed[p.Name] = p, true })
}

func (c *clusterPolicies) remove(name string) {
	c.change(func() {
		delete(c.objects, name)
		c.changed[name] = true
	})
}

func (c *clusterPolicies) removeNode(name string) {
	c.change(func() {
		delete(c.nodes, name)
		c.all = true
	})
}

func (c *clusterPolicies) synced()      { c.change(func() { c.listed = true }) }
func (c *clusterPolicies) nodesSynced() { c.change(func() { c.known = true }) }

// hold leaves an unreadable policy's keys in etcd as they are, whichever tier it is in.
func (c *clusterPolicies) hold(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.objects, name)
	delete(c.changed, name)
	c.conditions.remove(name)
	c.owned.Hold(writer.Object{Kind: kindClusterPolicy, Name: name},
		kubepolicy.ClusterPolicyKey(kubepolicy.AdminTier, name), kubepolicy.ClusterPolicyKey(kubepolicy.BaselineTier, name))
}

func (c *clusterPolicies) setNode(name string, n kubepolicy.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, known := c.nodes[name]; known && reflect.DeepEqual(before, n) {
		return // its heartbeat
	}
	c.nodes[name] = n
	c.all = true
	c.loop.Wake()
}

// update takes in the addresses of tunnels, which agents write to etcd.
func (c *clusterPolicies) update(u model.Update) {
	told := map[model.HostConfigKey]netip.Addr{} // the zero value: no readable address
	for _, e := range u.Entries {
		if k, ok := e.Key.(model.HostConfigKey); ok && strings.HasSuffix(k.Name, "TunnelAddr") {
			text, _ := e.Value.(model.Text)
			told[k], _ = kubepolicy.ParseNodeAddr(string(text))
		}
	}
	if len(told) == 0 && !u.Resync {
		return // other changes don't wait for a round to end
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := map[model.HostConfigKey]netip.Addr{}
	if !u.Resync {
		maps.Copy(now, c.tunnels)
	}
	maps.Copy(now, told)
	maps.DeleteFunc(now, func(_ model.HostConfigKey, a netip.Addr) bool { return !a.IsValid() })
	if c.tunnels == nil || !maps.Equal(c.tunnels, now) {
		c.tunnels, c.all = now, true
		c.loop.Wake()
	}
}

// count returns how many nodes are known.
func (c *clusterPolicies) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.nodes)
}

// round makes keys of everything that has changed, and reports whether nodes had changed.
func (c *clusterPolicies) round() (all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || c.tunnels == nil {
		return false
	}
	all, c.all = c.all, false
	names := c.changed
	if all {
		c.protect(c.tunnelAddrs())
		for name := range c.objects {
			names[name] = true
		}
	}
	c.changed = map[string]bool{}
	var nodes []kubepolicy.Node
	if len(names) > 0 {
		nodes = c.withTunnels()
	}
	for name := range names {
		p, there := c.objects[name]
		if !there {
			c.owned.Remove(writer.Object{Kind: kindClusterPolicy, Name: name})
			c.conditions.remove(name)
			continue
		}
		c.conditions.set(p.ClusterNetworkPolicy, c.controllers.set(p.translate(nodes)))
	}
	if c.listed {
		c.owned.Synced(kindClusterPolicy)
	}
	return all
}

// tunnelAddrs returns the tunnel addresses of all existing nodes, sorted and without duplicates.
func (c *clusterPolicies) tunnelAddrs() (addrs []netip.Addr) {
	for k, a := range c.tunnels {
		if _, there := c.nodes[k.Host]; there {
			addrs = append(addrs, a)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// withTunnels returns the nodes, sorted by name, with their own addresses and those of their tunnels.
func (c *clusterPolicies) withTunnels() (nodes []kubepolicy.Node) {
	tunnels := map[string][]netip.Addr{}
	for k, a := range c.tunnels {
		tunnels[k.Host] = append(tunnels[k.Host], a)
	}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		n := c.nodes[name]
		n.Addrs = slices.Concat(n.Addrs, slices.SortedFunc(slices.Values(tunnels[name]), netip.Addr.Compare))
		nodes = append(nodes, n)
	}
	return nodes
}
