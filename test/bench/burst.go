// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/calico-go/calico/test/lab"
	"golang.org/x/sync/errgroup"
)

const (
	burstSize  = 100
	burstWidth = 10
)

// burst compares many ADDs, several at a time.
func burst(ctx context.Context, b *bench) ([]table, error) {
	field, err := b.newField(ctx)
	if err != nil {
		return nil, err
	}
	defer field.close()
	pods, err := field.namespaces(burstSize)
	if err != nil {
		return nil, err
	}

	t := table{
		title:  fmt.Sprintf("%d ADDs, %d at a time", burstSize, burstWidth),
		note:   "Three bursts each, taking turns; the median burst's throughput, all ADDs' percentiles.",
		header: []string{"plugin", "ADDs per second", "ratio", "median", "p99", "p99 / median"},
	}
	const rounds = 3
	took := make([][]time.Duration, len(field.contenders))
	runs := make([][]sample, len(field.contenders))
	for range rounds {
		for i, c := range field.contenders {
			one, adds, err := c.burst(ctx, pods)
			if err != nil {
				return nil, err
			}
			took[i], runs[i] = append(took[i], one), append(runs[i], adds...)
		}
	}
	for i, c := range field.contenders {
		rate := burstSize / median(took[i]).Seconds()
		mid, high := median(walls(runs[i])), percentile(walls(runs[i]), 0.99)
		t.add(c.name, fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.2f", float64(median(took[0]))/float64(median(took[i]))),
			ms(mid), ms(high), ratio(high, mid))
	}
	return []table{t}, nil
}

// burst adds one container per pod, then deletes all.
func (c *contender) burst(ctx context.Context, pods []lab.Namespace) (time.Duration, []sample, error) {
	runs := make([]sample, len(pods))
	c.next++
	each := func(verb string, done func(int, sample)) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(burstWidth)
		for i, pod := range pods {
			group.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				r, err := c.exec(c.host, verb, fmt.Sprintf("%s-b%d-%d", c.label(), c.next, i), pod.Path())
				done(i, r)
				return err
			})
		}
		return group.Wait()
	}
	begin := time.Now()
	if err := each("ADD", func(i int, r sample) { runs[i] = r }); err != nil {
		return 0, nil, err
	}
	took := time.Since(begin)
	return took, runs, each("DEL", func(int, sample) {})
}
