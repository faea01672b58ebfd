// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settled is when a program that was started has done what it does at its start.
const settled = 20 * time.Second

// proc reads a file about each process of a program on the node, which has process numbers of its own.
func (n *Node) proc(program, file string) (all []string) {
	n.c.tb.Helper()
	out, err := n.Command("pgrep", "-f", "^/"+program+"( |$)").Output()
	if err != nil {
		return nil // there is none
	}
	for _, pid := range strings.Fields(string(out)) {
		data, err := os.ReadFile(n.Path("/proc/" + pid + "/" + file))
		if err != nil {
			n.c.tb.Fatal(err)
		}
		all = append(all, string(data))
	}
	return all
}

// cpu is what the processes of a program have used, by node and process.
func (w *contest) cpu(program string) (all []time.Duration) {
	w.Helper()
	for _, n := range w.Nodes {
		for _, stat := range n.proc(program, "stat") {
			// proc(5): the name may have spaces and ends with ")"; utime and stime, in hundredths of a second.
			fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
			ticks := 0
			for _, f := range fields[11:13] {
				t, err := strconv.Atoi(f)
				if err != nil {
					w.Fatal(err)
				}
				ticks += t
			}
			all = append(all, time.Duration(ticks)*10*time.Millisecond)
		}
	}
	return all
}

// idle reports what programs use while nothing changes: the busiest process of each.
func (w *contest) idle() {
	programs := []string{"calico-node", "calico-controllers", "etcd"}
	time.Sleep(settled)
	before := map[string][]time.Duration{}
	for _, p := range programs {
		before[p] = w.cpu(p)
	}
	time.Sleep(*idleFor) // what it costs to do nothing is measured by doing nothing
	for _, p := range programs {
		used := w.cpu(p)
		if len(used) != len(before[p]) || len(used) == 0 {
			w.Fatalf("%d processes of %s, and later %d", len(before[p]), p, len(used))
		}
		for i := range used {
			used[i] -= before[p][i]
		}
		w.Logf("%s used in %v: %v", p, *idleFor, used)
		w.ReportMetric(100*slices.Max(used).Seconds()/idleFor.Seconds(), "%CPU-"+p)
	}
}

// kib is a field of each agent's /proc/PID/status, in KiB.
func (w *contest) kib(field string) (all []int) {
	w.Helper()
	for _, n := range w.Nodes {
		for _, status := range n.proc("calico-node", "status") {
			_, rest, _ := strings.Cut(status, field)
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				w.Fatal(err)
			}
			all = append(all, kib)
		}
	}
	return all
}

// memory reports what agents use that have just started. They read the Kubernetes API: without it they have no certificate for etcd.
func (w *contest) memory() {
	w.Kubectl("rollout", "restart", "-n", "kube-system", "daemonset/calico-node")
	w.Kubectl("rollout", "status", "-n", "kube-system", "daemonset/calico-node", "--timeout=180s")
	time.Sleep(settled) // memory has no condition to wait for
	all := w.kib("VmRSS:")
	w.Logf("agents: %v KiB", all)
	if len(all) != len(w.Nodes) {
		w.Fatalf("%d agents on %d nodes", len(all), len(w.Nodes))
	}
	w.ReportMetric(float64(slices.Max(all))/1024, "MiB-agent")
}
