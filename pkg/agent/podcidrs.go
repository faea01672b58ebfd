// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
)

// podCIDRs reports when no pool overlaps the podCIDR of this host's Node: kube-proxy knows the range that the podCIDR is from, and most
// likely takes pods for outsiders then.
type podCIDRs struct {
	log      *slog.Logger
	problems *problems.Ledger

	mu    sync.Mutex
	node  []netip.Prefix
	pools map[string]netip.Prefix // those in use, by path
}

// Update takes in what etcd holds.
func (c *podCIDRs) Update(u model.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := u.Resync
	if u.Resync {
		c.pools = map[string]netip.Prefix{}
	}
	for _, e := range u.Entries {
		if _, is := e.Key.(model.PoolKey); !is {
			continue
		}
		changed = true
		if pool, ok := e.Value.(model.Pool); ok && !pool.Disabled {
			c.pools[e.Path] = pool.CIDR
		} else {
			delete(c.pools, e.Path)
		}
	}
	if changed {
		c.tell()
	}
}

// SetNode sets the podCIDRs of this host's Node.
func (c *podCIDRs) SetNode(cidrs []netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = cidrs
	c.tell()
}

func (c *podCIDRs) tell() {
	pools := slices.SortedFunc(maps.Values(c.pools), netip.Prefix.Compare)
	stray := slices.DeleteFunc(slices.Clone(c.node), func(n netip.Prefix) bool {
		ofFamily := func(p netip.Prefix) bool { return p.Addr().Is4() == n.Addr().Is4() }
		return slices.ContainsFunc(pools, n.Overlaps) || !slices.ContainsFunc(pools, ofFamily)
	})
	var err error
	if len(stray) > 0 {
		err = fmt.Errorf("%v of this host's Node overlaps none of the pools %v: unless kube-proxy's clusterCIDR (--cluster-cidr) contains the pools, "+
			"it masquerades pods, and policy sees nodes in their place; make it contain them", stray, pools)
	}
	if before, after := c.problems.Note(problems.Notice, "podCIDR", err); before == "" && after != "" {
		c.log.Warn("kube-proxy may masquerade pod traffic", "reason", after)
	}
}
