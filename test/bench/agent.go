// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

const (
	agentEndpoints = 1000
	idleFor        = 30 * time.Second
)

// agentAtScale measures the agent on a host with a thousand endpoints.
func agentAtScale(ctx context.Context, b *bench) (_ []table, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	l, err := lab.Start(ctx, lab.Config{
		Name: "bench-agent", Hosts: []string{"host"}, BinDir: b.bin, DataDir: scratch, NoAgent: true,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	host, err := l.FindHost("host")
	if err != nil {
		return nil, err
	}
	pods, err := l.NewNamespace("pods")
	if err != nil {
		return nil, err
	}
	s := &scale{lab: l, host: host, pods: pods}
	for i := range agentEndpoints {
		if err := s.link(i); err != nil {
			return nil, err
		}
	}
	last, err := s.write(ctx, 0, agentEndpoints)
	if err != nil {
		return nil, err
	}

	begin := time.Now()
	if err := host.StartAgent(ctx); err != nil {
		return nil, err
	}
	for i := range agentEndpoints {
		if err := s.wait(ctx, i, last[i]); err != nil {
			return nil, err
		}
	}
	cold := time.Since(begin)

	var news []time.Duration
	for i := agentEndpoints; i < agentEndpoints+b.count; i++ {
		if err := s.link(i); err != nil {
			return nil, err
		}
		revisions, err := s.write(ctx, i, i+1)
		if err != nil {
			return nil, err
		}
		wrote := time.Now()
		if err := s.wait(ctx, i, revisions[0]); err != nil {
			return nil, err
		}
		news = append(news, time.Since(wrote))
	}

	agent, err := host.Agent()
	if err != nil {
		return nil, err
	}
	if err := settle(ctx, agent.PID); err != nil {
		return nil, err
	}
	before, err := cpuOf(agent.PID)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(idleFor):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := cpuOf(agent.PID)
	if err != nil {
		return nil, err
	}
	peak, err := peakMemory(agent.PID)
	if err != nil {
		return nil, err
	}

	t := table{title: fmt.Sprintf("The agent with %d endpoints on its host", agentEndpoints), header: []string{"what", "figure", "goal", ""}}
	row := func(what, figure, goal string, met bool) {
		t.add(append([]string{what}, verdict(figure, goal, met)...)...)
	}
	row("cold start: from exec until the gate acknowledged every endpoint", ms(cold), "≤ 2 s", cold <= 2*time.Second)
	row("peak memory", mib(peak), "≤ 60 MiB", peak <= 60<<20)
	idle := 100 * float64(after-before) / float64(idleFor)
	row(fmt.Sprintf("CPU while nothing changes, over %v", idleFor), fmt.Sprintf("%.2f %%", idle), "0", idle < 0.5)
	row("one new endpoint: from its write to the gate's answer, median", ms(median(news)), "≤ 5 ms", median(news) <= 5*time.Millisecond)
	row("the same, 99th percentile", ms(percentile(news, 0.99)), "", true)
	return []table{t}, nil
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
		ns, err := kernel.OpenNamespace(s.pods.Path())
		if err != nil {
			return err
		}
		defer ns.Close()
		_, _, err = kernel.CreateVeth(ns, kernel.Veth{HostName: hostLink(i), PodName: "eth" + strconv.Itoa(i), MTU: 1500, Alias: "bench"})
		return err
	})
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
			addr := netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})
			change.Puts = append(change.Puts, model.Put{Key: s.key(i), Value: model.WorkloadEndpoint{
				State: model.StateActive, Name: hostLink(i), MAC: model.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)},
				IPv4Nets: []netip.Prefix{netip.PrefixFrom(addr, 32)},
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

// settle waits until a process has used no CPU for two seconds.
func settle(ctx context.Context, pid int) error {
	return lab.Until(ctx, "idle agent", func() error {
		before, err := cpuOf(pid)
		if err != nil {
			return err
		}
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		after, err := cpuOf(pid)
		if err == nil && after-before > 10*time.Millisecond {
			err = fmt.Errorf("it used %v in two seconds", after-before)
		}
		return err
	})
}

// cpuOf is the user and system time of a process (proc_pid_stat(5), fields 14
// and 15, in ticks of 10 ms).
func cpuOf(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// peakMemory is the largest resident set of a process so far, in bytes.
func peakMemory(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("process %d: no VmHWM", pid)
}
