// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kube"
)

var (
	rounds   = flag.Int("rounds", 8, "of the benchmark of starts of pods, for each contender")
	bursts   = flag.Int("bursts", 5, "of the benchmark of many pods at once, for each contender")
	policies = flag.Int("policies", 100, "that the benchmark of policy creates, of each kind")
	idleFor  = flag.Duration("idle", time.Minute, "how long the benchmark does nothing")
)

// contest is a cluster whose pods get their network from one contender or the other.
type contest struct {
	*testing.B
	*Cluster
	api    *kube.Client
	theirs bool // which network new pods get
}

// BenchmarkKubernetes measures what a cluster's pods and policies wait for, and what the agents cost.
func BenchmarkKubernetes(b *testing.B) {
	c := Up(b, Images(b)...)
	c.Install(Manifest(b))
	api, err := kube.New(kube.Config{Kubeconfig: c.Kubeconfig, Name: "test"})
	if err != nil {
		b.Fatal(err)
	}
	defer api.Close()
	w := &contest{B: b, Cluster: c, api: api}
	for _, n := range c.Nodes {
		n.KillContainerd()
		n.containerd.argv = append(n.containerd.argv, "--log-level=debug") // which logs what plugins do
		n.StartContainerd()
	}
	c.AwaitReady()
	w.starts()
	w.load()
	path := w.path()
	w.policies(path)
	w.idle()
	w.memory()
	w.tenant(path)
}

// report reports the median and the 99th percentile of times.
func (w *contest) report(all []time.Duration, what string) {
	w.Logf("%s: %v", what, all)
	all = slices.Sorted(slices.Values(all))
	at := func(q float64) float64 { return all[int(q*float64(len(all)-1))].Seconds() * 1000 }
	w.ReportMetric(at(0.5), "ms-"+what+"-p50")
	w.ReportMetric(at(0.99), "ms-"+what+"-p99")
}

// ratio reports the median of the ratios of pairs.
func (w *contest) ratio(ours, theirs []time.Duration, what string) {
	all := make([]float64, len(ours))
	for i := range all {
		all[i] = float64(ours[i]) / float64(theirs[i])
	}
	slices.Sort(all)
	w.ReportMetric(all[len(all)/2], "times-"+what)
}
