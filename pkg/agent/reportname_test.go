// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"testing"

	"github.com/calico-go/calico/pkg/agent/health"
)

// TestPermit: the host's status is written as soon as it may be, by what is known of
// what is there, and never by what is known to be over.
func TestPermit(t *testing.T) {
	r := newReporter(slog.New(slog.DiscardHandler), nil, "a", health.New())
	asked := 0
	r.ask(func() { asked++ })
	steps := []struct {
		what   string
		do     func()
		may    permission // after it, zero revision and false = nothing
		ok     bool
		nudged bool
	}{
		{"nothing is known", func() {}, permission{}, false, false},
		{"nothing is there", func() { r.permit(permission{}, 5, true) }, permission{}, true, true},
		{"the same again", func() { r.permit(permission{}, 6, true) }, permission{}, true, false},
		{"it is written", func() { r.written(permission{}, 8, 77) }, permission{revision: 8}, true, false},
		{"what was known before is over", func() { r.permit(permission{}, 7, true) }, permission{revision: 8}, true, false},
		{"the next report will do", func() { r.permit(permission{revision: 8}, 8, false) }, permission{revision: 8}, true, false},
		{"somebody else wrote", func() { r.overtaken(permission{revision: 8}, 12) }, permission{}, false, false},
		{"that wasn't heard yet", func() { r.permit(permission{revision: 8}, 11, false) }, permission{}, false, false},
		{"now it was, and a report is due", func() { r.permit(permission{revision: 12}, 12, false) }, permission{revision: 12}, true, true},
		{"somebody deleted it", func() { r.overtaken(permission{revision: 12}, 0) }, permission{}, false, false},
		{"that wasn't heard yet either", func() { r.permit(permission{revision: 12}, 12, false) }, permission{}, false, false},
		{"etcd is another", func() { r.forget(1) }, permission{}, false, false},
		{"what was judged before is over", func() { r.permit(permission{revision: 12}, 12, true) }, permission{}, false, false},
		{"and what is written by that", func() { r.overtaken(permission{revision: 12}, 20) }, permission{}, false, false},
		{"its revisions are few", func() { r.permit(permission{2, 0, 1}, 3, false) }, permission{2, 0, 1}, true, true},
		{"another was permitted while one was written", func() { r.overtaken(permission{1, 0, 1}, 2) }, permission{2, 0, 1}, true, true},
		{"nor is the same of the other etcd this one's", func() { r.overtaken(permission{revision: 2}, 20) }, permission{2, 0, 1}, true, true},
		{"which was not replaced", func() { r.written(permission{revision: 2}, 21, 77) }, permission{2, 0, 1}, true, false},
	}
	for _, s := range steps {
		s.do()
		nudged := false
		select {
		case <-r.changed:
			nudged = true
		default:
		}
		if may, _, ok := r.permitted(); may != s.may || ok != s.ok || nudged != s.nudged {
			t.Errorf("%s: %+v, %t, nudged %t; want %+v, %t, %t", s.what, may, ok, nudged, s.may, s.ok, s.nudged)
		}
	}
	if alive, wrote := r.standing(); asked != 2 || alive != 77 || wrote != 21 {
		t.Errorf("asked %d times; lease %d, revision %d", asked, alive, wrote)
	}
}
