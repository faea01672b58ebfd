// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/calico-go/calico/test/lab"
)

// contender is a plugin on a host of its own.
type contender struct {
	plugin
	host       lab.Namespace
	pod        lab.Namespace
	next       int // number of the next container
	adds, dels []sample
}

// cycle adds and deletes one container.
func (c *contender) cycle(keep bool) error {
	c.next++
	id := fmt.Sprintf("%s-%d", c.label(), c.next)
	add, err := c.exec(c.host, "ADD", id, c.pod.Path())
	if err != nil {
		return err
	}
	del, err := c.exec(c.host, "DEL", id, c.pod.Path())
	if err != nil {
		return err
	}
	if keep {
		c.adds, c.dels = append(c.adds, add), append(c.dels, del)
	}
	return nil
}

func walls(runs []sample) []time.Duration {
	return each(runs, func(r sample) time.Duration { return r.wall })
}
func cpus(runs []sample) []time.Duration {
	return each(runs, func(r sample) time.Duration { return r.cpu })
}
func rss(runs []sample) []int64 { return each(runs, func(r sample) int64 { return r.rss }) }

func each[R, T any](runs []R, of func(R) T) []T {
	var values []T
	for _, r := range runs {
		values = append(values, of(r))
	}
	return values
}

// verbs compares one ADD and one DEL at a time.
func verbs(ctx context.Context, b *bench) ([]table, error) {
	field, err := b.newField(ctx)
	if err != nil {
		return nil, err
	}
	defer field.close()

	for i := range b.count + 3 {
		// In a new order each time: the kernel still cleans up after one
		// contender's DEL while the next one's ADD runs.
		for _, at := range rand.Perm(len(field.contenders)) {
			c := field.contenders[at]
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := c.cycle(i >= 3); err != nil {
				return nil, err
			}
		}
	}

	peer := field.contenders[0]
	each := table{
		title:  "One ADD, one DEL",
		note:   fmt.Sprintf("%d each, taking turns. The ratio is to the first line's median. Memory is never less than that of the process that measures.", b.count),
		header: []string{"plugin", "ADD median", "ratio", "p99", "CPU", "memory", "DEL median", "ratio", "p99", "CPU", "memory"},
	}
	for _, c := range field.contenders {
		row := []string{c.name}
		for _, v := range [][2][]sample{{c.adds, peer.adds}, {c.dels, peer.dels}} {
			row = append(row, ms(median(walls(v[0]))), ratio(median(walls(v[0])), median(walls(v[1]))),
				ms(percentile(walls(v[0]), 0.99)), ms(median(cpus(v[0]))), mib(percentile(rss(v[0]), 1)))
		}
		each.add(row...)
	}

	goals := table{title: "Goals of one ADD, one DEL", header: []string{"what", "figure", "goal", ""}}
	goal := func(what string, c *contender, limit float64) {
		for _, v := range []struct {
			verb       string
			ours, peer []sample
		}{{"ADD", c.adds, peer.adds}, {"DEL", c.dels, peer.dels}} {
			r := float64(median(walls(v.ours))) / float64(median(walls(v.peer)))
			goals.add(append([]string{v.verb + " " + what}, verdict(fmt.Sprintf("%.2f", r), fmt.Sprintf("≤ %.2f", limit), r <= limit)...)...)
		}
	}
	plain, tls, gate := field.ours["plain"], field.ours["tls"], field.ours["gate"]
	goal("over "+peer.name, plain, 1.25)
	goal("over "+peer.name+", TLS", tls, 1.5)
	for _, v := range []struct {
		verb string
		runs []sample
	}{{"ADD", plain.adds}, {"DEL", plain.dels}} {
		cpu, mem := median(cpus(v.runs)), percentile(rss(v.runs), 1)
		goals.add(append([]string{v.verb + " CPU"}, verdict(ms(cpu), "≤ 25 ms", cpu <= 25*time.Millisecond)...)...)
		goals.add(append([]string{v.verb + " peak memory"}, verdict(mib(mem), "≤ 32 MiB", mem <= 32<<20)...)...)
	}
	extra := median(walls(gate.adds)) - median(walls(plain.adds))
	goals.add(append([]string{"ADD, the gate on top"}, verdict(ms(extra), "≤ 15 ms", extra <= 15*time.Millisecond)...)...)
	return []table{each, goals}, nil
}
