// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/lab"
)

// tally counts calls by verb and outcome.
type tally map[string]*count

// count is of calls of one verb with one outcome.
type count struct {
	calls, conflicts, roundTrips int
	mostConflicts                int
}

// note takes one call.
func (t *tally) note(verb string, reply lab.Reply, err error) {
	what := verb + " ok"
	if err != nil && codeOf(err) == 0 {
		what = verb + " killed"
	} else if err != nil {
		what = fmt.Sprintf("%s code %d", verb, codeOf(err))
	}
	if *t == nil {
		*t = make(tally)
	}
	c := (*t)[what]
	if c == nil {
		c = new(count)
		(*t)[what] = c
	}
	n := logged(reply.Stderr, "conflicts")
	c.calls++
	c.conflicts += n
	c.mostConflicts = max(c.mostConflicts, n)
	c.roundTrips += logged(reply.Stderr, "round_trips")
}

// logged is the last number of that name in a plugin's log, 0 if there is none.
func logged(log []byte, name string) int {
	text := string(log)
	i := strings.LastIndex(text, " "+name+"=")
	if i < 0 {
		return 0
	}
	var n int
	if _, err := fmt.Sscanf(text[i:], " "+name+"=%d", &n); err != nil {
		return 0
	}
	return n
}

func (t tally) conflicts() (n int) {
	for _, c := range t {
		n += c.conflicts
	}
	return n
}

// report logs the tally.
func (r *race) report() {
	r.Logf("%d ADDs on %d hosts", r.added.Load(), raceHosts)
	for _, what := range slices.Sorted(maps.Keys(r.tally)) {
		c := r.tally[what]
		r.Logf("%-12s %4d times: conflicts %.2f each, %d at most; round trips %.2f each", what, c.calls,
			float64(c.conflicts)/float64(c.calls), c.mostConflicts, float64(c.roundTrips)/float64(c.calls))
	}
}
