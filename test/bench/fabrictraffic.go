// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

const (
	fabricRounds = 60
	// trackOnly is the least that has the kernel track connections.
	trackOnly = "table inet t { chain forward { type filter hook forward priority 0; ct state established accept; }; }"
)

// lane is a pair of namespaces on two hosts.
type lane struct {
	name     string
	from, to lab.Namespace
	at       netip.Addr // of to
	over     []versus
	runs     map[string][]traffic
}

// versus is what a lane is compared with.
type versus struct {
	lane string
	goal bool
}

// fabricTraffic compares packets between pods of two hosts with those between
// the hosts themselves, and with what is wired by hand.
func fabricTraffic(ctx context.Context, b *bench) (_ result, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	const (
		own, ours, hand, tracked = "hosts' own namespaces", "pods", "pods by hand, no rules", "pods by hand, connection tracking alone"
		handHosts, ours2         = "VXLAN by hand, hosts' own namespaces, no rules", "VXLAN, pods"
		handVXLAN, trackedVXLAN  = "VXLAN by hand, pods by hand, no rules", "VXLAN by hand, pods by hand, connection tracking alone"
		besideVXLAN              = "VXLAN by hand, pods by hand, on the same hosts"
	)
	var lanes []*lane
	start := func(name string, noAgent bool, mode model.EncapMode) (*lab.Lab, error) {
		return lab.Start(ctx, lab.Config{
			Name: "bench-" + name, Hosts: []string{"a", "b"}, BinDir: b.bin, DataDir: filepath.Join(scratch, name), NoAgent: noAgent,
			Pools: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Pool: func(p *model.Pool) { p.VXLANMode = mode },
			Conf: func(_ string, plugin map[string]any) { plugin["ipam"] = map[string]any{"type": "calico-ipam"} },
		})
	}
	for _, c := range []struct {
		name  string
		mode  model.EncapMode
		lanes []string
	}{{"plain", model.EncapNever, []string{own, ours}}, {"vxlan", model.EncapAlways, []string{"", ours2}}} {
		l, err := start(c.name, false, c.mode)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		hosts := l.Hosts()
		var pods []*lab.Pod
		for _, h := range hosts {
			p, err := h.AddPod(ctx, "pod-"+h.Name(), lab.PodConfig{})
			if err != nil {
				return result{}, err
			}
			pods = append(pods, p)
		}
		if c.lanes[0] != "" {
			lanes = append(lanes, &lane{name: own, from: hosts[0].Namespace(), to: hosts[1].Namespace(), at: hosts[1].IPv4()})
		}
		lanes = append(lanes, &lane{name: c.lanes[1], from: pods[0].Namespace(), to: pods[1].Namespace(), at: pods[1].Addrs()[0]})
		if c.mode == model.EncapAlways {
			made, err := byHand(ctx, l, "on the same hosts", "")
			if err != nil {
				return result{}, err
			}
			lanes = append(lanes, made[2])
		}
	}
	for name, rules := range map[string]string{"no rules": "flush ruleset", "connection tracking alone": trackOnly} {
		l, err := start("hand-"+strings.Fields(name)[0], true, model.EncapNever)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		made, err := byHand(ctx, l, name, rules)
		if err != nil {
			return result{}, err
		}
		lanes = append(lanes, made...)
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return strings.Compare(a.name, b.name) })
	for _, l := range lanes {
		l.runs = map[string][]traffic{}
		switch l.name {
		case ours:
			l.over = []versus{{own, true}, {hand, false}, {tracked, false}}
		case hand:
			l.over = []versus{{own, false}}
		case ours2:
			l.over = []versus{{handHosts, false}, {handVXLAN, true}, {trackedVXLAN, false}, {besideVXLAN, true}}
		case handVXLAN:
			l.over = []versus{{handHosts, false}}
		}
		if _, err := untilAnswered(ctx, l.from, l.at); err != nil {
			return result{}, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	for range fabricRounds {
		for _, i := range rand.Perm(len(lanes)) {
			for _, k := range trafficKinds[:2] {
				if err := ctx.Err(); err != nil {
					return result{}, err
				}
				t, err := k.measure(lanes[i].from, lanes[i].to, lanes[i].at)
				if err != nil {
					return result{}, fmt.Errorf("%s: %s: %w", lanes[i].name, k.name, err)
				}
				lanes[i].runs[k.name] = append(lanes[i].runs[k.name], t)
			}
		}
	}
	return laneResult(lanes), nil
}

// byHand wires, on two hosts, a namespace behind a veth each, of MTU 1500, with
// plain routes, one of MTU 1450 for VXLAN, and a VXLAN device. Rules, if any, are nft's.
func byHand(ctx context.Context, l *lab.Lab, name, rules string) ([]*lane, error) {
	hosts := l.Hosts()
	ends := map[string]lab.Namespace{}
	for i, h := range hosts {
		n := i + 1
		script := fmt.Sprintf(`set -e
			sysctl -qw net.ipv4.ip_forward=1
			ip link add vx type vxlan id 99 dstport 4790 local %[1]s remote %[4]s dev eth0 nolearning noudpcsum
			ip link set vx address 02:00:00:00:00:0%[2]d mtu 1450 up
			ip addr add 10.9.9.%[2]d/24 dev vx
			ip neigh replace 10.9.9.%[3]d lladdr 02:00:00:00:00:0%[3]d dev vx nud permanent
			ip route add 10.8.%[3]d.2 via %[4]s
			ip route add 10.7.%[3]d.2 via 10.9.9.%[3]d dev vx onlink
			`, h.IPv4(), n, 3-n, hosts[1-i].IPv4())
		for _, w := range []struct {
			net, mtu int
		}{{8, 1500}, {7, 1450}} {
			ns, err := l.NewNamespace(fmt.Sprintf("hand-%s-%d", h.Name(), w.net))
			if err != nil {
				return nil, err
			}
			ends[fmt.Sprintf("%d %d", w.net, n)] = ns
			link := fmt.Sprintf("hand%d", w.net)
			script += fmt.Sprintf(`
			ip link add %[1]s mtu %[2]d type veth peer name eth0 mtu %[2]d netns %[3]s
			ip link set %[1]s up
			ip addr add 10.%[4]d.%[5]d.1/32 dev %[1]s
			ip route add 10.%[4]d.%[5]d.2 dev %[1]s
			nsenter --net=%[3]s sh -ec 'ip link set eth0 up; ip addr add 10.%[4]d.%[5]d.2/32 dev eth0; ip route add 10.%[4]d.%[5]d.1 dev eth0; ip route add default via 10.%[4]d.%[5]d.1'
			`, link, w.mtu, ns.Path(), w.net, n)
		}
		if rules != "" {
			if _, err := h.Exec(ctx, "nft", rules); err != nil {
				return nil, fmt.Errorf("host %s: %w", h.Name(), err)
			}
		}
		if _, err := h.Exec(ctx, "sh", "-c", strings.ReplaceAll(script, "\t", "")); err != nil {
			return nil, fmt.Errorf("host %s: %w", h.Name(), err)
		}
	}
	addr := netip.MustParseAddr
	return []*lane{
		{name: "pods by hand, " + name, from: ends["8 1"], to: ends["8 2"], at: addr("10.8.2.2")},
		{name: "VXLAN by hand, hosts' own namespaces, " + name, from: hosts[0].Namespace(), to: hosts[1].Namespace(), at: addr("10.9.9.2")},
		{name: "VXLAN by hand, pods by hand, " + name, from: ends["7 1"], to: ends["7 2"], at: addr("10.7.2.2")},
	}, nil
}

func laneResult(lanes []*lane) result {
	t := table{
		title: "Packets between two hosts",
		note: fmt.Sprintf("%d rounds, in a new order each, %v for each kind of traffic; both ends on one processor. What is wired by hand has the same MTU, veths and routes; without rules there is no connection tracking either, on the same hosts there are ours. "+
			"Figures are medians; ratios are the medians of the rounds' ratios.", fabricRounds, packetTime),
		header: []string{"traffic", "between", "rate", "over", "ratio of rates", "ratio per second of CPU"},
	}
	byName := map[string]*lane{}
	for _, l := range lanes {
		byName[l.name] = l
	}
	var r result
	for _, k := range trafficKinds[:2] {
		for _, l := range lanes {
			rate := k.text(median(each(l.runs[k.name], traffic.rate)))
			if len(l.over) == 0 {
				t.add(k.name, l.name, rate, "", "", "")
			}
			for _, o := range l.over {
				relative := func(of func(traffic) float64) float64 {
					var all []float64
					for i := range l.runs[k.name] {
						all = append(all, of(l.runs[k.name][i])/of(byName[o.lane].runs[k.name][i]))
					}
					return median(all)
				}
				rates := relative(traffic.rate)
				t.add(k.name, l.name, rate, o.lane, fmt.Sprintf("%.3f", rates), fmt.Sprintf("%.3f", relative(traffic.perCPU)))
				if o.goal && k.name == "TCP stream" {
					r.goals = append(r.goals, goal{"throughput between hosts: " + l.name + " over " + o.lane, "≥ 0.95", fmt.Sprintf("%.3f", rates), rates >= 0.95})
				}
			}
		}
	}
	r.tables = []table{t}
	return r
}
