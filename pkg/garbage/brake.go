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
	// maxNodes is how many hosts may go in one pass.
	maxNodes = 3
	// share of a pool's addresses may go in one pass: of all, and of those that are allocated, which are fewer. fewAddrs may
	// go whatever their share of these is.
	share    = 10
	fewAddrs = 16
)

// Allowance is what a person has allowed beyond what one pass may do; the zero value is nothing.
type Allowance struct {
	Addrs map[netip.Prefix]int // by pool
	Hosts int
}

// Excess is more than one pass may do. With the Allowance that it has a pass may do it all the same.
type Excess struct {
	Allowance
	Reason string
}

// outside are the addresses of a family that are in no pool.
func outside(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// excess says why a pass would do too much, nil = it wouldn't. How many addresses go with their hosts is bounded by the
// number of these.
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
			limit, of = max(1, int(min(p.size()/share, float64(max(fewAddrs, p.allocated/share))))), "of pool "+c.String()
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

// Resume lets the leader do in its next pass what made it stop, as much of it as the brake, which is returned, says. The view has
// model.GarbageBrakeKey.
func Resume(v *model.View) (model.GarbageBrake, model.Change, error) {
	key := model.GarbageBrakeKey{}
	e := v.Get(key)
	if !e.Exists() {
		return model.GarbageBrake{}, model.Change{}, ErrNotBlocked
	}
	brake, _ := e.Value.(model.GarbageBrake) // one that can't be read allows nothing, and is gone after the next pass
	brake.Resumed = true
	return brake, model.Change{Compares: []model.Compare{v.Compare(key)}, Puts: []model.Put{{Key: key, Value: brake}}}, nil
}
