// SPDX-License-Identifier: Apache-2.0

// Package kubepolicy converts Kubernetes objects to the data model: a NetworkPolicy or ClusterNetworkPolicy to a
// policy, a namespace or service account to a profile, a pod to the labels, ports and profiles of its endpoint.
//
// What it can't express, or doesn't know because it belongs to a later version of the API, never allows more than the
// complete object would. Each such case is a Problem.
package kubepolicy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Prefixes of the names of policies made from Kubernetes objects.
const (
	PolicyPrefix        = "knp."
	ClusterPolicyPrefix = "kcnp."
)

// The tiers, in the order of evaluation.
const (
	AdminTier    = "kube-admin"
	PolicyTier   = model.DefaultTier
	BaselineTier = "kube-baseline"
)

// Prefixes of the labels of the namespace and of the service account in their profiles.
const (
	namespaceLabels      = model.NamespaceLabel
	serviceAccountLabels = "k8s_sa/label/"
)

// Problem describes a problem with an object, and its consequence.
type Problem struct {
	Object string // like "NetworkPolicy default/web"
	Field  string // like "spec.ingress[0].from[1]", "" = the object as a whole
	Reason string
	Remedy string // what to do
}

// String returns the problem in one line.
func (p Problem) String() string {
	at := p.Object
	if p.Field != "" {
		at += ": " + p.Field
	}
	return fmt.Sprintf("%s: %s: %s", at, p.Reason, p.Remedy)
}

// maxProblems limits the reported problems of one object; after correcting ten, the next ten are shown.
const maxProblems = 10

// report collects the problems of one object.
type report struct {
	object   string
	unknown  []string // fields, in order
	problems []Problem
	more     int
}

func (r *report) add(field, reason, remedy string) {
	if len(r.problems) == maxProblems {
		r.more++
		return
	}
	r.problems = append(r.problems, Problem{r.object, field, reason, remedy})
}

// laterRule reports whether a rule has unknown fields, such as those of a later version of the API.
func (r *report) laterRule(field, effect string) bool {
	i, _ := slices.BinarySearch(r.unknown, field+".")
	if i == len(r.unknown) || !strings.HasPrefix(r.unknown[i], field+".") {
		return false
	}
	r.later(r.unknown[i], effect)
	return true
}

// laterSpec reports whether anything other than a rule has unknown fields. They may determine what all rules apply to.
func (r *report) laterSpec(effect string) (found bool) {
	for _, field := range r.unknown {
		// NetworkPolicies of Kubernetes 1.24 to 1.27 have a status.
		if !slices.ContainsFunc([]string{"spec.ingress[", "spec.egress[", "metadata.", "status."}, func(prefix string) bool { return strings.HasPrefix(field+".", prefix) }) {
			r.later(field, effect)
			found = true
		}
	}
	return found
}

func (r *report) later(field, effect string) {
	r.add(field, "it is not known, "+effect, "leave it out, or upgrade where it is of a later version")
}

// all returns the problems; the last one says how many more there are.
func (r *report) all() []Problem {
	if r.more == 0 {
		return r.problems
	}
	return append(r.problems, Problem{r.object, "", fmt.Sprintf("%d more problems", r.more), "correct the first ones"})
}

// PolicyKey returns the key under which a NetworkPolicy is stored.
func PolicyKey(namespace, name string) model.PolicyKey {
	return model.PolicyKey{Tier: PolicyTier, Policy: PolicyPrefix + namespace + "." + name}
}

// ClusterPolicyKey returns the key under which a ClusterNetworkPolicy in one of our tiers is stored.
func ClusterPolicyKey(tier, name string) model.PolicyKey {
	return model.PolicyKey{Tier: tier, Policy: ClusterPolicyPrefix + name}
}
