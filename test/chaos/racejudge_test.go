// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/calico-go/calico/pkg/model"
)

// judge checks the history of each address, and what the calls said, against
// what etcd held from one revision to another.
func (r *race) judge(from, to int64) {
	l, err := r.readLedger(from, to)
	if err != nil {
		r.Errorf("read etcd's history: %v", err)
		return
	}
	had := l.held()
	for _, text := range unexplained(r.calls, had) {
		r.wrong("%s", text)
	}
	for _, d := range r.denied {
		if err := d.justified(l); err != nil {
			r.wrong("%v", err)
		}
	}
	histories := operations(r.calls, r.seen, had)
	longest := 0
	for _, ops := range histories {
		longest = max(longest, len(ops))
	}
	r.judgeHistories(histories, l)
	r.Logf("%d revisions walked; the histories of %d addresses judged, of up to %d operations each; up to %d addresses of a block borrowed at once",
		to-from, len(histories), longest, l.maxBorrowed())
	// A race that was none proves nothing.
	if l.maxBorrowed() == 0 || len(r.denied) == 0 || r.tally.conflicts() == 0 {
		r.wrong("nobody has borrowed, or found the pools empty, or lost a race: the pools are too large")
	}
}

func (r *race) readLedger(from, to int64) (ledger, error) {
	l := make(ledger)
	err := eachRevision(r.Context(), r.lab, from, to, func(revision int64, state map[string]model.Entry, changed []string) {
		if revision == from {
			changed = sortedPaths(state)
		}
		for _, path := range changed {
			l.note(revision, path, state[path])
		}
	})
	return l, err
}

// maxStories is how many are told; each is the same fault, most often.
const maxStories = 3

// judgeHistories checks that each is linearizable. Of those that aren't it tells
// the shortest.
func (r *race) judgeHistories(histories map[netip.Addr][]operation, l ledger) {
	var bad []netip.Addr
	shown := make(map[netip.Addr]int)
	for _, addr := range slices.SortedFunc(maps.Keys(histories), netip.Addr.Compare) {
		ops := histories[addr]
		switch result, _ := linearizable(ops); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			r.Errorf("the history of %s, %d operations, was not judged in %v", addr, len(ops), checkPatience)
		default:
			bad = append(bad, addr)
			shown[addr] = len(shrink(ops))
		}
	}
	slices.SortStableFunc(bad, func(a, b netip.Addr) int { return cmp.Compare(shown[a], shown[b]) })
	for _, addr := range bad[:min(len(bad), maxStories)] {
		_, info := linearizable(histories[addr])
		picture := filepath.Join(r.ArtifactDir(), strings.ReplaceAll(addr.String(), ":", "_")+".html")
		if err := porcupine.VisualizePath(register(), info, picture); err != nil {
			r.Error(err)
		}
		r.Errorf("%spicture: %s (kept with go test -artifacts)", story(addr, histories[addr], l), picture)
	}
	if more := len(bad) - maxStories; more > 0 {
		r.Errorf("and %d more histories are not linearizable", more)
	}
}
