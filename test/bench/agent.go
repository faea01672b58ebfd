// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

const (
	agentEndpoints = 1000
	idleFor        = time.Minute // some audits
	scaleProfile   = "kns.default"
)

// agentAtScale measures the agent on a host with a thousand endpoints.
func agentAtScale(ctx context.Context, b *bench) (_ result, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	l, err := lab.Start(ctx, lab.Config{
		Name: "bench-agent", Hosts: []string{"host"}, BinDir: b.bin, DataDir: scratch, NoAgent: true,
	})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	host, err := l.FindHost("host")
	if err != nil {
		return result{}, err
	}
	pods, err := l.NewNamespace("pods")
	if err != nil {
		return result{}, err
	}
	s := &scale{lab: l, host: host, pods: pods}
	for i := range agentEndpoints {
		if err := s.link(i); err != nil {
			return result{}, err
		}
	}
	if err := s.profile(ctx); err != nil {
		return result{}, err
	}
	last, err := s.write(ctx, 0, agentEndpoints)
	if err != nil {
		return result{}, err
	}

	begin := time.Now()
	if err := host.Agent().Start(ctx); err != nil {
		return result{}, err
	}
	for i := range agentEndpoints {
		if err := s.wait(ctx, i, last[i]); err != nil {
			return result{}, err
		}
	}
	cold := time.Since(begin)

	var news []time.Duration
	for i := agentEndpoints; i < agentEndpoints+b.count; i++ {
		if err := s.link(i); err != nil {
			return result{}, err
		}
		revisions, err := s.write(ctx, i, i+1)
		if err != nil {
			return result{}, err
		}
		wrote := time.Now()
		if err := s.wait(ctx, i, revisions[0]); err != nil {
			return result{}, err
		}
		news = append(news, time.Since(wrote))
	}

	agent, err := host.Agent().Process()
	if err != nil {
		return result{}, err
	}
	if err := settle(ctx, agent.PID); err != nil {
		return result{}, err
	}
	idle, woken, err := rest(ctx, agent.PID)
	if err != nil {
		return result{}, err
	}
	peak, err := peakMemory(agent.PID)
	if err != nil {
		return result{}, err
	}

	t := table{
		title:  fmt.Sprintf("The agent with %d endpoints on its host", agentEndpoints),
		note:   "Each endpoint has a veth, an IPv4 and an IPv6 address, labels and a profile. What is measured while nothing changes takes " + idleFor.String() + ", with the kernel read back every 30 s, as by default.",
		header: []string{"what", "figure"},
	}
	figures := []struct {
		what, got, want string
		met             bool
	}{
		{"cold start: from exec until the gate has acknowledged every endpoint", ms(cold), "≤ 2 s", cold <= 2*time.Second},
		{"peak memory", mib(peak), "", false},
		{"CPU while nothing changes, of one processor", fmt.Sprintf("%.3f %%", 100*idle), "≤ 0.5 %", idle <= 0.005},
		{"wakeups per second while nothing changes", fmt.Sprintf("%.1f", woken), "", false},
		{"one new endpoint, from its commit to the gate's answer: median", ms(median(news)), "≤ 5 ms", median(news) <= 5*time.Millisecond},
		{"the same: p99", ms(percentile(news, 0.99)), "", false},
	}
	r := result{}
	for _, f := range figures {
		t.add(f.what, f.got)
		if f.want != "" {
			r.goals = append(r.goals, goal{"agent: " + f.what, f.want, f.got, f.met})
		}
	}
	r.tables = []table{t}
	return r, nil
}

// rest measures a process that has nothing to do: its share of one processor,
// and how often it wakes in a second.
func rest(ctx context.Context, pid int) (share, woken float64, err error) {
	look := func() (cpu time.Duration, woke int64) {
		if err == nil {
			woke, err = wakeups(pid)
		}
		if err == nil {
			cpu, err = cpuOf(pid)
		}
		return cpu, woke
	}
	began := time.Now()
	cpu, woke := look()
	if err := errors.Join(err, wait(ctx, idleFor)); err != nil {
		return 0, 0, err
	}
	later, woken2 := look()
	took := time.Since(began)
	return float64(later-cpu) / float64(took), float64(woken2-woke) / took.Seconds(), err
}

// scale makes endpoints as the plugin would, without pods behind them.
type scale struct {
	lab  *lab.Lab
	host *lab.Host
	pods lab.Namespace
}

func (s *scale) key(i int) model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{
		Host: s.host.Name(), Orchestrator: "cni", Workload: "load-" + strconv.Itoa(i), Endpoint: "eth0",
	}
}

func hostLink(i int) string { return fmt.Sprintf("cali%011x", i) }

func (s *scale) link(i int) error {
	return s.host.Do(func() error {
		ns, err := pod.OpenNamespace(s.pods.Path())
		if err != nil {
			return err
		}
		defer ns.Close()
		_, _, err = pod.CreateVeth(ns, pod.Veth{HostName: hostLink(i), PodName: "eth" + strconv.Itoa(i), MTU: 1500, Alias: "bench"})
		return err
	})
}

// profile makes the one that every endpoint has. It allows everything.
func (s *scale) profile(ctx context.Context) error {
	client, err := s.lab.OpenEtcd()
	if err != nil {
		return err
	}
	allow := []model.Rule{{Action: model.ActionAllow}}
	_, err = client.Commit(ctx, model.Change{Puts: []model.Put{
		{Key: model.ProfileRulesKey{Profile: scaleProfile}, Value: model.Rules{Inbound: allow, Outbound: allow}},
	}})
	return err
}

// write puts endpoints from..to and returns their revisions.
func (s *scale) write(ctx context.Context, from, to int) ([]int64, error) {
	client, err := s.lab.OpenEtcd()
	if err != nil {
		return nil, err
	}
	var revisions []int64
	for at := from; at < to; at += 100 {
		var change model.Change
		for i := at; i < min(at+100, to); i++ {
			high, low := byte(i>>8), byte(i)
			change.Puts = append(change.Puts, model.Put{Key: s.key(i), Value: model.WorkloadEndpoint{
				State: model.StateActive, Name: hostLink(i), MAC: model.MAC{2, 0, 0, 0, high, low},
				ContainerID: fmt.Sprintf("%064d", i), ProfileIDs: []string{scaleProfile},
				Labels:   map[string]string{"app": "web", "calico/k8s_ns": "default", "pod-template-hash": "5d4f8c7b9"},
				IPv4Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, high, low}), 32)},
				IPv6Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 14: high, 15: low}), 128)},
			}})
		}
		revision, err := client.Commit(ctx, change)
		if err != nil {
			return nil, err
		}
		for range change.Puts {
			revisions = append(revisions, revision)
		}
	}
	return revisions, nil
}

func (s *scale) wait(ctx context.Context, i int, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return gate.Wait(ctx, s.host.AgentSocket(), gate.Request{Endpoint: s.key(i), Revision: revision})
}

// settle waits until a process has used next to no CPU for two seconds.
func settle(ctx context.Context, pid int) error {
	return eventually.Wait(ctx, "idle agent", func() error {
		before, err := cpuOf(pid)
		if err != nil {
			return err
		}
		if err := wait(ctx, 2*time.Second); err != nil {
			return err
		}
		after, err := cpuOf(pid)
		if err == nil && after-before > 10*time.Millisecond {
			err = fmt.Errorf("it used %v in two seconds", after-before)
		}
		return err
	})
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
