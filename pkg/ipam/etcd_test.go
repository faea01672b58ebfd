// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/model"
)

// etcd simulates as much of etcd as matters for deciding on addresses: ordered keys, revisions, and transactions that
// compare them. Values are kept in their stored form.
type etcd struct {
	t        testing.TB
	revision int64
	keys     map[string]record
	sorted   []string // nil: keys have changed
	// Entries are parsed once, and so shared by all readers.
	parsed map[string]model.Entry
	// What reading has cost so far.
	rounds, bytesRead int
}

type record struct {
	data              []byte
	created, modified int64
}

var errConflict = errors.New("conflict")

func newEtcd(t testing.TB) *etcd {
	return &etcd{t: t, keys: map[string]record{}, parsed: map[string]model.Entry{}}
}

func (s *etcd) entry(path string, keysOnly bool) model.Entry {
	r := s.keys[path]
	s.bytesRead += len(path)
	if !keysOnly {
		s.bytesRead += len(r.data)
	}
	e := s.parsed[path]
	if e.Revision != r.modified {
		e = model.Entry{Path: path, Revision: r.modified, Created: r.created}
		e.Key, e.Err = model.ParseKey(path)
		if e.Err == nil {
			e.Value, e.Err = model.ParseValue(e.Key, r.data)
		}
		s.parsed[path] = e
	}
	if keysOnly && e.Key != nil {
		e.Value, e.Err = nil, nil
	}
	return e
}

// maxPerRound is what etcd takes in one transaction. Only a host's own blocks may be more.
const maxPerRound = 128

// show reads in one round and adds the result to the view.
func (s *etcd) show(v *model.View, ranges []model.Range) {
	blocks := 0
	for _, r := range ranges {
		if _, is := r.Key.(model.BlockKey); is {
			blocks++
		}
	}
	if n := len(ranges); n == 0 || n-blocks > maxPerRound || n > maxPerRound+ownRound {
		s.t.Fatalf("%d ranges in one round", n)
	}
	s.rounds++
	for _, r := range ranges {
		v.Add(r, s.revision, s.read(r))
	}
}

// below returns the paths with the prefix.
func (s *etcd) below(prefix, from string) []string {
	paths := s.paths()
	first, _ := slices.BinarySearch(paths, max(prefix, from))
	paths = paths[first:]
	if n := slices.IndexFunc(paths, func(path string) bool { return !strings.HasPrefix(path, prefix) }); n >= 0 {
		paths = paths[:n]
	}
	return paths
}

func (s *etcd) read(r model.Range) (out []model.Entry) {
	if r.Key != nil {
		if _, ok := s.keys[r.Key.Path()]; ok {
			out = append(out, s.entry(r.Key.Path(), r.KeysOnly))
		}
		return out
	}
	for _, path := range s.below(r.Prefix, r.From) {
		if r.Limit > 0 && int64(len(out)) == r.Limit {
			break
		}
		out = append(out, s.entry(path, r.KeysOnly))
	}
	return out
}

func (s *etcd) paths() []string {
	if s.sorted == nil {
		s.sorted = slices.Sorted(maps.Keys(s.keys))
	}
	return s.sorted
}

func (s *etcd) commit(c model.Change) error {
	for _, cmp := range c.Compares {
		if have := s.keys[cmp.Key.Path()].modified; have != cmp.Revision {
			return fmt.Errorf("%w: %s is at %d, not %d", errConflict, cmp.Key.Path(), have, cmp.Revision)
		}
	}
	if c.Empty() {
		return nil
	}
	s.revision++
	written := map[string]bool{}
	once := func(path string) {
		if written[path] {
			s.t.Fatalf("%s is written twice in one transaction", path)
		}
		written[path] = true
	}
	for _, p := range c.Puts {
		once(p.Key.Path())
		s.write(p.Key.Path(), must(model.FormatValue(p.Value)))
	}
	for _, k := range c.Deletes {
		once(k.Path())
		s.remove(k.Path())
	}
	if n := max(len(c.Compares), len(c.Puts)+len(c.Deletes)); n > maxPerRound {
		s.t.Fatalf("%d operations in one transaction", n)
	}
	return nil
}

