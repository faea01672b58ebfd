// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

const (
	walkPatience = 5 * time.Minute
	maxFaults    = 20
)

// walk looks at what etcd held at every revision from one to another, both
// included, and fails the test for each thing that was wrong at any of them. It
// names the first revision at which it was. bare are the networks where
// calico-ipam gives addresses to another main plugin: these have no endpoints.
func walk(t *testing.T, l *lab.Lab, from, to int64, bare ...string) {
	t.Helper()
	faults, err := faultsBetween(t.Context(), l, from, to, bare)
	if err != nil {
		t.Errorf("walk from revision %d to %d: %v", from, to, err)
	}
	for i, f := range faults {
		if i == maxFaults {
			t.Errorf("and %d more", len(faults)-maxFaults)
			break
		}
		t.Error(f)
	}
}

// faultsBetween lists what was wrong at the revisions.
func faultsBetween(ctx context.Context, l *lab.Lab, from, to int64, bare []string) ([]string, error) {
	var out []string
	var had map[string]bool // at the revision before
	err := eachRevision(ctx, l, from, to, func(revision int64, state map[string]model.Entry, changed []string) {
		if had != nil && !slices.ContainsFunc(changed, func(path string) bool { return concerns(state, path) }) {
			return
		}
		has := make(map[string]bool)
		for _, f := range faults(state, bare) {
			has[f] = true
			if !had[f] {
				out = append(out, fmt.Sprintf("revision %d: %s", revision, f))
			}
		}
		had = has
	})
	return out, err
}

// concerns reports whether a changed key has to do with addresses. Agents write
// about their own state all the time.
func concerns(state map[string]model.Entry, path string) bool {
	e, there := state[path]
	if !there {
		e.Key, _ = model.ParseKey(path)
	}
	switch e.Key.(type) {
	case model.StatusKey, model.LastStatusKey, model.WorkloadStatusKey:
		return e.Err != nil
	}
	return true
}

// eachRevision calls visit with what etcd held at each revision, and the keys
// that changed there. The first is read whole, and the others follow from the
// history that etcd keeps; at the end that must give what etcd holds.
func eachRevision(ctx context.Context, l *lab.Lab, from, to int64, visit func(int64, map[string]model.Entry, []string)) error {
	ctx, cancel := context.WithTimeout(ctx, walkPatience)
	defer cancel()
	state, err := stateAt(ctx, l, from)
	if err != nil {
		return err
	}
	visit(from, state, nil)
	if from < to {
		if err := follow(ctx, l, from+1, to, state, visit); err != nil {
			return err
		}
	}
	end, err := stateAt(ctx, l, to)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(revisions(end), revisions(state)); diff != "" {
		return fmt.Errorf("etcd at revision %d (-read whole +followed):\n%s", to, diff)
	}
	return nil
}

func stateAt(ctx context.Context, l *lab.Lab, revision int64) (map[string]model.Entry, error) {
	entries, _, err := l.DumpAt(ctx, revision)
	state := make(map[string]model.Entry, len(entries))
	for _, e := range entries {
		state[e.Path] = e
	}
	return state, err
}

func revisions(state map[string]model.Entry) map[string]int64 {
	out := make(map[string]int64, len(state))
	for path, e := range state {
		out[path] = e.Revision
	}
	return out
}

// follow applies to state what changed at each revision from one to another. It
// watches all of etcd: then each revision has an event.
func follow(ctx context.Context, l *lab.Lab, from, to int64, state map[string]model.Entry, visit func(int64, map[string]model.Entry, []string)) error {
	cfg := l.StoreConfig()
	if cfg.CAFile != "" || cfg.Username != "" {
		return errors.New("the history of a lab with TLS or users can't be read")
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: cfg.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	next := from
	var changed []string
	// Where there is no leader for a while it waits: none of the members is cut off from the others.
	for r := range client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := r.Err(); err != nil {
			return err
		}
		for _, e := range r.Events {
			switch revision := e.Kv.ModRevision; {
			case revision == next+1 && len(changed) > 0:
				visit(next, state, changed)
				next, changed = revision, nil
			case revision != next:
				return fmt.Errorf("revision %d follows %d", revision, next)
			}
			if next > to {
				return nil
			}
			changed = append(changed, string(e.Kv.Key))
			apply(state, e)
		}
		// A response holds whole revisions.
		if next == to && len(changed) > 0 {
			visit(next, state, changed)
			return nil
		}
	}
	return fmt.Errorf("the watch ended at revision %d: %w", next, context.Cause(ctx))
}

func apply(state map[string]model.Entry, e *clientv3.Event) {
	path := string(e.Kv.Key)
	if e.Type == clientv3.EventTypeDelete {
		delete(state, path)
		return
	}
	entry := model.Entry{Path: path, Revision: e.Kv.ModRevision, Created: e.Kv.CreateRevision}
	if entry.Key, entry.Err = model.ParseKey(path); entry.Err == nil {
		entry.Value, entry.Err = model.ParseValue(entry.Key, e.Kv.Value)
	}
	state[path] = entry
}

// TestWalkSeesFaults writes what is wrong, each thing at a revision of its own,
// and takes it away again.
func TestWalkSeesFaults(t *testing.T) {
	l := lab.ForTest(t, lab.Config{NoFsync: true, NoAgent: true, Hosts: []string{"a"}})
	_, from, err := l.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, c := range faultCases() {
		for _, undo := range []bool{false, true} {
			change := c.change
			if undo {
				change = undone(change)
			}
			revision, err := l.Etcd().Commit(t.Context(), change)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range c.want {
				if !undo {
					want = append(want, fmt.Sprintf("revision %d: %s", revision, text))
				}
			}
		}
	}
	_, to, err := l.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := faultsBetween(t.Context(), l, from, to, []string{"bare"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	walk(t, l, to, to) // nothing is wrong any more
}

// undone takes away what the change has put.
func undone(c model.Change) model.Change {
	var out model.Change
	for _, p := range c.Puts {
		out.Deletes = append(out.Deletes, p.Key)
	}
	return out
}

func sortedPaths(state map[string]model.Entry) []string {
	return slices.Sorted(maps.Keys(state))
}
