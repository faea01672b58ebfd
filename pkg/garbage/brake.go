// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

const (
	// maxNodes is how many hosts may be removed in one pass.
	maxNodes = 3
	// share limits a pass to 1/share of a pool's addresses, both of all and of the allocated ones. Up to fewAddrs may
	// be freed whatever their share of the allocated ones.
	share    = 10
	fewAddrs = 16
)

// Allowance is what a person has permitted beyond the limits of one pass. The zero value permits nothing.
type Allowance struct {
	Addrs map[netip.Prefix]int // by pool
	Hosts int
}

// Excess says that a pass would remove too much. With its Allowance a pass may do so all the same.
type Excess struct {
	Allowance
	Reason string
}

// outside stands for the addresses of a family that are in no pool.
func outside(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// excess returns why a pass would remove too much, or nil. Addresses freed along with their hosts are limited by the
// number of hosts.
func (s *Survey) excess(d Decision, allowed Allowance) *Excess {
	e := &Excess{Allowance: Allowance{Addrs: map[netip.Prefix]int{}, Hosts: len(d.Hosts)}}
	for _, step := range d.Free {
		for _, a := range step.Addrs {
			if p := s.poolOf(netip.PrefixFrom(a, a.BitLen())); p != nil {
				e.Addrs[p.cidr]++
			} else {
				e.Addrs[outside(a)]++
			}
		}
	}
	var reasons []string
	if n := len(d.Hosts); n > max(maxNodes, allowed.Hosts) {
		reasons = append(reasons, fmt.Sprintf("%d nodes would go at once, at most %d may", n, maxNodes))
	}
	for _, c := range slices.SortedFunc(maps.Keys(e.Addrs), netip.Prefix.Compare) {
		limit, of := fewAddrs, "outside every pool"
		if p := s.poolOf(c); p != nil {
			limit, of = max(1, int(min(size(p.cidr)/share, float64(max(fewAddrs, p.allocated/share))))), "of pool "+c.String()
		}
		if n := e.Addrs[c]; n > max(limit, allowed.Addrs[c]) {
			reasons = append(reasons, fmt.Sprintf("%d addresses %s would be freed at once, at most %d may", n, of, limit))
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	e.Reason = strings.Join(reasons, "; ")
	return e
}

// ErrNotBlocked says that garbage collection is not blocked.
var ErrNotBlocked = errors.New("garbage collection is not blocked: there is nothing to resume")

// Resume releases the brake and returns it: the leader's next pass may then do what the brake records, up to the amount
// recorded. The view must have model.GarbageBrakeKey.
func Resume(v *model.View) (model.GarbageBrake, model.Change, error) {
	key := model.GarbageBrakeKey{}
	e := v.Get(key)
	if !e.Exists() {
		return model.GarbageBrake{}, model.Change{}, ErrNotBlocked
	}
	brake, _ := e.Value.(model.GarbageBrake) // an unreadable one permits nothing, and is gone after the next pass
	brake.Resumed = true
	return brake, model.Change{Compares: []model.Compare{v.Compare(key)}, Puts: []model.Put{{Key: key, Value: brake}}}, nil
}
