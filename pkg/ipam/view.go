// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// View is what has been read: keys with their values and revisions, and keys
// that are known not to exist. Make one with NewView. A View may be shared by
// several plans, not by several goroutines.
type View struct {
	config *model.Entry
	pools  []*pool // by CIDR
	blocks map[netip.Prefix]*block
	// nearby indexes the blocks that exist by the region of their first address.
	nearby   map[netip.Prefix][]netip.Prefix
	own      map[string]*affinities
	handles  map[model.HandleKey]model.Entry
	metadata map[string]model.Entry
	listings map[string]*listing
	sorted   map[texts]sorted
}

// block is what is known of a block key: that it exists or not, and its value
// once that was read.
type block struct {
	entry model.Entry
	read  bool // the value too, where it exists
}

func (b *block) exists() bool { return b.entry.Exists() }

// free is how many addresses may be taken: 0 where the block is invalid.
func (b *block) free() int {
	if !b.read || b.entry.Err != nil {
		return 0
	}
	m, _ := b.entry.Value.(model.Block)
	return len(m.Unallocated)
}

// affinities are the blocks that one host has affinity to, newest first.
type affinities struct {
	blocks []affinity
	at     map[netip.Prefix]int // places in blocks, once they are sorted
	sorted bool
}

type affinity struct {
	cidr    netip.Prefix
	created int64
	state   *block // nil until the block was read
}

// listing is how far a prefix has been listed.
type listing struct {
	done bool
	next string // where to go on
}

// texts are those of a prefix's blocks that come before one: see Want.Before.
type texts struct{ prefix, before string }

// sorted says how many of them have been read.
type sorted struct {
	revision int64 // up to which that is so
	limit    int64
	all      bool // the limit left none out
}

// pool is a pool as stored.
type pool struct {
	model.Pool
	entry    model.Entry
	err      error // why it hands out nothing
	selector *selector.Selector
}

var errNotCanonical = errors.New("the key is not in its canonical form, so it can't be compared")

// NewView returns a View of nothing.
func NewView() *View {
	return &View{
		blocks:   map[netip.Prefix]*block{},
		nearby:   map[netip.Prefix][]netip.Prefix{},
		own:      map[string]*affinities{},
		handles:  map[model.HandleKey]model.Entry{},
		metadata: map[string]model.Entry{},
		listings: map[string]*listing{},
		sorted:   map[texts]sorted{},
	}
}

// Add tells the view what reading w at the revision gave, or at a later one. What of it isn't in entries doesn't exist.
func (v *View) Add(w Want, revision int64, entries []model.Entry) {
	if w.Before != "" {
		if t := (texts{w.Prefix, w.Before}); w.Limit > v.sorted[t].limit {
			v.sorted[t] = sorted{revision, w.Limit, int64(len(entries)) < w.Limit}
		}
		for _, e := range entries {
			v.addEntry(e, false)
		}
		return
	}
	if w.Key != nil {
		e := model.Entry{Path: w.Key.Path(), Key: w.Key}
		if len(entries) > 0 {
			e = entries[0]
		}
		v.addEntry(e, w.KeysOnly)
		return
	}
	if w.From == "" {
		v.forget(w.Prefix)
	}
	l := v.listings[w.Prefix]
	if l == nil {
		l = &listing{}
		v.listings[w.Prefix] = l
	}
	if w.Limit == 0 || int64(len(entries)) < w.Limit {
		l.done = true
	} else {
		l.next = entries[len(entries)-1].Path + "\x00"
	}
	for _, e := range entries {
		v.addEntry(e, w.KeysOnly)
	}
}

// forget drops what a prefix that is read as a whole held before.
func (v *View) forget(prefix string) {
	if prefix == model.PoolPrefix() {
		v.pools = nil
	}
	for host := range v.own {
		if prefix == model.AffinityPrefix(host) {
			delete(v.own, host)
		}
	}
}

func (v *View) addEntry(e model.Entry, keysOnly bool) {
	switch k := e.Key.(type) {
	case model.BlockKey:
		v.addBlock(k.CIDR, e, !keysOnly)
		return
	case model.AffinityKey:
		if e.Exists() {
			v.addAffinity(k, e)
		}
		return
	}
	if keysOnly {
		return // of the others, the values matter
	}
	switch k := e.Key.(type) {
	case model.IPAMConfigKey:
		v.config = &e
	case model.PoolKey:
		v.addPool(k, e)
	case model.HandleKey:
		v.handles[k] = canonical(e)
	case model.HostMetadataKey:
		v.metadata[k.Host] = e
	}
}

// canonical marks an entry whose key stands for the same object as another
// path: a compare on that one would never hold.
func canonical(e model.Entry) model.Entry {
	if e.Err == nil && e.Exists() && e.Path != "" && e.Path != e.Key.Path() {
		e.Err = errNotCanonical
	}
	return e
}

