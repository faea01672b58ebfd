// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

func TestMerger(t *testing.T) {
	e := func(name string) model.Entry { return model.Entry{Path: name} }
	m := newMerger(2, 10)
	step := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, u := range m.ready() {
			s := fmt.Sprint(u.Revision, ":")
			for _, e := range u.Entries {
				s += " " + e.Path
			}
			got = append(got, s)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s: %s", what, d)
		}
	}
	ok := func(took bool) {
		t.Helper()
		if !took {
			t.Fatal("refused")
		}
	}
	step("nothing")
	ok(m.event(0, 11, e("a11")))
	m.arrived(0, 11)
	step("the other watch may have an event of 11")
	ok(m.event(1, 11, e("b11")))
	ok(m.event(1, 12, e("b12")))
	m.arrived(1, 12)
	step("one transaction, one update", "11: a11 b11")
	if !m.behind(0) {
		t.Fatal("b12 is not waited for")
	}
	m.arrived(0, 12)
	step("nothing else in 12", "12: b12")
	ok(m.event(0, 15, e("a15")))
	m.arrived(0, 15)
	if d := cmp.Diff([]int64{15, 12}, m.seen); d != "" {
		t.Fatalf("resumes after: %s", d)
	}
	ok(m.event(1, 14, e("b14")))
	ok(m.event(1, 15, e("b15")))
	m.arrived(1, 15)
	step("across a restart", "14: b14", "15: a15 b15")

	// A server that does not keep its order.
	if m.event(1, 15, e("late")) || m.event(0, 9, e("late")) {
		t.Fatal("an event of the past was taken")
	}
}

// TestMergerHistories plays random histories, as etcd may send them: in order
// on each watch, in any order between them, and broken off anywhere.
func TestMergerHistories(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		watches, last := 1+r.IntN(4), int64(1+r.IntN(30))
		events := make([][]int64, watches) // revisions, per watch
		want := map[int64]int{}
		for rev := int64(1); rev <= last; rev++ {
			for w := range events {
				for range r.IntN(3) {
					events[w] = append(events[w], rev)
					want[rev]++
				}
			}
		}
		m := newMerger(watches, 0)
		pos := make([]int, watches)
		sent := func(w int) int64 { // up to here all is sent
			if pos[w] == len(events[w]) {
				return last
			}
			return events[w][pos[w]] - 1
		}
		got, delivered := map[int64]int{}, int64(0)
		for step := 0; len(got) < len(want); step++ {
			if step > 10000 {
				t.Fatalf("seed %d: stuck: %+v", seed, m)
			}
			switch w := r.IntN(watches); r.IntN(10) {
			case 0: // the stream breaks
				for w := range pos {
					for pos[w] = 0; pos[w] < len(events[w]) && events[w][pos[w]] <= m.seen[w]; pos[w]++ {
					}
				}
			case 1: // progress of all: what the slowest has
				all := last
				for w := range pos {
					all = min(all, sent(w))
				}
				for w := range pos {
					m.arrived(w, all)
				}
			case 2:
				m.arrived(w, sent(w))
			default: // a response: the events of one or more whole revisions
				for range 1 + r.IntN(3) {
					if pos[w] == len(events[w]) {
						break
					}
					rev := events[w][pos[w]]
					for ; pos[w] < len(events[w]) && events[w][pos[w]] == rev; pos[w]++ {
						if !m.event(w, rev, model.Entry{}) {
							t.Fatalf("seed %d: event of %d refused", seed, rev)
						}
					}
					m.arrived(w, rev)
				}
			}
			for _, u := range m.ready() {
				if u.Revision <= delivered {
					t.Fatalf("seed %d: %d after %d", seed, u.Revision, delivered)
				}
				delivered = u.Revision
				got[u.Revision] = len(u.Entries)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d: %s", seed, d)
		}
	}
}

func TestDisjoint(t *testing.T) {
	got, err := disjoint([]string{"/b/", "/a/b/", "/a/", "/b/", "/a", "/c/"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"/a", "/b/", "/c/"}, got); d != "" {
		t.Error(d)
	}
	var many []string
	for i := range maxOps + 1 {
		many = append(many, fmt.Sprintf("/%d/", i))
	}
	for _, bad := range [][]string{nil, {""}, many} {
		if _, err := disjoint(bad); err == nil {
			t.Errorf("%d prefixes were taken", len(bad))
		}
	}
}
