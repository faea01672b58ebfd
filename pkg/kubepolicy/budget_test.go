// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]int{
		`{}`:                  1,
		`{ingress: [{}, {}]}`: 2,
		`{ingress: [{ports: [{port: 1}, {port: 2}]}]}`:                                                                   2,
		`{ingress: [{from: [{podSelector: {}}, {podSelector: {}}], ports: [{port: 1}, {port: 2}]}], egress: [{}]}`:       13,
		`{egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16, 10.2.0.0/16]}}, {namespaceSelector: {}}]}]}`: 8,
	} {
		if got := kubepolicy.Size(policyOf(t, text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

func TestSizeOf(t *testing.T) {
	rule := model.Rule{
		Match: model.Match{SrcNets: make([]netip.Prefix, 3), DstPorts: make([]model.Port, 2), HasSrcSelector: true},
		Not:   model.Match{DstNets: make([]netip.Prefix, 2), SrcPorts: make([]model.Port, 1), HasDstSelector: true},
	}
	for want, p := range map[int]model.Policy{1: {}, 2: {Inbound: make([]model.Rule, 1), Outbound: make([]model.Rule, 1)}, 18: {Inbound: []model.Rule{rule, {}}}} {
		if got := kubepolicy.SizeOf(p); got != want {
			t.Errorf("%d, want %d: %+v", got, want, p)
		}
	}
}

// Without its rules a policy picks the same pods and isolates them in the same directions.
func TestIsolating(t *testing.T) {
	for _, text := range []string{
		`{}`, `{podSelector: {matchLabels: {a: b}}, ingress: [{}]}`, `{egress: [{}]}`, `{policyTypes: [Egress], egress: [{}]}`,
		`{policyTypes: [Ingress], egress: [{}]}`, `{policyTypes: [Later]}`,
	} {
		np := policyOf(t, text)
		want := np.DeepCopy()
		key, whole, _ := kubepolicy.Policy(np)
		isolatingKey, isolating, _ := kubepolicy.Policy(kubepolicy.Isolating(np))
		whole.Inbound, whole.Outbound = nil, nil
		if diff := cmp.Diff(whole, isolating); diff != "" || key != isolatingKey {
			t.Errorf("%s: %s", text, diff)
		}
		if diff := cmp.Diff(want, np); diff != "" {
			t.Errorf("%s was changed: %s", text, diff)
		}
	}
}

func policyOf(t *testing.T, spec string) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{}
	np.Namespace, np.Name = "shop", "web"
	if err := yaml.Unmarshal([]byte(spec), &np.Spec); err != nil {
		t.Fatal(err)
	}
	return np
}

// The oldest are within the budget; what doesn't fit takes nothing of it, and comes in again when there is room.
func TestBudget(t *testing.T) {
	b := kubepolicy.NewBudget(10, kubepolicy.MeasureSize)
	at := func(minute int) time.Time { return time.Unix(int64(60*minute), 0) }
	over := func() string {
		var all []string
		for _, name := range []string{"a", "b", "c", "d"} {
			if b.Over("ns", name) {
				all = append(all, name)
			}
		}
		return strings.Join(all, "")
	}
	for i, step := range []struct {
		name          string
		created, size int // size -1: it goes
		changed, over string
	}{
		{"b", 2, 6, "", ""},
		{"c", 3, 5, "c", "c"},
		{"d", 4, 4, "", "c"},   // fits beside b
		{"a", 1, 3, "d", "cd"}, // an older one comes to be known later
		{"b", 2, 9, "bc", "bd"},
		{"b", 2, -1, "", "d"},
		{"d", 4, 2, "d", ""},
		{"c", 3, 8, "c", "c"},
		{"c", 3, 80, "", "c"},
		{"a", 1, -1, "", "c"},
		{"c", 3, 8, "c", ""},
	} {
		if step.size < 0 {
			b.Remove("ns", step.name)
		} else {
			b.Set("ns", step.name, at(step.created), step.size)
		}
		changed, _ := b.Decide("ns")
		slices.Sort(changed)
		t.Log(i, changed, over(), b.Exceeded())
		if strings.Join(changed, "") != step.changed || over() != step.over || (b.Exceeded()["ns"] != "") != (step.over != "") {
			t.Errorf("step %d, %s %d: changed %v, over %s, want %s, %s", i, step.name, step.size, changed, over(), step.changed, step.over)
		}
		b.Set("other", "x", at(0), 10)
		if _, rest := b.Decide("other"); b.Over("other", "x") || rest != time.Millisecond {
			t.Error("one namespace takes another's budget")
		}
	}
	b.Set("ns", "c", at(3), 11)
	b.Set("ns", "d", at(4), 2)
	if changed, rest := b.Decide("ns"); !slices.Equal(changed, []string{"c"}) || rest != 1300*time.Microsecond {
		t.Errorf("two at once: changed %v, it rests for %v", changed, rest)
	}
	if text := b.Problem("ns", "c").String(); !strings.Contains(text, "size of 11") || !strings.Contains(text, "leave of 10") || !strings.Contains(text, "-namespace-policy-limit") {
		t.Error(text)
	}
	if text := b.Exceeded()["ns"]; !strings.Contains(text, "1 of 2 NetworkPolicies") || !strings.Contains(text, "of 10 at most") {
		t.Error(text)
	}
	for i := range 3 {
		none := kubepolicy.NewBudget(0, kubepolicy.MeasureSize)
		none.Set("ns", fmt.Sprint(i), at(0), 1<<30)
		if _, rest := none.Decide("ns"); rest != time.Second || none.Over("ns", fmt.Sprint(i)) {
			t.Error("over no limit")
		}
	}
}
