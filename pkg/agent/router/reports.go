// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// settling is how long a problem of the plan must last to be reported: BGP and etcd show that an address was borrowed or given back at
// different moments.
const settling = 2 * time.Second

// reports reports what is wrong with the routes to other hosts: in the log, each thing once, and in the ledger of problems.
type reports struct {
	log    *slog.Logger
	ledger *problems.Ledger

	told   map[plan.ProblemID]string // reported reasons of the plan's problems
	due    time.Time                 // when to look at them again; zero = nothing changed
	failed map[string]*failure       // by the message logged for it

	// lines were logged at once; of more problems only the last is named.
	lines, more int
	last        string
}

// failure is the state of one operation that is repeated.
type failure struct {
	passing problems.Passing
	logged  string
}

func newReports(log *slog.Logger, ledger *problems.Ledger) *reports {
	return &reports{log: log, ledger: ledger, told: map[plan.ProblemID]string{}, failed: map[string]*failure{}}
}

// ok logs the result of an operation when it changes, and reports whether it succeeded.
func (s *reports) ok(message string, err error) bool {
	f := s.failed[message]
	if f == nil {
		f = &failure{}
		s.failed[message] = f
	}
	if f.passing.Hide(err, time.Now()) {
		s.log.Debug(message, "err", err)
		return false
	}
	if text := problems.Reason(err); text != f.logged {
		if err == nil {
			s.log.Info("routes to other hosts: in order again", "was", f.logged)
		} else {
			s.log.Error(message, "err", err)
		}
		f.logged = text
	}
	return err == nil
}

// changed schedules a look at the plan's problems, after they have settled.
func (s *reports) changed(c plan.Changes, now time.Time) {
	if len(c.Problems) > 0 && s.due.IsZero() {
		s.due = now.Add(settling)
	}
}

// tell reports the plan's present problems, if they have settled.
func (s *reports) tell(found map[plan.ProblemID]plan.Problem, now time.Time) {
	if s.due.IsZero() || now.Before(s.due) {
		return
	}
	s.due = time.Time{}
	ids := maps.Clone(found)
	for id := range s.told {
		ids[id] = found[id]
	}
	for _, id := range slices.SortedFunc(maps.Keys(ids), func(a, b plan.ProblemID) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject))
	}) {
		reason := ids[id].Reason
		if s.told[id] == reason || id.Kind == plan.BadValue && !OnlyRouter(id.Subject) {
			continue // the rest of the agent reports on what it reads itself
		}
		if s.told[id] = reason; reason == "" {
			delete(s.told, id)
			s.say(string(id.Kind), id.Subject, nil)
		} else {
			s.say(string(id.Kind), id.Subject, errors.New(reason))
		}
	}
	s.done()
}

// say reports a problem, or with nil that it is gone.
func (s *reports) say(kind, subject string, err error) {
	before, after := s.ledger.Note(kind, subject, err)
	if before == after {
		return
	}
	if s.lines++; s.lines > problems.MostSaid {
		s.more, s.last = s.more+1, fmt.Sprintf("%s %s", kind, subject)
		return
	}
	if after == "" {
		s.log.Info("routes to other hosts are in order again", "kind", kind, "subject", subject)
	} else {
		s.log.Warn("routes to other hosts are not in order", "kind", kind, "subject", subject, "reason", after)
	}
}

// done ends a group of reports.
func (s *reports) done() {
	if s.more > 0 {
		s.log.Warn("routes to other hosts: more changed than is logged, see /debug/invalid", "more", s.more, "last", s.last)
	}
	s.lines, s.more = 0, 0
}

// OnlyRouterPrefixes are the watched prefixes that only the router reads.
func OnlyRouterPrefixes() []string {
	return []string{model.BGPPrefix(), model.BlockPrefix(false), model.BlockPrefix(true), model.StatusPrefix("")}
}

// OnlyRouter reports whether a path has one of OnlyRouterPrefixes.
func OnlyRouter(path string) bool {
	return slices.ContainsFunc(OnlyRouterPrefixes(), func(p string) bool { return strings.HasPrefix(path, p) })
}
