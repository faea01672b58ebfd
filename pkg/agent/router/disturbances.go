// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/plan"
)

const (
	// flapWindow is how long a link is remembered to have lost its carrier, and
	// flapLosses how often makes it one that flaps.
	flapWindow = time.Minute
	flapLosses = 3
	// leastJump is by how much a clock must be set to have jumped: what keeps it right
	// changes it by half a thousandth of the time that passes, at most.
	leastJump = time.Second
)

// problemFlaps is the kind of links that flap.
const problemFlaps = "flapping-link"

var errFlaps = errors.New("it loses its carrier again and again, three times in a minute or more, and with it what is on the wire; routes stay: look at its cable, and at what is at the other end")

// disturbances tell of what goes wrong around the agent: links that flap, and a clock that jumps.
type disturbances struct {
	losses  func(names []string) (map[string]uint32, error) // how often links have lost their carrier
	reports *reports
	metrics Metrics

	counts   map[string][]carrierCount
	flapping []string // links, sorted
	clock    time.Time
}

// carrierCount is how often a link had lost its carrier, at a time.
type carrierCount struct {
	at     time.Time
	losses uint32
}

// look says which of the host's own links flap, and which no longer do.
func (d *disturbances) look(links []plan.Link, now time.Time) {
	var names []string
	for _, l := range links {
		if len(l.Addrs) > 0 { // of others there may be hundreds, such as other runtimes' workloads
			names = append(names, l.Name)
		}
	}
	losses, err := d.losses(names)
	if !d.reports.ok("how often the host's links lose their carrier could not be read", err) {
		return
	}
	before := d.flapping
	d.flapping = d.count(losses, now)
	for _, name := range before {
		if !slices.Contains(d.flapping, name) {
			d.reports.say(problemFlaps, name, nil)
		}
	}
	for _, name := range d.flapping {
		d.reports.say(problemFlaps, name, errFlaps)
	}
	d.reports.done()
	d.metrics.problems.WithLabelValues(problemFlaps).Set(float64(len(d.flapping)))
}

// count takes in the counts of all links and returns those that flap, sorted.
func (d *disturbances) count(losses map[string]uint32, now time.Time) []string {
	maps.DeleteFunc(d.counts, func(name string, _ []carrierCount) bool { _, there := losses[name]; return !there })
	var flapping []string
	for name, n := range losses {
		counts := append(d.counts[name], carrierCount{now, n})
		if n < counts[0].losses { // another link of that name
			counts = counts[len(counts)-1:]
		}
		// The first is the last from before the window, so that it is looked back far enough.
		for len(counts) > 2 && now.Sub(counts[1].at) >= flapWindow {
			counts = counts[1:]
		}
		d.counts[name] = counts
		if n-counts[0].losses >= flapLosses {
			flapping = append(flapping, name)
		}
	}
	slices.Sort(flapping)
	return flapping
}

// lookAtClock says when the clock was set. Nothing goes by it: only times in the log
// and in etcd do.
func (d *disturbances) lookAtClock(now time.Time) {
	before := d.clock
	d.clock = now
	// Round takes the reading of CLOCK_MONOTONIC from a time.
	if by := clockJump(now.Round(0).Sub(before.Round(0)), now.Sub(before)); by != 0 {
		d.metrics.jumps.Inc()
		d.reports.log.Warn("the clock jumped; routes, sessions and leases go by one that doesn't", "by", by.Round(100*time.Millisecond))
	}
}

// clockJump is by how much the clock was set while it says that so much time has
// passed, and another that can't be set says how much it was; 0 = next to nothing.
func clockJump(said, passed time.Duration) time.Duration {
	by := said - passed
	if by.Abs() < max(leastJump, passed/1000) {
		return 0
	}
	return by
}
