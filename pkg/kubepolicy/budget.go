// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/calico-go/calico/pkg/model"
)

// selectorSize is the size that a selector adds as a peer: nodes keep a set of all pods that it selects.
const selectorSize = 4

// Size returns how much work a NetworkPolicy causes on each node concerned: for each of its rules the number of peers
// times the number of ports, plus exceptions, plus selectorSize per selector; at least 1.
func Size(np *networkingv1.NetworkPolicy) int {
	n := 0
	rule := func(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
		n += max(1, len(peers)) * max(1, len(ports))
		for i := range peers {
			if b := peers[i].IPBlock; b != nil {
				n += len(b.Except)
			} else {
				n += selectorSize
			}
		}
	}
	for i := range np.Spec.Ingress {
		rule(np.Spec.Ingress[i].From, np.Spec.Ingress[i].Ports)
	}
	for i := range np.Spec.Egress {
		rule(np.Spec.Egress[i].To, np.Spec.Egress[i].Ports)
	}
	return max(1, n)
}

// SizeOf is Size for a policy of Calico's own kind, whose rules don't multiply: 1 for each rule, each of its nets and each of its ports, and
// selectorSize per selector.
func SizeOf(p model.Policy) int {
	n := 0
	for _, r := range slices.Concat(p.Inbound, p.Outbound) {
		n++
		for _, m := range []model.Match{r.Match, r.Not} {
			n += len(m.SrcNets) + len(m.DstNets) + len(m.SrcPorts) + len(m.DstPorts)
			for _, has := range []bool{m.HasSrcSelector, m.HasDstSelector} {
				if has {
					n += selectorSize
				}
			}
		}
	}
	return max(1, n)
}

// Isolating returns a policy without its rules: it isolates the same pods in the same directions, and allows them
// nothing.
func Isolating(np *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	out := *np
	if len(out.Spec.PolicyTypes) == 0 && len(out.Spec.Egress) > 0 {
		out.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	}
	out.Spec.Ingress, out.Spec.Egress = nil, nil
	return &out
}

// Budget decides which NetworkPolicies of a namespace take effect: the oldest ones whose total size is within the
// limit. Those that don't fit use none of it. Make one with NewBudget.
type Budget struct {
	limit    int
	measure  string                       // of sizes
	policies map[string]map[string]*share // by namespace and name
	exceeded map[string]string
}

// share is the entry of one policy.
type share struct {
	name    string
	created time.Time
	size    int
	over    bool
}

// How sizes are measured.
var (
	MeasureSize   = fmt.Sprintf("of each rule the peers times the ports, and %d more for a selector", selectorSize)
	MeasureSizeOf = fmt.Sprintf("1 for each rule, net and port, %d for a selector", selectorSize)
)

// NewBudget returns a budget with the limit for each namespace; 0 means no limit. Texts say how sizes are measured.
func NewBudget(limit int, measure string) *Budget {
	return &Budget{limit, measure, map[string]map[string]*share{}, map[string]string{}}
}

// Set adds or updates a policy. Decide returns the consequences.
func (b *Budget) Set(namespace, name string, created time.Time, size int) {
	if b.policies[namespace] == nil {
		b.policies[namespace] = map[string]*share{}
	}
	b.policies[namespace][name] = &share{name, created, size, b.Over(namespace, name)}
}

// Remove removes a policy.
func (b *Budget) Remove(namespace, name string) {
	if delete(b.policies[namespace], name); len(b.policies[namespace]) == 0 {
		delete(b.policies, namespace)
	}
}

// After its turn a namespace rests for a time proportional to the total size of its policies, at most LongestRest: one that changes large
// policies endlessly delays the others only part of the time.
const (
	restOfRule  = 100 * time.Microsecond
	LongestRest = time.Second
)

// Decide returns the names of a namespace's policies for which the result of Over has changed, and how long the namespace is to rest when
// these are written.
func (b *Budget) Decide(namespace string) (changed []string, rest time.Duration) {
	within, rejected, all := 0, 0, 0
	for _, s := range slices.SortedFunc(maps.Values(b.policies[namespace]), func(a, b *share) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.name, b.name))
	}) {
		over := b.limit > 0 && within+s.size > b.limit
		if all += s.size; over {
			rejected++
		} else {
			within += s.size
		}
		if over != s.over {
			changed = append(changed, s.name)
		}
		s.over = over
	}
	delete(b.exceeded, namespace)
	if rejected > 0 {
		b.exceeded[namespace] = fmt.Sprintf("%d of %d NetworkPolicies allow their pods nothing: all have a size of %d together (%s), of %d at most",
			rejected, len(b.policies[namespace]), all, b.measure, b.limit)
	}
	return changed, min(LongestRest, time.Duration(all)*restOfRule)
}

// Over reports whether a policy exceeds the budget.
func (b *Budget) Over(namespace, name string) bool {
	s := b.policies[namespace][name]
	return s != nil && s.over
}

// Exceeded returns the namespaces with policies that exceed the budget, and a text about the limit.
func (b *Budget) Exceeded() map[string]string { return maps.Clone(b.exceeded) }

// Problem returns the problem of a policy that exceeds the budget.
func (b *Budget) Problem(namespace, name string) Problem {
	return Problem{"NetworkPolicy " + namespace + "/" + name, "spec",
		fmt.Sprintf("its size of %d (%s) is more than the older NetworkPolicies of its namespace leave of %d, so it isolates its pods and allows them nothing",
			b.policies[namespace][name].size, b.measure, b.limit),
		"write fewer peers and ports (wider CIDRs, ranges of ports, labels), or have the limit raised, -namespace-policy-limit of calico-controllers"}
}
