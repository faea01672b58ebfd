// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	wireRounds = 20
	wireTime   = time.Second // of one flow
	// The uplink of each host sends at wireRate. It takes wireBurst at once after a rest: a smaller bucket than the
	// largest packet has packets cut. wireQueue holds all that a connection has in flight, so that nothing is dropped.
	wireRate  = "10gbit"
	wireBurst = "256kb"
	wireQueue = "64mb"
)

// fabricWire compares what a stream between pods of two hosts gets of a wire of 10 Gbit/s with what the hosts themselves
// get, and with pods behind a VXLAN device that is wired by hand.
func fabricWire(ctx context.Context, b *bench) (_ result, err error) {
	f, err := b.newFabric(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	for range min(b.count, wireRounds) {
		for _, i := range rand.Perm(len(f.lanes)) {
			if err := ctx.Err(); err != nil {
				return result{}, err
			}
			l := f.lanes[i]
			k := trafficKind{client: pour, server: drain}
			t, err := k.measure(course{l.from, l.to, l.at, wireTime, free})
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", l.name, err)
			}
			l.runs = append(l.runs, t)
		}
	}
	t := table{
		title: "Streams between two hosts on a wire of 10 Gbit/s",
		note: fmt.Sprintf("%d rounds, in a new order each, %v for each TCP stream (%s). What is wired by hand has no rules. "+
			"Figures are medians; ratios are the medians of the rounds' ratios.", min(b.count, wireRounds), wireTime, congestionControl),
		header: []string{"between", "rate", "over", "ratio"},
	}
	var r result
	for _, l := range f.lanes {
		rate := gigabits(median(each(l.runs, traffic.rate)))
		if l.over == nil {
			t.add(l.name, rate, "", "")
			continue
		}
		var ratios []float64
		for i, run := range l.runs {
			ratios = append(ratios, run.rate()/l.over.runs[i].rate())
		}
		got := median(ratios)
		t.add(l.name, rate, l.over.name, fmt.Sprintf("%.3f", got))
		r.goals = append(r.goals, goal{"stream between hosts on 10 Gbit/s: " + l.name + " over " + l.over.name, "≥ 0.95", fmt.Sprintf("%.3f", got), got >= 0.95})
	}
	r.tables = []table{t}
	return r, nil
}
