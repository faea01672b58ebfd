// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// trackOnly is the least that has the kernel track connections.
const trackOnly = "table inet t { chain forward { type filter hook forward priority 0; ct state established accept; }; }"

// fabricTraffic compares packets between pods of two hosts with those between
// the hosts themselves, and with what is wired by hand, by what they cost: the
// wire has no limit, and both ends share one processor.
func fabricTraffic(ctx context.Context, b *bench) (_ result, err error) {
	f, err := b.newFabric(ctx, map[string]string{"no rules": "flush ruleset", "connection tracking alone": trackOnly})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	err = f.choose(ctx, []comparison{
		{hostLane, nil},
		{podLane, []versus{{hostLane, true}, {handLane, false}, {trackedLane, false}}},
		{handLane, []versus{{hostLane, false}}},
		{trackedLane, nil},
		{handVXLANHosts, nil},
		{trackedVXLANHosts, nil},
		{vxlanLane, []versus{{handVXLANHosts, false}, {handVXLAN, true}, {trackedVXLAN, false}, {handVXLANBeside, true}}},
		{handVXLAN, []versus{{handVXLANHosts, false}}},
		{trackedVXLAN, nil},
		{handVXLANBeside, nil},
	})
	if err != nil {
		return result{}, err
	}
	kinds := trafficKinds[:3]
	for range b.count {
		for _, k := range kinds {
			err := f.round(ctx, func(l *lane) error {
				t, err := k.measure(course{l.from, l.to, l.at, k.time, pinned})
				l.runs[k.name] = append(l.runs[k.name], t)
				return err
			})
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", k.name, err)
			}
		}
	}
	t := laneTable{
		title: "Packets between two hosts",
		note: fmt.Sprintf("%d rounds, in each the ways in a new order for one kind of traffic after the other, %v for requests, %v for a stream; both ends on one processor. What is wired by hand has the same MTU, veths and routes; without rules there is no connection tracking either, on the same hosts there are ours. "+
			"Streams go by the machine's own congestion control, and by %s. Figures are medians; ratios are the medians of the rounds' ratios.", b.count, packetTime, streamTime, congestionControl),
		first: "traffic",
		last:  "ratio per second of CPU",
		lastOf: func(s series, l, over *lane) string {
			if over == nil {
				return ""
			}
			return fmt.Sprintf("%.3f", l.relative(over, s, traffic.perCPU))
		},
	}
	for _, k := range kinds {
		s := series{name: k.name, text: k.text}
		if strings.HasPrefix(k.name, "TCP stream") {
			s.goal = "throughput between hosts, " + k.name + ": "
		}
		t.series = append(t.series, s)
	}
	return t.result(f.lanes), nil
}
