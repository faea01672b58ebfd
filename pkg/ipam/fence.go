// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// A commit whose answer was lost may take effect long after: etcd's members
// pass on what a leader that hung for a while had in its queue. Whoever gives up
// on such a change commits its fence: then the change has taken effect before
// that, or it never will.

// FenceKey is the block that the fence of a change is written to, false where
// the change allocates nothing.
func FenceKey(c model.Change) (model.BlockKey, bool) {
	fence, ok := fenceCompare(c)
	if !ok {
		return model.BlockKey{}, false
	}
	return fence.Key.(model.BlockKey), true
}

// fenceCompare is one that the change writes to as well: of a block that was
// there, if any, since revisions of those never come back. That may be one that is
// deleted: what is to be claimed in its place can't be made beside it.
func fenceCompare(c model.Change) (found model.Compare, ok bool) {
	allocates := false
	for _, cmp := range c.Compares {
		k, block := cmp.Key.(model.BlockKey)
		if !block {
			continue
		}
		put := slices.ContainsFunc(c.Puts, puts(k))
		allocates = allocates || put
		if (!ok || found.Revision == 0) && (put || slices.Contains(c.Deletes, model.Key(k))) {
			found, ok = cmp, true
		}
	}
	return found, ok && allocates
}

func puts(k model.Key) func(model.Put) bool {
	return func(p model.Put) bool { return p.Key == k }
}

// Fence is the fence of a change, given what is stored under FenceKey. It
// leaves a block that was there as it is, and makes one that was to be claimed,
// for the same host and empty. It is empty where nothing needs to be done. Its
// commit may conflict: then somebody else has fenced the change.
func Fence(c model.Change, stored model.Entry, now time.Time) model.Change {
	fence, ok := fenceCompare(c)
	if !ok || stored.Revision != fence.Revision {
		return model.Change{}
	}
	if stored.Exists() {
		if stored.Err != nil {
			return model.Change{}
		}
		return model.Change{Compares: []model.Compare{fence}, Puts: []model.Put{{Key: fence.Key, Value: stored.Value}}}
	}
	out := model.Change{Compares: []model.Compare{fence}}
	// Whether a block may be made there depends on these.
	for _, cmp := range c.Compares {
		switch cmp.Key.(type) {
		case model.PoolKey, model.IPAMConfigKey:
			out.Compares = append(out.Compares, cmp)
		}
	}
	claimed, ok := c.Puts[slices.IndexFunc(c.Puts, puts(fence.Key))].Value.(model.Block)
	if !ok {
		return model.Change{}
	}
	block := newBlock(claimed.CIDR, claimed.Affinity)
	block.EmptySince = now.UTC()
	out.Puts = []model.Put{{Key: fence.Key, Value: block}, {Key: model.AffinityKey{Host: block.Affinity, CIDR: block.CIDR}, Value: model.Affinity{}}}
	return out
}
