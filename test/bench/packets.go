// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

const (
	packetEndpoints = 1000
	packetRounds    = 200
)

// road is a host with two pods, between which packets are counted.
type road struct {
	name     string
	policies int    // that apply to the host's other endpoints
	other    string // what there is instead of our table; "" = ours
	nft      string // the script that makes it
	host     *lab.Host
	pods     [2]*lab.Pod
	runs     map[string][]traffic // by kind, one for each round
}

// packets compares the traffic between two pods of hosts that differ in how
// many policies there are for their other endpoints, and of one without rules.
func packets(ctx context.Context, b *bench) (_ result, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	roads := []*road{
		{name: "plain", other: "nothing: no table", nft: "flush ruleset"},
		{name: "one", policies: 1}, {name: "many", policies: 1000},
		{name: "tracked", other: "connection tracking alone", nft: "flush ruleset; table inet t { chain forward { type filter hook forward priority 0; ct state established accept; }; }"},
	}
	var names []string
	for _, r := range roads {
		names = append(names, r.name)
	}
	l, err := lab.Start(ctx, lab.Config{Name: "bench-packets", Hosts: names, BinDir: b.bin, DataDir: scratch, NoAgent: true})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, r := range roads {
		if err := r.build(ctx, l); err != nil {
			return result{}, fmt.Errorf("host %s: %w", r.name, err)
		}
	}
	for range packetRounds {
		for _, k := range trafficKinds {
			for _, i := range rand.Perm(len(roads)) {
				if err := ctx.Err(); err != nil {
					return result{}, err
				}
				if err := roads[i].drive(k); err != nil {
					return result{}, fmt.Errorf("host %s: %s: %w", roads[i].name, k.name, err)
				}
			}
		}
	}
	return packetResult(roads), nil
}

// build fills the host with endpoints and policies for them, and adds the pods.
func (r *road) build(ctx context.Context, l *lab.Lab) (err error) {
	r.runs = map[string][]traffic{}
	if r.host, err = l.FindHost(r.name); err != nil {
		return err
	}
	etcd, err := l.OpenEtcd()
	if err != nil {
		return err
	}
	if r.policies > 0 {
		ends, err := l.NewNamespace(r.name + "-ends")
		if err != nil {
			return err
		}
		s := &scale{lab: l, host: r.host, pods: ends}
		var puts []model.Put
		for i := range r.policies {
			puts = append(puts, r.policy(i))
		}
		for i := range packetEndpoints {
			if err := s.link(i); err != nil {
				return err
			}
			puts = append(puts, r.endpoint(s, i))
		}
		for len(puts) > 0 {
			n := min(100, len(puts))
			if _, err := etcd.Commit(ctx, model.Change{Puts: puts[:n]}); err != nil {
				return err
			}
			puts = puts[n:]
		}
	}
	if err := r.host.Agent().Start(ctx); err != nil {
		return err
	}
	for i := range r.pods {
		if r.pods[i], err = r.host.AddPod(ctx, fmt.Sprintf("%s-%d", r.name, i), lab.PodConfig{}); err != nil {
			return err
		}
	}
	if r.other == "" {
		agent, err := r.host.Agent().Process()
		if err != nil {
			return err
		}
		return settle(ctx, agent.PID)
	}
	// The routes stay, the rules go, and with them connection tracking.
	if err := r.host.Agent().Stop(); err != nil {
		return err
	}
	_, err = r.host.Exec(ctx, "nft", r.nft)
	return err
}

// label is that of the host's endpoints alone: policies are the whole cluster's.
func (r *road) label() string { return "app-" + r.name }

func (r *road) policy(i int) model.Put {
	own := fmt.Sprintf("%s == %q", r.label(), fmt.Sprint(i))
	tcp := model.Match{Protocol: model.ProtocolTCP, SrcSelector: own, HasSrcSelector: true, DstPorts: []model.Port{{Min: 80, Max: 80}}}
	return model.Put{
		Key: model.PolicyKey{Tier: "default", Policy: fmt.Sprintf("%s-%d", r.name, i)},
		Value: model.Policy{Selector: own, Inbound: []model.Rule{
			{Action: model.ActionAllow, Match: tcp},
			{Action: model.ActionDeny, Match: model.Match{SrcNets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}},
		}, Outbound: []model.Rule{{Action: model.ActionAllow}}},
	}
}

// endpoint is one of those that the policies are for. Addresses are those of no pool.
func (r *road) endpoint(s *scale, i int) model.Put {
	high, low := byte(i>>8), byte(i)
	return model.Put{Key: s.key(i), Value: model.WorkloadEndpoint{
		State: model.StateActive, Name: hostLink(i), MAC: model.MAC{2, 0, 0, 0, high, low},
		ProfileIDs: []string{lab.Network}, Labels: map[string]string{r.label(): fmt.Sprint(i % r.policies)},
		IPv4Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(len(r.name)), high, low}), 32)},
	}}
}

// drive measures a kind of traffic once.
func (r *road) drive(k trafficKind) error {
	t, err := k.measure(course{r.pods[0].Namespace(), r.pods[1].Namespace(), r.pods[1].Addrs()[0], k.time, pinned})
	r.runs[k.name] = append(r.runs[k.name], t)
	return err
}

func packetResult(roads []*road) result {
	t := table{
		title: fmt.Sprintf("Packets between two pods of a host with %d other endpoints", packetEndpoints),
		note: fmt.Sprintf("%d rounds, in each the hosts in a new order for one kind of traffic after the other, %v for each, %v for a stream; both ends on one processor. The policies apply to the other endpoints, not to the pods, "+
			"which have the network's own profile. Without any rules there is no connection tracking either; with it alone, one rule accepts what is established. Streams use the congestion control %s. Figures are medians; ratios are the medians of the rounds' ratios.", packetRounds, packetTime, streamTime, congestionControl),
		header: []string{"traffic", "rules for", "rate", "over 1 policy", "over no rules", "per second of CPU", "over 1 policy", "over no rules"},
	}
	var r result
	for _, k := range trafficKinds {
		relative := func(a, b *road, of func(traffic) float64) float64 {
			var all []float64
			for i := range a.runs[k.name] {
				all = append(all, of(a.runs[k.name][i])/of(b.runs[k.name][i]))
			}
			return median(all)
		}
		for _, a := range roads {
			name := fmt.Sprintf("%d policies", a.policies)
			switch {
			case a.other != "":
				name = a.other
			case a.policies == 1:
				name = "1 policy"
			}
			runs := a.runs[k.name]
			plain, one := relative(a, roads[0], traffic.perCPU), relative(a, roads[1], traffic.perCPU)
			t.add(k.name, name, k.text(median(each(runs, traffic.rate))), ratio(relative(a, roads[1], traffic.rate)), ratio(relative(a, roads[0], traffic.rate)),
				k.text(median(each(runs, traffic.perCPU))), fmt.Sprintf("%.3f", one), fmt.Sprintf("%.3f", plain))
			if a == roads[2] {
				r.goals = append(r.goals, goal{"packets within a host, " + k.name + " with " + name + ", over no rules and no connection tracking", "≥ 0.90", fmt.Sprintf("%.3f", plain), plain >= 0.9})
			}
		}
	}
	r.tables = []table{t}
	return r
}
