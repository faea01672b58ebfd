// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

const (
	policyBurst  = 500
	burstSpacing = time.Second / policyBurst
	burstRepeats = 10
	// sampling is how exactly it is known when the agent came to rest.
	sampling    = 20 * time.Millisecond
	watchedFor  = 3 * time.Second
	atRest      = 500 * time.Microsecond // of a sample
	restIsAfter = time.Second
)

// policyStorm is what 500 changes of policies in a second did.
type policyStorm struct {
	wrote, enforced, rested, cpu time.Duration
	applies, writes              float64
	later                        float64 // of a processor, from restIsAfter on
}

// policyChanges measures the agent while policies change as fast as they can,
// and while nothing changes.
func policyChanges(ctx context.Context, b *bench) (_ result, err error) {
	p, err := b.newPolicyHost(ctx, "bench-changes", 0)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	// An audit would come into the time after one burst in three, and it isn't the burst's.
	interval := model.GlobalConfigKey{Name: "RouteRefreshInterval"}
	if _, err := p.put(ctx, model.Entry{Key: interval, Value: model.Text("3600")}); err != nil {
		return result{}, err
	}
	var storms []policyStorm
	for i := range 1 + burstRepeats {
		s, err := p.storm(ctx, i)
		if err != nil {
			return result{}, err
		}
		if i > 0 { // the audit that was due before that comes in the first
			storms = append(storms, s)
		}
	}
	if _, err := p.etcd.Commit(ctx, model.Change{Deletes: []model.Key{interval}}); err != nil {
		return result{}, err
	}
	if err := settle(ctx, p.agent); err != nil {
		return result{}, err
	}
	idle, woken, err := rest(ctx, p.agent)
	if err != nil {
		return result{}, err
	}
	peak, err := peakMemory(p.agent)
	if err != nil {
		return result{}, err
	}
	return stormResult(storms, idle, woken, peak), nil
}

// storm changes each of 500 policies, one every two milliseconds.
func (p *policyHost) storm(ctx context.Context, round int) (s policyStorm, err error) {
	if err := settle(ctx, p.agent); err != nil {
		return s, err
	}
	before, err := p.metrics(ctx)
	if err != nil {
		return s, err
	}
	cpu, err := cpuOf(p.agent)
	if err != nil {
		return s, err
	}
	var revision int64
	begin := time.Now()
	for i := range policyBurst {
		if revision, err = p.put(ctx, port(p.cluster.Policies[100+i], 10_000+round*policyBurst+i)); err != nil {
			return s, err
		}
		if err := wait(ctx, time.Until(begin.Add(time.Duration(i+1)*burstSpacing))); err != nil {
			return s, err
		}
	}
	end := time.Now()
	s.wrote = end.Sub(begin)
	asked := make(chan error, 1)
	go func() {
		err := p.enforced(ctx, 0, revision)
		s.enforced = time.Since(end)
		asked <- err
	}()
	last, err := cpuOf(p.agent)
	var then time.Time
	var used time.Duration
	for at := end; err == nil && time.Since(end) < watchedFor; {
		err = wait(ctx, sampling)
		now, e := cpuOf(p.agent)
		if now-last > atRest*time.Duration(time.Since(at))/time.Duration(sampling) {
			s.rested = time.Since(end)
		}
		last, at, err = now, time.Now(), errors.Join(err, e)
		if then.IsZero() && at.Sub(end) >= restIsAfter {
			then, used = at, now
		}
	}
	s.cpu, s.later = last-cpu, float64(last-used)/float64(time.Since(then))
	if err := errors.Join(err, <-asked); err != nil {
		return s, err
	}
	after, err := p.metrics(ctx)
	const applies, writes = `calico_node_firewall_apply_seconds_count{scope="some"}`, "calico_node_firewall_writes_total"
	s.applies, s.writes = after[applies]-before[applies], after[writes]-before[writes]
	return s, err
}

func stormResult(storms []policyStorm, idle, woken float64, peak int64) result {
	t := table{
		title: fmt.Sprintf("Policy: %d changes in a second, and none, with %d endpoints and %d policies on the host", policyBurst, policyEndpoints, policyPolicies),
		note: fmt.Sprintf("Each of %d policies of the host's endpoints changes its rules, one every two milliseconds; medians of %d such bursts. The agent rests "+
			"when it has used less than %v of a processor in %v, and goes on to; audits of the kernel are put off meanwhile. Then nothing changes for %v, audits included.",
			policyBurst, burstRepeats, atRest, sampling, idleFor),
		header: []string{"what", "median", "most"},
	}
	times := func(what string, of func(policyStorm) time.Duration) {
		all := each(storms, of)
		t.add(what, ms(median(all)), ms(percentile(all, 1)))
	}
	times("the burst, until etcd's last answer", func(s policyStorm) time.Duration { return s.wrote })
	applies := each(storms, func(s policyStorm) float64 { return s.applies })
	t.add("transactions of nftables", fmt.Sprintf("%.0f", median(applies)), fmt.Sprintf("%.0f", percentile(applies, 1)))
	writes := each(storms, func(s policyStorm) float64 { return s.writes })
	t.add("changes in them", fmt.Sprintf("%.0f", median(writes)), fmt.Sprintf("%.0f", percentile(writes, 1)))
	times("the agent's CPU for all of it", func(s policyStorm) time.Duration { return s.cpu })
	times("from the last answer until all is enforced and read back", func(s policyStorm) time.Duration { return s.enforced })
	times("from the last answer until the agent rests", func(s policyStorm) time.Duration { return s.rested })
	later := each(storms, func(s policyStorm) float64 { return s.later })
	most := percentile(later, 1)
	t.add(fmt.Sprintf("CPU from %v to %v after the last answer, of one processor", restIsAfter, watchedFor), fmt.Sprintf("%.3f %%", 100*median(later)), fmt.Sprintf("%.3f %%", 100*most))
	t.add("CPU while nothing changes, of one processor", fmt.Sprintf("%.3f %%", 100*idle), "")
	t.add("wakeups per second while nothing changes", fmt.Sprintf("%.1f", woken), "")
	t.add("peak memory", mib(peak), "")
	return result{tables: []table{t}, goals: []goal{
		{fmt.Sprintf("policy, %d changes in a second: coalesced into transactions, median", policyBurst), fmt.Sprintf("< %d", policyBurst), fmt.Sprintf("%.0f", median(applies)), median(applies) < policyBurst},
		{"the same: CPU from a second after on, of one processor, at most", "0 (below 0.5 %)", fmt.Sprintf("%.3f %%", 100*most), most < 0.005},
		{"policy, CPU while nothing changes, of one processor", "0 (below 0.05 %)", fmt.Sprintf("%.3f %%", 100*idle), idle < 0.0005},
	}}
}
