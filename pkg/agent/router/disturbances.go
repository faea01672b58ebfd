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
	// flapWindow is how long the loss of a link's carrier counts, and flapLosses how many losses make a link flapping.
	flapWindow = time.Minute
	flapLosses = 3
	// leastJump is the least change of the clock that counts as a jump: time synchronization adjusts it by at most half a thousandth of the
	// time that passes.
	leastJump = time.Second
)

// problemFlaps is the kind of problem of flapping links.
const problemFlaps = "flapping-link"

var errFlaps = errors.New("it loses its carrier again and again, three times in a minute or more, and with it what is on the wire; routes stay: look at its cable, and at what is at the other end")

// disturbances reports trouble around the agent: links that flap, and a clock that jumps.
type disturbances struct {
	losses  func(names []string) (map[string]uint32, error) // how often links have lost their carrier
	reports *reports
	metrics Metrics

	counts   map[string][]carrierCount
	flapping []string // links, sorted
	clock    time.Time
}

// carrierCount is how often a link had lost its carrier by a time.
type carrierCount struct {
	at     time.Time
	losses uint32
}

// look reports which of the host's own links flap, and which no longer do.
func (d *disturbances) look(links []plan.Link, now time.Time) {
	var names []string
	for _, l := range links {
		if len(l.Addrs) > 0 { // there may be hundreds of others, such as other runtimes' workloads
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

// count takes in the counts of all links and returns the names of those that flap, sorted.
func (d *disturbances) count(losses map[string]uint32, now time.Time) []string {
	maps.DeleteFunc(d.counts, func(name string, _ []carrierCount) bool { _, there := losses[name]; return !there })
	var flapping []string
	for name, n := range losses {
		counts := append(d.counts[name], carrierCount{now, n})
		if n < counts[0].losses { // another link with that name
			counts = counts[len(counts)-1:]
		}
		// The first count kept is the last one before the window, so that the whole window is covered.
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

// lookAtClock logs when the clock was set. Only times in the log and in etcd depend on it.
func (d *disturbances) lookAtClock(now time.Time) {
	before := d.clock
	d.clock = now
	// Round strips a time of its reading of CLOCK_MONOTONIC.
	if by := clockJump(now.Round(0).Sub(before.Round(0)), now.Sub(before)); by != 0 {
		d.metrics.jumps.Inc()
		d.reports.log.Warn("the clock jumped; routes, sessions and leases go by one that doesn't", "by", by.Round(100*time.Millisecond))
	}
}

// clockJump returns by how much the clock was set, given the time that passed according to it and to a clock that can't be set; 0 = next to
// nothing.
func clockJump(said, passed time.Duration) time.Duration {
	by := said - passed
	if by.Abs() < max(leastJump, passed/1000) {
		return 0
	}
	return by
}