func (v *View) addPool(k model.PoolKey, e model.Entry) {
	e = canonical(e)
	p := &pool{entry: e, err: e.Err}
	p.Pool, _ = e.Value.(model.Pool)
	p.CIDR = k.CIDR
	if p.err == nil {
		p.check()
	}
	i, found := slices.BinarySearchFunc(v.pools, k.CIDR, func(q *pool, c netip.Prefix) int { return q.CIDR.Compare(c) })
	switch {
	case !e.Exists():
		if found {
			v.pools = slices.Delete(v.pools, i, i+1)
		}
	case found:
		v.pools[i] = p
	default:
		v.pools = slices.Insert(v.pools, i, p)
	}
}

func (v *View) addBlock(c netip.Prefix, e model.Entry, read bool) {
	e = canonical(e)
	old := v.blocks[c]
	switch {
	case old == nil:
		old = &block{}
		v.blocks[c] = old
	case old.read && !read && old.entry.Revision == e.Revision:
		return // the value is still the one that was read
	case old.read && e.Exists() && old.entry.Revision > e.Revision && old.entry.Path == e.Path:
		return // it was read earlier, by another transaction of the round
	}
	if e.Exists() && !old.exists() {
		r := regionOf(c.Addr())
		v.nearby[r] = append(v.nearby[r], c)
	}
	if !e.Exists() && old.exists() {
		r := regionOf(c.Addr())
		v.nearby[r] = slices.DeleteFunc(v.nearby[r], func(n netip.Prefix) bool { return n == c })
	}
	*old = block{entry: e, read: read || !e.Exists() || e.Err != nil}
}

func (v *View) addAffinity(k model.AffinityKey, e model.Entry) {
	a := v.own[k.Host]
	if a == nil {
		a = &affinities{}
		v.own[k.Host] = a
	}
	a.blocks = append(a.blocks, affinity{cidr: k.CIDR, created: e.Created})
	a.sorted = false
}

// affinities are those of the host, the last claimed one first.
func (v *View) affinities(host string) []affinity {
	a := v.own[host]
	if a == nil {
		return nil
	}
	if !a.sorted {
		slices.SortFunc(a.blocks, func(x, y affinity) int {
			return cmp.Or(cmp.Compare(y.created, x.created), x.cidr.Compare(y.cidr))
		})
		a.blocks = slices.CompactFunc(a.blocks, func(x, y affinity) bool { return x.cidr == y.cidr })
		a.at = make(map[netip.Prefix]int, len(a.blocks))
		for i, own := range a.blocks {
			a.at[own.cidr] = i
		}
		a.sorted = true
	}
	for i := range a.blocks {
		if a.blocks[i].state == nil {
			a.blocks[i].state = v.blocks[a.blocks[i].cidr]
		}
	}
	return a.blocks
}

// isOwn tells of any block whether the host has affinity to it, and it isn't known not to exist.
func (v *View) isOwn(host string) func(c netip.Prefix) bool {
	blocks := v.affinities(host)
	return func(c netip.Prefix) bool {
		if len(blocks) == 0 {
			return false
		}
		i, ok := v.own[host].at[c]
		return ok && (blocks[i].state == nil || blocks[i].state.exists())
	}
}

// knows reports whether w has been read, by itself or as part of something.
func (v *View) knows(w Want) bool {
	if w.Before != "" {
		s := v.sorted[texts{w.Prefix, w.Before}]
		return s.all || s.limit >= w.Limit
	}
	if w.Key == nil {
		return v.listed(w.Prefix)
	}
	switch k := w.Key.(type) {
	case model.IPAMConfigKey:
		return v.config != nil
	case model.HandleKey:
		_, ok := v.handles[k]
		return ok
	case model.HostMetadataKey:
		_, ok := v.metadata[k.Host]
		return ok
	case model.BlockKey:
		if b := v.blocks[k.CIDR]; b != nil {
			return b.read || w.KeysOnly
		}
		return v.listed(k.Path())
	}
	return false
}

// beyond reports whether a block whose value wasn't read is known not to come before a text.
func (v *View) beyond(c netip.Prefix, text string) bool {
	path := model.BlockKey{CIDR: c}.Path()
	for t, s := range v.sorted {
		if t.before == text && s.all && v.blocks[c].entry.Revision <= s.revision && strings.HasPrefix(path, t.prefix) {
			return true
		}
	}
	return false
}

// listed reports whether every key that begins with path has been listed.
func (v *View) listed(path string) bool {
	if l := v.listings[path]; l != nil && l.done {
		return true
	}
	for prefix, l := range v.listings {
		if l.done && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// ipamConfig is what holds; err says why it can't be known.
func (v *View) ipamConfig() (model.IPAMConfig, error) {
	switch c, ok := v.config.Value.(model.IPAMConfig); {
	case v.config.Err != nil:
		return model.IPAMConfig{}, &InvalidError{Path: v.config.Path, Err: v.config.Err}
	case ok:
		return c, nil
	}
	return model.DefaultIPAMConfig, nil
}
