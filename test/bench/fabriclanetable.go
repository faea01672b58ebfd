// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// series is what each lane is measured for, once a round.
type series struct {
	name string
	text func(rate float64) string
	goal string // what it says before the lanes; "" = there is none
}

// laneTable is lanes side by side, series by series.
type laneTable struct {
	title, note string
	first       string // header of the series
	series      []series
	last        string // header of a column more
	// lastOf is what is in it; over is nil where the lane is compared with nothing.
	lastOf func(s series, l, over *lane) string
}

func (t laneTable) result(lanes []*lane) result {
	out := table{title: t.title, note: t.note, header: []string{t.first, "between", "rate", "over", "ratio of rates", t.last}}
	byName := map[string]*lane{}
	for _, l := range lanes {
		byName[l.name] = l
	}
	var r result
	for _, s := range t.series {
		for _, l := range lanes {
			rate := s.text(median(each(l.runs[s.name], traffic.rate)))
			if len(l.over) == 0 {
				out.add(s.name, l.name, rate, "", "", t.lastOf(s, l, nil))
			}
			for _, o := range l.over {
				over := byName[o.lane]
				rates := l.relative(over, s, traffic.rate)
				got := fmt.Sprintf("%.3f", rates)
				out.add(s.name, l.name, rate, o.lane, got, t.lastOf(s, l, over))
				if o.goal && s.goal != "" {
					r.goals = append(r.goals, goal{s.goal + l.name + " over " + o.lane, "≥ 0.95", got, rates >= 0.95})
				}
			}
		}
	}
	r.tables = []table{out}
	return r
}

// relative is the median of the rounds' ratios.
func (l *lane) relative(over *lane, s series, of func(traffic) float64) float64 {
	var all []float64
	for i, t := range l.runs[s.name] {
		all = append(all, of(t)/of(over.runs[s.name][i]))
	}
	return median(all)
}
