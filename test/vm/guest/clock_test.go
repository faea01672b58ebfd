// SPDX-License-Identifier: Apache-2.0

//go:build e2evm

package guest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/test/routing"
)

// jump sets the machine's clock forward or back.
func jump(t *testing.T, by time.Duration) {
	t.Helper()
	ts := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		t.Fatal(err)
	}
}

// The clock jumps by hours in both directions: no session ends, no route leaves,
// no host counts as dead, and pods talk on, old ones and new ones.
func TestClockJumps(t *testing.T) {
	r := routing.New(t, lab.Config{Hosts: []string{"a", "b"}})
	a, b := r.Host("a"), r.Host("b")
	pa, pb := a.Pod("pod-a"), b.Pod("pod-b")
	r.Reaches(pa, pb)
	r.Reaches(pb, pa)
	for _, h := range r.Hosts() {
		r.Established(h, 2)
	}
	routes := map[*lab.Host][]string{a: r.Routes(a), b: r.Routes(b)}
	flow := routing.StartTraffic(t, pa, pb, false)
	for i, by := range []time.Duration{3 * time.Hour, -3 * time.Hour} {
		jump(t, by)
		// Longer than the hold time of 9 s, by a clock that doesn't jump.
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
			for h, want := range routes {
				if got := r.Routes(h); !slices.Equal(got, want) {
					t.Errorf("after a jump by %v host %s has %q, before it had %q", by, h.Name(), got, want)
				}
			}
		}
		for _, h := range r.Hosts() {
			r.Counts(h, "calico_node_clock_jumps_total", routing.Exactly(float64(i+1))) // it looks now and then
		}
	}
	for _, h := range r.Hosts() {
		r.Says(h, "the clock jumped", "by=-")
		r.Established(h, 2)
		if log := r.Log(h); strings.Contains(log, "BGP session down") {
			t.Errorf("a session of host %s ended:\n%s", h.Name(), log)
		}
	}
	flow.StopWhole()
	late := b.Pod("pod-late")
	r.Reaches(pa, late)
}
