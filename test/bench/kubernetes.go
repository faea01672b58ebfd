// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// kubernetes runs the benchmarks of a real cluster, and of the controllers in one that is large, which are tests of their packages.
func kubernetes(ctx context.Context, b *bench) (result, error) {
	figures := map[string]float64{}
	for _, run := range [][]string{
		{"./pkg/lab/kubernetes", fmt.Sprintf("-policies=%d", b.count), fmt.Sprintf("-rounds=%d", max(1, b.count/12)), fmt.Sprintf("-bursts=%d", max(1, b.count/20))},
		{"./pkg/controllers"},
	} {
		args := append([]string{"test", "-tags=e2ek8s", "-run=^$", "-bench=.", "-benchtime=1x", "-count=1", "-timeout=60m"}, run...)
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return result{}, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		readFigures(string(out), figures)
	}
	return kubernetesResult(figures)
}

// readFigures reads what benchmarks report: lines of a name, a number of iterations, and pairs of value and unit
// (https://go.dev/design/14313-benchmark-format).
func readFigures(out string, figures map[string]float64) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				figures[fields[i+1]] = v
			}
		}
	}
}

// kubernetesFigures are the lines of the table. A limit of 0 is none.
var kubernetesFigures = []struct {
	what, unit, format string
	limit              float64
}{
	{"CNI ADD, over `ptp` + `host-local`, in the runtime's log: median of pairs", "times-ADD", "%.2f", 1.3},
	{"the same with containerd 1.6", "times-ADD-node-a", "%.2f", 0},
	{"the same with containerd 2", "times-ADD-node-b", "%.2f", 0},
	{"CNI ADD, median", "ms-ADD-calico-p50", "%.0f ms", 0},
	{"30 pods at once, until the last runs, over the same", "times-last-of-30", "%.2f", 1.1},
	{"30 pods at once, until the last runs", "ms-last-of-30-calico-p50", "%.0f ms", 0},
	{"NetworkPolicy, from its creation to the kernel: median", "ms-policy-created-p50", "%.1f ms", 30},
	{"the same: p99", "ms-policy-created-p99", "%.1f ms", 150},
	{"until the API has answered: median", "ms-policy-answer-p50", "%.1f ms", 0},
	{"NetworkPolicy, from its deletion to the kernel: median", "ms-policy-deleted-p50", "%.1f ms", 0},
	{"the same: p99", "ms-policy-deleted-p99", "%.1f ms", 0},
	{"GlobalNetworkPolicy of the Kubernetes API, from its creation to the kernel: median", "ms-policy-applied-p50", "%.1f ms", 30},
	{"the same: p99", "ms-policy-applied-p99", "%.1f ms", 0},
	{"the same, from its deletion: median", "ms-policy-withdrawn-p50", "%.1f ms", 0},
	{"NetworkPolicy, from its creation to the kernel beside a namespace with far more rules than it may have, over the same without", "times-policy-beside", "%.2f", 2},
	{"the same: median", "ms-policy-beside-p50", "%.1f ms", 0},
	{"the same, while that namespace's policies change without end: median", "ms-policy-during-p50", "%.1f ms", 0},
	{"the same: p99", "ms-policy-during-p99", "%.1f ms", 0},
	{"agent: peak memory with these", "MiB-agent-peak", "%.0f MiB", 256},
	{"agent: memory after its start", "MiB-agent", "%.1f MiB", 0},
	{"agent: CPU at rest, of one processor", "%CPU-calico-node", "%.2f %%", 0},
	{"controllers: CPU at rest", "%CPU-calico-controllers", "%.2f %%", 0},
	{"controllers of 50,000 pods: from start to synced, all to be written", "s-to-synced-first", "%.1f s", 60},
	{"the same, all written", "s-to-synced-again", "%.1f s", 0},
	{"the same: peak memory", "MiB-peak", "%.0f MiB", 400},
	{"controllers of 5,000 GlobalNetworkPolicies: from start until all are written and say so", "s-resources-first", "%.1f s", 0},
	{"from start, all written, until what has changed meanwhile is", "s-resources-again", "%.1f s", 10},
	{"the same: memory more than without them", "MiB-resources-again", "%.0f MiB", 100},
	{"a pod's label, from the API to etcd: median", "ms-label-p50", "%.1f ms", 20},
	{"the same: p99", "ms-label-p99", "%.1f ms", 0},
	{"the same: CPU at rest, with a pass of garbage collection every 5 minutes", "%CPU", "%.2f %%", 1},
}

func kubernetesResult(figures map[string]float64) (r result, err error) {
	// A pass is in the first 20 s after the start; the next is five minutes later.
	figures["%CPU"] = figures["%CPU-between"] + figures["CPU-s-pass"]/300*100
	t := table{
		title: "Kubernetes",
		note: "A cluster of two nodes, with containerd 1.6 and containerd 2 and 1,000 NetworkPolicies that are for pods of each node; both contenders' lists have `portmap`, too. " +
			"Packets every half millisecond show when policy is enforced. The controllers have 50,000 pods, 5,000 namespaces and policies, and 1,000 nodes.",
		header: []string{"what", "figure"},
	}
	for _, f := range kubernetesFigures {
		v, ok := figures[f.unit]
		if !ok {
			return r, fmt.Errorf("the benchmarks report no %s", f.unit)
		}
		t.add(f.what, fmt.Sprintf(f.format, v))
		if f.limit > 0 {
			r.goals = append(r.goals, goal{"Kubernetes: " + f.what, "≤ " + fmt.Sprintf(f.format, f.limit), fmt.Sprintf(f.format, v), v <= f.limit})
		}
	}
	r.tables = []table{t}
	return r, nil
}
