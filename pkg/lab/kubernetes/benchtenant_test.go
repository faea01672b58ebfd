// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/test/probe"
)

const (
	tenantPolicies = 40
	tenantPeers    = 8000 // of each: within a namespace's budget alone, and over it together
)

// tenant measures how long a policy takes to the kernel beside a namespace that has, and then changes without end, far more rules than it may, and what
// memory that takes of the agents.
func (w *contest) tenant(path *probe.Path) {
	const namespace = "tenant"
	w.Kubectl("create", "namespace", namespace)
	w.Eventually("a service account", func(string) error { return nil }, "get", "serviceaccount", "-n", namespace, "default")
	for i := range 4 {
		if err := w.pod(namespace, fmt.Sprintf("web-%d", i), "node-b"); err != nil {
			w.Fatal(err)
		}
	}
	name := func(i int) string { return fmt.Sprintf("many-%d", i%tenantPolicies) }
	many := func(i int) error {
		var peers []networkingv1.NetworkPolicyPeer
		for j := range tenantPeers {
			peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("%d.%d.%d.0/24", 11+i%tenantPolicies, j/250, j%250)}})
		}
		return w.policy(namespace, name(i), networkingv1.NetworkPolicyIngressRule{From: peers, Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, 80)}})
	}

	alone := w.denies(path)
	for i := range tenantPolicies {
		if err := many(i); err != nil {
			w.Fatal(err)
		}
	}
	beside := w.denies(path)
	ctx, cancel := context.WithCancel(w.Context())
	var changes sync.WaitGroup
	changes.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := kube.Delete[networkingv1.NetworkPolicy](w.Context(), w.api, namespace, name(i), ""); err != nil {
				w.Error(err)
			}
			if err := many(i); err != nil {
				w.Error(err)
			}
		}
	})
	during := w.denies(path)
	cancel()
	changes.Wait()
	w.report(beside, "policy-beside")
	w.report(during, "policy-during")
	w.ReportMetric(middle(beside)/middle(alone), "times-policy-beside")
	w.ReportMetric(float64(slices.Max(w.kib("VmHWM:")))/1024, "MiB-agent-peak")
}

func middle(all []time.Duration) float64 {
	return slices.Sorted(slices.Values(all))[len(all)/2].Seconds()
}

// denies are the times from a policy's creation in the API to the kernel.
func (w *contest) denies(path *probe.Path) (all []time.Duration) {
	w.Helper()
	for range max(1, *policies/4) {
		for _, allows := range []bool{false, true} {
			var began time.Time
			effect, err := path.Change(w.Context(), allows, func() error {
				began = time.Now()
				if allows {
					return kube.Delete[networkingv1.NetworkPolicy](w.Context(), w.api, probeNamespace, "deny", "")
				}
				return w.policy(probeNamespace, "deny")
			})
			if err != nil {
				w.Fatalf("allows %t: %v", allows, err)
			}
			if !allows {
				all = append(all, effect.Since.Sub(began))
			}
		}
	}
	return all
}