func (s *etcd) write(path string, data []byte) {
	r, ok := s.keys[path]
	if !ok {
		r.created = s.revision
		s.sorted = nil
	}
	r.data, r.modified = data, s.revision
	s.keys[path] = r
}

func (s *etcd) remove(path string) {
	if _, ok := s.keys[path]; ok {
		delete(s.keys, path)
		s.sorted = nil
	}
}

// put writes like a person or another program.
func (s *etcd) put(k model.Key, v any) { s.putText(k.Path(), string(must(model.FormatValue(v)))) }

func (s *etcd) putText(path, data string) {
	s.revision++
	s.write(path, []byte(data))
}

func (s *etcd) delete(k model.Key) {
	s.revision++
	s.remove(k.Path())
}

func (s *etcd) dump() []model.Entry {
	var out []model.Entry
	for _, path := range s.paths() {
		out = append(out, s.entry(path, false))
	}
	return out
}

func (s *etcd) pool(p model.Pool) {
	p.IPAM = true
	s.put(model.PoolKey{CIDR: p.CIDR}, p)
}

// othersPool makes a pool whose addresses are assigned by another IPAM plugin.
func (s *etcd) othersPool(c string) {
	s.put(model.PoolKey{CIDR: cidr(c)}, model.Pool{CIDR: cidr(c)})
}

// fillHosts makes that many entries before those of the hosts a, b and c.
func (s *etcd) fillHosts(n int) {
	for i := range n {
		s.put(model.HostMetadataKey{Host: fmt.Sprintf("0-%d", i)}, model.HostMetadata{})
	}
}

func (s *etcd) block(c string) *model.Block {
	s.t.Helper()
	e := s.entry(model.BlockKey{CIDR: cidr(c)}.Path(), false)
	b, ok := e.Value.(model.Block)
	if !ok {
		return nil
	}
	return &b
}

// plan reads until f has seen enough.
func (s *etcd) plan(first []model.Range, f func(*Plan) error) (*Plan, error) {
	v := model.NewView()
	ranges := first
	for range 1000 {
		s.show(v, ranges)
		p := NewPlan(v)
		err := f(p)
		need, ok := errors.AsType[*model.NeedRangesError](err)
		if !ok {
			return p, err
		}
		ranges = need.Ranges
	}
	s.t.Fatalf("still reading after 1000 rounds: %v", ranges)
	return nil, nil
}

func (s *etcd) planAssign(r Request) (choice Choice, p *Plan, err error) {
	p, err = s.plan(FirstRead(r), func(p *Plan) (err error) {
		choice, err = p.Assign(r)
		return err
	})
	return choice, p, err
}

// assign does a complete assignment as a single host.
func (s *etcd) assign(r Request) (Choice, error) {
	choice, p, err := s.planAssign(r)
	if err != nil {
		return choice, err
	}
	return choice, s.commit(p.Change())
}

func (s *etcd) release(handle string, now time.Time) ([]netip.Addr, error) {
	var freed []netip.Addr
	p, err := s.plan(FirstReadRelease(handle), func(p *Plan) (err error) {
		freed, err = p.Release(handle, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	return freed, s.commit(p.Change())
}

// mustBeSound checks what must hold at every revision.
func (s *etcd) mustBeSound() {
	s.t.Helper()
	for _, v := range invariants.Check(s.dump()) {
		if !v.Note {
			s.t.Fatalf("revision %d: %s", s.revision, v)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// pools are some as people call them.
func pools(names ...string) []model.PoolRef {
	var out []model.PoolRef
	for _, name := range names {
		ref, err := model.ParsePoolRef(name)
		if err != nil {
			panic(err)
		}
		out = append(out, ref)
	}
	return out
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// noon is when tests happen.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
