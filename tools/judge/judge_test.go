// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/explain"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

var (
	firstSeed = flag.Uint64("seed", 0, "seed of the first world")
	worlds    = flag.Uint64("worlds", 0, "how many worlds; 0 = 300 in the short form, else 5000")
)

// perWorld is how many flows of each world are tried.
const perWorld = 200

// TestUpstreamAgrees: the same flows pass here and with upstream's implementation.
func TestUpstreamAgrees(t *testing.T) {
	n := *worlds
	switch {
	case n == 0 && testing.Short():
		n = 300
	case n == 0:
		n = 5000
	}
	u := newUpstream(t)
	var passed, dropped int
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		c := chooser{rand.New(rand.NewPCG(seed, 4))}
		w := c.world()
		u.load(t, w)
		ours := clusterOf(t, w)
		for _, f := range c.flows(w, perWorld) {
			want := u.allows(f)
			if got, _ := follow(t, ours, f); got != want {
				w = smallest(w, func(w *world) bool {
					if w.pod(f.Src) == nil && w.pod(f.Dst) == nil {
						return false // the flow is none of the cluster's
					}
					u.load(t, w)
					got, _ := follow(t, clusterOf(t, w), f)
					return got != u.allows(f)
				})
				got, trail := follow(t, clusterOf(t, w), f)
				t.Fatalf("seed %d: %v: allowed %t here, %t by upstream\n%s\n%s", seed, f, got, !got, trail, dump(w))
			}
			if want {
				passed++
			} else {
				dropped++
			}
		}
	}
	t.Logf("%d flows passed, %d were dropped", passed, dropped)
	if passed < dropped/20 || dropped < passed/20 {
		t.Errorf("%d flows passed, %d were dropped: policies that tell nothing apart", passed, dropped)
	}
}

// clusterOf is what the controllers and the plugin store of a world.
func clusterOf(t *testing.T, w *world) *explain.Cluster {
	t.Helper()
	puts := kubepolicy.Tiers()
	for _, ns := range w.Namespaces {
		puts = append(puts, kubepolicy.Namespace(ns)...)
	}
	for i, p := range w.Pods {
		if p.Spec.HostNetwork {
			continue
		}
		own, problems := kubepolicy.Pod(p)
		none(t, problems)
		e := model.WorkloadEndpoint{State: model.StateActive, Name: fmt.Sprintf("cali%d", i), ProfileIDs: own.Profiles, Labels: own.Labels, Ports: own.Ports}
		for _, ip := range p.Status.PodIPs {
			a := netip.MustParseAddr(ip.IP)
			if a.Is4() {
				e.IPv4Nets = append(e.IPv4Nets, netip.PrefixFrom(a, 32))
			} else {
				e.IPv6Nets = append(e.IPv6Nets, netip.PrefixFrom(a, 128))
			}
		}
		puts = append(puts, model.Put{Key: keyOf(p), Value: e})
	}
	for _, np := range w.Policies {
		key, p, problems := kubepolicy.Policy(np)
		none(t, problems)
		puts = append(puts, model.Put{Key: key, Value: p})
	}
	for _, cnp := range w.ClusterPolicies {
		key, p, problems := kubepolicy.ClusterPolicy(cnp, nil)
		none(t, problems)
		puts = append(puts, model.Put{Key: key, Value: p})
	}
	var entries []model.Entry
	for _, put := range puts {
		data, err := model.FormatValue(put.Value)
		if err != nil {
			t.Fatal(err)
		}
		v, err := model.ParseValue(put.Key, data)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, model.Entry{Path: put.Key.Path(), Key: put.Key, Value: v, Revision: 1, Created: 1})
	}
	return explain.New(entries)
}

func keyOf(p *corev1.Pod) model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: p.Spec.NodeName, Orchestrator: "k8s", Workload: p.Namespace + "." + p.Name, Endpoint: "eth0"}
}

// none fails the test if there are problems: all objects can be expressed.
func none(t *testing.T, problems []kubepolicy.Problem) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// follow says whether a flow gets through the hosts of both ends, and why.
func follow(t *testing.T, c *explain.Cluster, f flow) (allowed bool, trail string) {
	t.Helper()
	ends := [2]explain.End{}
	for i, a := range []netip.Addr{f.Src, f.Dst} {
		var err error
		if ends[i], err = c.Find(a.String(), ""); err != nil {
			t.Fatal(err)
		}
	}
	hops, err := c.Follow(explain.Flow{From: ends[0], To: ends[1], Protocol: f.Protocol, Port: f.Port})
	if err != nil {
		t.Fatal(err)
	}
	allowed = true
	var lines []string
	for _, h := range hops {
		allowed = allowed && h.Verdict == policy.Accept
		lines = append(lines, fmt.Sprintf("%s: %s", h.Host, h.Verdict))
		lines = append(lines, h.Steps...)
	}
	return allowed, strings.Join(lines, "\n")
}

func dump(v any) string {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}
