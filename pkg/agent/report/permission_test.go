// SPDX-License-Identifier: Apache-2.0

package report

import (
	"log/slog"
	"testing"

	"github.com/calico-go/calico/pkg/daemon/health"
)

// TestPermit: the host's status is written as soon as it may be, by what is known of
// what is there, and never by what is known to be over.
func TestPermit(t *testing.T) {
	r := New(slog.New(slog.DiscardHandler), nil, "a", health.New())
	asked := 0
	r.Ask(func() { asked++ }, nil)
	steps := []struct {
		what   string
		do     func()
		may    Permission // after it, zero revision and false = nothing
		ok     bool
		nudged bool
	}{
		{"nothing is known", func() {}, Permission{}, false, false},
		{"nothing is there", func() { r.Permit(Permission{}, 5, true) }, Permission{}, true, true},
		{"the same again", func() { r.Permit(Permission{}, 6, true) }, Permission{}, true, false},
		{"it is written", func() { r.written(Permission{}, 8, 77) }, Permission{Revision: 8}, true, false},
		{"what was known before is over", func() { r.Permit(Permission{}, 7, true) }, Permission{Revision: 8}, true, false},
		{"the next report will do", func() { r.Permit(Permission{Revision: 8}, 8, false) }, Permission{Revision: 8}, true, false},
		{"somebody else wrote", func() { r.overtaken(Permission{Revision: 8}, 12) }, Permission{}, false, false},
		{"that wasn't heard yet", func() { r.Permit(Permission{Revision: 8}, 11, false) }, Permission{}, false, false},
		{"now it was, and a report is due", func() { r.Permit(Permission{Revision: 12}, 12, false) }, Permission{Revision: 12}, true, true},
		{"somebody deleted it", func() { r.overtaken(Permission{Revision: 12}, 0) }, Permission{}, false, false},
		{"that wasn't heard yet either", func() { r.Permit(Permission{Revision: 12}, 12, false) }, Permission{}, false, false},
		{"etcd is another", func() { r.Forget(1) }, Permission{}, false, false},
		{"what was judged before is over", func() { r.Permit(Permission{Revision: 12}, 12, true) }, Permission{}, false, false},
		{"and what is written by that", func() { r.overtaken(Permission{Revision: 12}, 20) }, Permission{}, false, false},
		{"its revisions are few", func() { r.Permit(Permission{2, 0, 1}, 3, false) }, Permission{2, 0, 1}, true, true},
		{"another was permitted while one was written", func() { r.overtaken(Permission{1, 0, 1}, 2) }, Permission{2, 0, 1}, true, true},
		{"nor is the same of the other etcd this one's", func() { r.overtaken(Permission{Revision: 2}, 20) }, Permission{2, 0, 1}, true, true},
		{"which was not replaced", func() { r.written(Permission{Revision: 2}, 21, 77) }, Permission{2, 0, 1}, true, false},
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
	if alive, wrote := r.Standing(); asked != 2 || alive != 77 || wrote != 21 {
		t.Errorf("asked %d times; lease %d, revision %d", asked, alive, wrote)
	}
}
