// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/model"
)

// The newest NetworkPolicies of a namespace over its limit only isolate pods; an event and a condition say so. Policies that fit
// again take effect again, also under the next leader.
func TestNamespacePolicyLimit(t *testing.T) {
	w := newWorld(t)
	policy := func(name string, cidrs int) {
		t.Helper()
		var from strings.Builder
		for i := range cidrs {
			fmt.Fprintf(&from, `{ipBlock: {cidr: 10.0.%d.%d/32}},`, i/256, i%256)
		}
		w.plane.Apply(fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: %s, namespace: a}, spec: {podSelector: {}, ingress: [{from: [%s]}]}}`, name, from.String()))
	}
	rules := func(namespace, name string, want int) {
		t.Helper()
		k := kubepolicy.PolicyKey(namespace, name)
		eventually.Within(t, kubernetes.Patience, k.Path(), func() error {
			p, there := w.Get(k).(model.Policy)
			if !there || len(p.Inbound) != want {
				return fmt.Errorf("there: %v, %d rules, want %d", there, len(p.Inbound), want)
			}
			return nil
		})
	}
	condition := func(want string) {
		t.Helper()
		w.plane.Eventually("condition "+want, func(out string) error {
			if !strings.HasPrefix(out, want) {
				return fmt.Errorf("condition: %s", out)
			}
			return nil
		}, "get", "namespace/a", "-o", `jsonpath={range .status.conditions[?(@.type=="NetworkPolicyLimitExceeded")]}{.status} {.reason} {.message}{end}`)
	}
	w.plane.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: b}}\n")
	stop := w.run("one", "-namespace-policy-limit", "100")
	policy("first", 60)
	rules("a", "first", 60)
	condition("") // none
	policy("second", 50)
	rules("a", "second", 0)
	rules("a", "first", 60)
	condition("True OverLimit 1 of 2 NetworkPolicies allow their pods nothing: all have a size of 110 together (of each rule the peers times the ports, and 4 more for a selector), of 100 at most")
	w.plane.Eventually("an event on it", func(out string) error {
		if !strings.Contains(out, "is more than the older NetworkPolicies of its namespace leave of 100") {
			return fmt.Errorf("events: %s", out)
		}
		return nil
	}, "get", "events", "-n", "a", "--field-selector=type=Warning,involvedObject.name=second", "-o", "jsonpath={.items[*].message}")
	w.plane.Apply(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: other, namespace: b}, spec: {podSelector: {}, ingress: [{}]}}`)
	rules("b", "other", 1)

	// The older one leaves room: the newer one is read again.
	policy("first", 50)
	rules("a", "second", 50)
	condition("False WithinLimit ")
	policy("first", 51)
	rules("a", "second", 0)
	condition("True OverLimit ")
	stop()
	w.plane.Kubectl("delete", "-n", "a", "networkpolicy/first")
	w.run("two", "-namespace-policy-limit", "100")
	rules("a", "second", 50)
	condition("False WithinLimit ")
}
