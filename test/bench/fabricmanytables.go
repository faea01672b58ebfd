// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
)

// mean has all in it, the agent's own audits too.
func mean(all []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(len(all))
}

func manyResult(runs []*many) result {
	total := otherHosts * blocksOfHost
	t := table{
		title: fmt.Sprintf("The agent among %d hosts of %d blocks each", otherHosts, blocksOfHost),
		note: "With VXLAN the hosts are in etcd alone, and each is a neighbour of the tunnel. With BGP one other host has all the blocks and advertises them; " +
			"with 500 sessions each host has a BGP speaker, as small as it can be, in another process, and says what it has. What is measured while nothing changes takes " + idleFor.String() + ", audits of the kernel included.",
		header: []string{"what"},
	}
	for _, m := range runs {
		t.header = append(t.header, m.name)
	}
	row := func(what string, of func(*many) string) {
		cells := []string{what}
		for _, m := range runs {
			cells = append(cells, of(m))
		}
		t.add(cells...)
	}
	var r result
	meet := func(what, want string, text func(*many) string, met func(*many) bool) {
		row(what, text)
		for _, m := range runs {
			r.goals = append(r.goals, goal{"many hosts, " + m.name + ": " + what, want, text(m), met(m)})
		}
	}
	meet(fmt.Sprintf("cold start: from exec until all %d routes are in the kernel", total), "≤ 5 s",
		func(m *many) string { return ms(m.cold) }, func(m *many) bool { return m.cold <= 5*time.Second })
	meet("peak memory", "≤ 300 MiB", func(m *many) string { return mib(m.peak) }, func(m *many) bool { return m.peak <= 300<<20 })
	meet("one more block, until its route is there: median", "≤ 100 ms",
		func(m *many) string { return ms(median(m.costs[total].add)) }, func(m *many) bool { return median(m.costs[total].add) <= 100*time.Millisecond })
	meet("CPU while nothing changes, of one processor", "0 (below 0.1 %)",
		func(m *many) string { return fmt.Sprintf("%.3f %%", 100*m.idle) }, func(m *many) bool { return m.idle < 0.001 })
	row("wakeups per second while nothing changes", func(m *many) string { return fmt.Sprintf("%.1f", m.woken) })

	grow := table{
		title:  "One block more, and its end, by the number of routes that are there",
		note:   fmt.Sprintf("%d of each, from the commit to a look at the kernel, every %v; CPU is the agent's, for both together; its mean has the audits of the kernel in it.", manyChanges, lookEvery),
		header: []string{"ways", "routes", "added: median", "p90", "removed: median", "p90", "CPU: median", "mean"},
	}
	for _, m := range runs {
		for _, size := range []int{100, 1000, total} {
			c := m.costs[size]
			grow.add(m.name, number(int64(size)), ms(median(c.add)), ms(percentile(c.add, 0.9)), ms(median(c.remove)), ms(percentile(c.remove, 0.9)), ms(median(c.cpu)), ms(mean(c.cpu)))
		}
		few, lots := median(m.costs[100].cpu), median(m.costs[total].cpu)
		r.goals = append(r.goals, goal{fmt.Sprintf("many hosts: CPU of one change among %d routes over that among 100, %s", total, m.name), "≤ 1.5", ratio(over(lots, few)), over(lots, few) <= 1.5})
	}
	r.tables = []table{t, grow}
	return r
}
