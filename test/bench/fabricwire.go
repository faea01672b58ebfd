// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
)

const (
	wireRounds = 20
	wireTime   = time.Second // of one flow
	// wireBurst is what a wire that was at rest takes at once: four of the
	// largest packets, since a smaller bucket than one has them cut.
	wireBurst = "256kb"
	// wireQueue holds all that a connection has under way, or more: packets
	// wait, as in a card's queue, and none is dropped.
	wireQueue = "64mb"
)

// wireRate is the rate of each host's uplink, each way.
type wireRate struct {
	gigabits int
	goal     bool
}

func (w wireRate) String() string { return fmt.Sprintf("%d Gbit/s", w.gigabits) }

// fabricWire compares what a stream between pods of two hosts gets of a wire
// with a rate, as networks have, with what hosts themselves get of it, and what
// is wired by hand. Nothing is pinned to a processor.
func fabricWire(ctx context.Context, b *bench) (_ result, err error) {
	f, err := b.newFabric(ctx, map[string]string{"no rules": "flush ruleset"})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	err = f.choose(ctx, []comparison{
		{hostLane, nil},
		{podLane, []versus{{hostLane, true}, {handLane, false}}},
		{handLane, []versus{{hostLane, false}}},
		{handVXLAN, nil},
		{vxlanLane, []versus{{handVXLAN, true}, {handVXLANBeside, false}}},
		{handVXLANBeside, []versus{{handVXLAN, false}}},
	})
	if err != nil {
		return result{}, err
	}
	var rest []float64
	var all []series
	rounds := min(b.count, wireRounds)
	for _, w := range []wireRate{{10, true}, {25, false}} {
		s := series{name: w.String(), text: gigabits}
		if w.goal {
			s.goal = fmt.Sprintf("throughput between hosts on a wire of %s: ", w)
		}
		all = append(all, s)
		if err := f.limit(ctx, w); err != nil {
			return result{}, err
		}
		for range rounds {
			if err := f.round(ctx, func(l *lane) error { return l.stream(s) }); err != nil {
				return result{}, err
			}
			atRest, err := busyFor(ctx, wireTime)
			if err != nil {
				return result{}, err
			}
			rest = append(rest, atRest)
		}
	}
	return laneTable{
		title: "Streams between two hosts on a wire with a rate",
		note: fmt.Sprintf("%d rounds, in a new order each, %v for each stream, its start included: TCP with %s, both ends free to run on any processor. Each host's uplink sends at the rate that is named first, headers counted (tbf, burst %s). "+
			"What is wired by hand has the same MTU, veths and routes; without rules there is no connection tracking either, on the same hosts there are ours. Processors busy are the whole machine's, of %d, which here are both hosts', "+
			"their wire's and everybody else's: without any stream %.2f of them are. Headers leave a stream 0.956 of a wire's rate, in VXLAN 0.923: where one stays well below, a processor is the limit, not the wire. Figures are medians; ratios are the medians of the rounds' ratios.",
			rounds, wireTime, congestionControl, wireBurst, runtime.NumCPU(), median(rest)),
		first:  "wire",
		series: all,
		last:   "processors busy",
		lastOf: func(s series, l, _ *lane) string {
			return ratio(median(each(l.runs[s.name], func(t traffic) float64 { return t.machine })))
		},
	}.result(f.lanes), nil
}

// limit has each host send at the rate.
func (f *fabric) limit(ctx context.Context, w wireRate) error {
	command := fmt.Sprintf("qdisc replace dev eth0 root tbf rate %dgbit burst %s limit %s", w.gigabits, wireBurst, wireQueue)
	for _, l := range f.labs {
		for _, h := range l.Hosts() {
			if _, err := h.Exec(ctx, "tc", strings.Fields(command)...); err != nil {
				return fmt.Errorf("host %s: %w", h.Name(), err)
			}
		}
	}
	return nil
}

// stream measures one, and what the machine does meanwhile.
func (l *lane) stream(s series) error {
	before, err := lookAtMachine()
	if err != nil {
		return err
	}
	k := trafficKind{name: "TCP stream", client: pour(congestionControl), server: drain}
	t, err := k.measure(course{l.from, l.to, l.at, wireTime, free})
	if err != nil {
		return err
	}
	after, err := lookAtMachine()
	if err != nil {
		return err
	}
	t.machine = before.all(after)
	l.runs[s.name] = append(l.runs[s.name], t)
	return nil
}

// busyFor is how many processors are busy while nothing is measured.
func busyFor(ctx context.Context, d time.Duration) (float64, error) {
	before, err := lookAtMachine()
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(d):
	}
	after, err := lookAtMachine()
	return before.all(after), err
}
