// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"golang.org/x/sync/errgroup"
)

const (
	burstSize   = 100
	burstWidth  = 10
	burstRounds = 7
)

// bursts are what a contender did, round by round.
type bursts struct {
	took []time.Duration
	runs []sample
}

// burst compares many ADDs, several at a time.
func burst(ctx context.Context, b *bench) (_ result, err error) {
	field, err := b.newField(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, field.close()) }()
	pods, err := field.namespaces(burstSize)
	if err != nil {
		return result{}, err
	}
	all := make([]bursts, len(field.contenders))
	for round := range 1 + burstRounds {
		for _, i := range rand.Perm(len(field.contenders)) {
			took, runs, err := field.contenders[i].burst(ctx, pods)
			if err != nil {
				return result{}, err
			}
			if round > 0 { // the first warms up
				all[i].took, all[i].runs = append(all[i].took, took), append(all[i].runs, runs...)
			}
		}
	}
	return field.bursts(all), nil
}

func (f *field) bursts(all []bursts) result {
	t := table{
		title: fmt.Sprintf("%d ADDs, %d at a time", burstSize, burstWidth),
		note: fmt.Sprintf("%d bursts of each, in a new order each round. Throughput is that of the median round, and its ratio to the first line the median of the rounds' ratios; "+
			"percentiles and round trips are of all %d ADDs.", burstRounds, burstRounds*burstSize),
		header: []string{"plugin", "ADDs per second", "ratio", "median", "p99", "p99 / median", "round trips, median", "at most", "conflicts"},
	}
	var r result
	for i, c := range f.contenders {
		rate := burstSize / median(all[i].took).Seconds()
		relative := make([]float64, burstRounds)
		for n := range relative {
			relative[n] = over(all[0].took[n], all[i].took[n])
		}
		mid, high := median(walls(all[i].runs)), percentile(walls(all[i].runs), 0.99)
		trips, most, conflicts := "-", "-", "-"
		if n := roundTrips(all[i].runs); percentile(n, 1) > 0 {
			var lost int64
			for _, s := range all[i].runs {
				lost += s.asked.conflicts
			}
			trips, most, conflicts = number(median(n)), number(percentile(n, 1)), number(lost)
		}
		t.add(c.name, fmt.Sprintf("%.0f", rate), ratio(median(relative)), ms(mid), ms(high), ratio(over(high, mid)), trips, most, conflicts)
		if c == f.ours["plain"] {
			through := median(relative)
			r.goals = append(r.goals, goal{t.title + ": throughput over " + f.contenders[0].name, "≥ 0.70", ratio(through), through >= 0.7})
		}
	}
	r.tables = []table{t}
	return r
}

// burst adds one container per pod, then deletes all.
func (c *contender) burst(ctx context.Context, pods []lab.Namespace) (time.Duration, []sample, error) {
	calls := make([]call, len(pods))
	for i := range calls {
		calls[i] = c.call()
		calls[i].pod = pods[i]
	}
	runs := make([]sample, len(pods))
	all := func(verb string, runs []sample) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(burstWidth)
		for i, one := range calls {
			one.verb = verb
			group.Go(func() (err error) {
				if err = ctx.Err(); err == nil {
					runs[i], err = c.exec(one)
				}
				return err
			})
		}
		return group.Wait()
	}
	begin := time.Now()
	if err := all("ADD", runs); err != nil {
		return 0, nil, err
	}
	took := time.Since(begin)
	return took, runs, all("DEL", make([]sample, len(pods)))
}
