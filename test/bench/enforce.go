// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// change is one kind of change to etcd that changes the firewall.
type change struct {
	name    string
	prepare func(i int) error // before the clock runs
	entry   func(i int) model.Entry
	gate    func(i int) int // the endpoint that is asked for
	// What was measured: until etcd answered, and until the gate did.
	written, done []time.Duration
}

// enforce measures the time from a write to etcd until the kernel was read to
// enforce it.
func enforce(ctx context.Context, b *bench) (_ result, err error) {
	p, err := b.newPolicyHost(ctx, "bench-enforce", b.count)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	changes := p.changes()
	for i := range b.count {
		for _, c := range changes {
			if err := p.time(ctx, c, i); err != nil {
				return result{}, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	probed, err := p.probe(ctx, b.count)
	if err != nil {
		return result{}, err
	}
	return enforceResult(changes, probed, b.count), nil
}

func (p *policyHost) changes() []*change {
	first := func(int) int { return 0 }
	nothing := func(int) error { return nil }
	everybody := model.PolicyKey{Tier: "default", Policy: "everybody"}
	return []*change{
		{
			name:    "a new endpoint",
			prepare: func(i int) error { return p.link(policyEndpoints + i) },
			entry:   func(i int) model.Entry { return p.cluster.Endpoints[policyEndpoints+i] },
			gate:    func(i int) int { return policyEndpoints + i },
		},
		{
			name: "rules of a policy of one application", prepare: nothing, gate: first,
			entry: func(i int) model.Entry { return port(p.cluster.Policies[100+i%500], 10_000+i) },
		},
		{
			name: fmt.Sprintf("rules of a policy of all %d endpoints", policyEndpoints), prepare: nothing, gate: first,
			entry: func(i int) model.Entry { return port(p.cluster.Policies[0], 10_000+i) },
		},
		{
			name: "label of an endpoint, which takes it from one set to another", prepare: nothing,
			entry: func(i int) model.Entry { return zone(p.cluster.Endpoints[i%policyEndpoints], fmt.Sprintf("z%d", i%2)) },
			gate:  func(i int) int { return i % policyEndpoints },
		},
		{
			name: fmt.Sprintf("a policy that comes to all %d endpoints, or goes", policyEndpoints), prepare: nothing, gate: first,
			entry: func(i int) model.Entry {
				order, rule := 500.0, model.Rule{Action: model.ActionAllow, Match: model.Match{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: 22, Max: 22}}}}
				text := `has(app)`
				if i%2 == 1 {
					text = `has(nothing)`
				}
				return model.Entry{Key: everybody, Value: model.Policy{Selector: text, Order: &order, Inbound: []model.Rule{rule}}}
			},
		},
	}
}

// port is a policy that allows a port besides.
func port(entry model.Entry, n int) model.Entry {
	p := entry.Value.(model.Policy)
	rule := model.Rule{Action: model.ActionAllow, Match: model.Match{Protocol: model.ProtocolTCP, DstPorts: []model.Port{{Min: uint16(n), Max: uint16(n)}}}}
	p.Inbound = append([]model.Rule{rule}, p.Inbound...)
	entry.Value = p
	return entry
}

// zone is an endpoint with another value of a label that sets are made by.
func zone(entry model.Entry, value string) model.Entry {
	w := entry.Value.(model.WorkloadEndpoint)
	w.Labels = maps.Clone(w.Labels)
	w.Labels["zone"] = value
	entry.Value = w
	return entry
}

// time makes one change.
func (p *policyHost) time(ctx context.Context, c *change, i int) error {
	if err := c.prepare(i); err != nil {
		return err
	}
	// What the last change left to do, reports and connections to be looked at, is over.
	if err := wait(ctx, 50*time.Millisecond); err != nil {
		return err
	}
	entry := c.entry(i)
	begin := time.Now()
	revision, err := p.put(ctx, entry)
	if err != nil {
		return err
	}
	written := time.Since(begin)
	if err := p.enforced(ctx, c.gate(i), revision); err != nil {
		return err
	}
	c.written, c.done = append(c.written, written), append(c.done, time.Since(begin))
	return nil
}

func enforceResult(changes []*change, probed []probed, count int) result {
	t := table{
		title: fmt.Sprintf("Policy: from etcd to the kernel, with %d endpoints and %d policies on the host", policyEndpoints, policyPolicies),
		note: fmt.Sprintf("%d of each, in turn, one every 50 ms. The clock runs from the start of the write to etcd, which syncs its disk; a change is done when the gate says that "+
			"the kernel's rules, sets and routes as of its revision were read back. Packets are sent every half millisecond, each from a port of its own: "+
			"what counts is when the first was sent that passed, or the first that didn't.", count),
		header: []string{"change", "etcd's answer, median", "done, median", "p99", "after etcd's answer, median", "p99"},
	}
	var r result
	var written, done []time.Duration // of all
	for _, c := range changes {
		after := make([]time.Duration, len(c.done))
		for i := range after {
			after[i] = c.done[i] - c.written[i]
		}
		mid, high := median(c.done), percentile(c.done, 0.99)
		t.add(c.name, ms(median(c.written)), ms(mid), ms(high), ms(median(after)), ms(percentile(after, 0.99)))
		written, done = append(written, c.written...), append(done, c.done...)
	}
	for _, p := range probed {
		mid, high := median(p.felt), percentile(p.felt, 0.99)
		t.add(p.name, ms(median(p.written)), ms(mid), ms(high), "", "")
		written, done = append(written, p.written...), append(done, p.felt...)
	}
	const all = "all of these together"
	mid, high := median(done), percentile(done, 0.99)
	t.add(all, ms(median(written)), ms(mid), ms(high), "", "")
	r.goals = append(r.goals,
		goal{"policy, from the write to enforced, median", "≤ 10 ms", ms(mid), mid <= 10*time.Millisecond},
		goal{"the same: p99", "≤ 50 ms", ms(high), high <= 50*time.Millisecond})
	r.tables = []table{t}
	return r
}
