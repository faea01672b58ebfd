// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// Want is something to read: one key, or the keys below a prefix.
type Want struct {
	// Key is the one key; nil: Prefix.
	Key model.Key
	// Prefix is what the paths begin with.
	Prefix string
	// From is where to begin below the prefix; "": at its first key.
	From string
	// Limit is how many entries to read at most; 0: all.
	Limit int64
	// KeysOnly: the values are not needed.
	KeysOnly bool
	// Before: only blocks whose texts come before this one, in the order of the texts: model.FullBlock for those that aren't
	// known to be full, the empty ones first; model.UsedBlock for those that aren't known not to be empty.
	Before string
	// If is where to read it only; nil: in any case.
	If *Condition
}

// Condition is what must hold at the revision at which the wants that have it are read, together. Where it doesn't
// a view is told nothing of them.
type Condition struct {
	// Exist are what paths of keys begin with: of each there is one at least.
	Exist []string
	// Full are such where in addition all are blocks that have no free address.
	Full []string
}

// NeedError says that a decision needs more to be read.
type NeedError struct {
	// Wants are best read at once.
	Wants []Want
}

// Error is for a caller that forgot to read on.
func (e *NeedError) Error() string {
	return fmt.Sprintf("decide on addresses: %d more ranges must be read first", len(e.Wants))
}

// FirstRead is what Assign must see first, to be read at one revision.
func FirstRead(r Request) []Want {
	return append([]Want{
		{Key: model.IPAMConfigKey{}},
		{Prefix: model.PoolPrefix()},
		{Prefix: model.AffinityPrefix(r.Host), KeysOnly: true},
		{Key: model.HostMetadataKey{Host: r.Host}},
	}, handleWants(r.Handle)...)
}

// FirstReadRelease is what Release must see first, to be read at one revision.
func FirstReadRelease(handle string) []Want {
	return append([]Want{{Key: model.IPAMConfigKey{}}, {Prefix: model.PoolPrefix()}}, handleWants(handle)...)
}

func handleWants(handle string) []Want {
	return []Want{
		{Key: model.HandleKey{ID: handle}},
		{Key: model.HandleKey{ID: handle, Legacy: true}},
	}
}

// maxWants bounds a round, but for the host's own blocks: etcd takes 128 operations in a transaction, and
// the caller may have some of its own. What is beyond is read in the next round.
const maxWants = 112

// maxCompares is how much a condition may name: etcd takes no more.
const maxCompares = 128

// needs collects what must be read and isn't known yet.
type needs struct {
	v         *View
	wants     []Want
	unbounded int    // of wants: the host's own blocks
	ahead     []Want // with a condition
}

// add reports whether w is known; if not it is wanted.
func (n *needs) add(w Want) bool {
	if n.v.knows(w) {
		return true
	}
	for _, have := range n.wants {
		if have == w || w.Key != nil && have.Key == w.Key && !have.KeysOnly {
			return false
		}
	}
	if len(n.wants)-n.unbounded < maxWants {
		n.wants = append(n.wants, w)
	}
	return false
}

// own wants blocks of the host's own, all of them. One that is wanted already is read twice.
func (n *needs) own(blocks []netip.Prefix) {
	for _, c := range blocks {
		n.wants = append(n.wants, Want{Key: model.BlockKey{CIDR: c}})
	}
	n.unbounded += len(blocks)
}

// addAll reports whether all of ws are known.
func (n *needs) addAll(ws []Want) bool {
	known := true
	for _, w := range ws {
		if !n.add(w) {
			known = false
		}
	}
	return known
}

// block reports whether the block's content is known, or its absence.
func (n *needs) block(p netip.Prefix) bool { return n.add(Want{Key: model.BlockKey{CIDR: p}}) }

// onCondition wants what of ws isn't known, where the condition holds.
func (n *needs) onCondition(c Condition, ws []Want) {
	before := len(n.ahead)
	for _, w := range ws {
		known := n.v.knows(w)
		if w.If = &c; !known && !slices.Contains(n.ahead[before:], w) {
			n.ahead = append(n.ahead, w)
		}
	}
}

// err is nil where nothing is needed.
func (n *needs) err() error {
	if len(n.wants) == 0 {
		return nil
	}
	return &NeedError{Wants: slices.Concat(n.wants, n.ahead)}
}
