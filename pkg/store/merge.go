// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// merger joins the events of several etcd watches into updates, one per revision. etcd orders the events of one watch,
// not those of several, and sends the events of one transaction to each watch apart. So an update waits until every
// watch has reached its revision.
type merger struct {
	// seen is, per watch, the revision up to which its events have all arrived;
	// where the stream breaks it resumes after that.
	seen []int64
	// pending are the entries that wait, by revision.
	pending map[int64][]model.Entry
	// delivered is the revision of the last update.
	delivered int64
}

func newMerger(watches int, revision int64) *merger {
	m := &merger{pending: make(map[int64][]model.Entry), delivered: revision}
	for range watches {
		m.seen = append(m.seen, revision)
	}
	return m
}

// event adds one event of a watch. It reports false if the watch was past that revision already, or its update was
// delivered: the server did not keep its order, and the caller must read everything again.
func (m *merger) event(watch int, revision int64, e model.Entry) bool {
	if revision <= m.seen[watch] || revision <= m.delivered {
		return false
	}
	m.pending[revision] = append(m.pending[revision], e)
	return true
}

// arrived notes that all events of a watch up to revision are in.
func (m *merger) arrived(watch int, revision int64) {
	m.seen[watch] = max(m.seen[watch], revision)
}

// rewind has the entries that wait come again, from another stream. A member doesn't tell one that begins after the latest
// revision how far it is: they would wait until something else is written.
func (m *merger) rewind() {
	for r := range m.pending {
		for i, seen := range m.seen {
			m.seen[i] = min(seen, r-1)
		}
	}
	clear(m.pending)
}

// behind reports whether there are entries that can't be delivered yet, or a watch has not come to the revision.
func (m *merger) behind(revision int64) bool { return len(m.pending) > 0 || m.least() < revision }

// least is the revision up to which the events of all watches have arrived.
func (m *merger) least() int64 { return slices.Min(m.seen) }

// ready removes and returns the updates that are complete, oldest first.
func (m *merger) ready() []model.Update {
	if len(m.pending) == 0 {
		return nil
	}
	upTo := m.least()
	var revisions []int64
	for r := range m.pending {
		if r <= upTo {
			revisions = append(revisions, r)
		}
	}
	slices.Sort(revisions)
	var updates []model.Update
	for _, r := range revisions {
		updates = append(updates, model.Update{Revision: r, Entries: m.pending[r]})
		delete(m.pending, r)
		m.delivered = r
	}
	return updates
}
