// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/calico-go/calico/pkg/lab"
)

// contender is a plugin on a host of its own.
type contender struct {
	plugin
	host       lab.Namespace
	pod        lab.Namespace
	next       int // number of the next container
	adds, dels []sample
	peaks      [2]int64 // of ADD and DEL, bytes
}

// call names a new container of this contender.
func (c *contender) call() call {
	c.next++
	return call{verb: "ADD", container: fmt.Sprintf("bench-%d", c.next), host: c.host, pod: c.pod}
}

// cycle adds and deletes one container.
func (c *contender) cycle() (add, del sample, err error) {
	call := c.call()
	if add, err = c.exec(call); err != nil {
		return add, del, err
	}
	call.verb = "DEL"
	del, err = c.exec(call)
	return add, del, err
}

// weigh does so for the memory it takes.
func (c *contender) weigh(by string) error {
	call := c.call()
	for i, verb := range []string{"ADD", "DEL"} {
		call.verb = verb
		peak, err := c.peak(call, by)
		if err != nil {
			return err
		}
		c.peaks[i] = max(c.peaks[i], peak)
	}
	return nil
}

const (
	warmups  = 3 // cycles that don't count
	weighing = 5 // cycles for memory
)

// verbs compares one ADD and one DEL at a time.
func verbs(ctx context.Context, b *bench) (_ result, err error) {
	field, err := b.newField(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, field.close()) }()

	for i := range warmups + b.count {
		// In a new order each time: the kernel still cleans up after one
		// contender's DEL while the next one's ADD runs.
		for _, at := range rand.Perm(len(field.contenders)) {
			c := field.contenders[at]
			if err := ctx.Err(); err != nil {
				return result{}, err
			}
			add, del, err := c.cycle()
			if err != nil {
				return result{}, err
			}
			if i >= warmups {
				c.adds, c.dels = append(c.adds, add), append(c.dels, del)
			}
		}
	}
	for range weighing {
		for _, c := range field.contenders {
			if err := c.weigh(b.peak); err != nil {
				return result{}, err
			}
		}
	}
	return field.verbs(b.count), nil
}

func (f *field) verbs(count int) result {
	var r result
	peer := f.contenders[0]
	plain, tls := f.ours["plain"], f.ours["tls"]
	for i, verb := range []string{"ADD", "DEL"} {
		runs := func(c *contender) []sample { return [][]sample{c.adds, c.dels}[i] }
		mid := func(c *contender) time.Duration { return median(walls(runs(c))) }
		least := func(c *contender) time.Duration { return percentile(walls(runs(c)), 0) }
		t := table{
			title: "One " + verb,
			note: fmt.Sprintf("%d of each, one at a time, the contenders in a new order each round. Ratios are to the first line. "+
				"Memory is the most of %d further calls.", count, weighing),
			header: []string{"plugin", "median", "ratio", "best", "ratio of the bests", "p99", "CPU", "peak memory", "round trips to etcd"},
		}
		for _, c := range f.contenders {
			trips := "-"
			if n := median(roundTrips(runs(c))); n > 0 {
				trips = number(n)
			}
			t.add(c.name, ms(mid(c)), ratio(over(mid(c), mid(peer))), ms(least(c)), ratio(over(least(c), least(peer))),
				ms(percentile(walls(runs(c)), 0.99)), ms(median(cpus(runs(c)))), mib(c.peaks[i]), trips)
		}
		r.tables = append(r.tables, t)

		plainOver, tlsOver := over(mid(plain), mid(peer)), over(mid(tls), mid(peer))
		cpu := median(cpus(runs(plain)))
		r.goals = append(r.goals,
			goal{verb + ", median, over " + peer.name, "≤ 1.30", ratio(plainOver), plainOver <= 1.3},
			goal{verb + " with TLS to etcd, likewise", "≤ 1.50", ratio(tlsOver), tlsOver <= 1.5},
			goal{verb + ", CPU, median", "≤ 15 ms", ms(cpu), cpu <= 15*time.Millisecond},
			goal{verb + ", peak memory", "≤ 24 MiB", mib(plain.peaks[i]), plain.peaks[i] <= 24<<20},
		)
	}
	return r
}
