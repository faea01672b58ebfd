// SPDX-License-Identifier: Apache-2.0

// Package kubepolicy says what Kubernetes' objects are in the data model: a
// NetworkPolicy or ClusterNetworkPolicy a policy, a namespace or service
// account a profile, a pod the labels, ports and profiles of its endpoint.
//
// What it can't express, or doesn't know as it is of a later version of the API,
// never lets more through than the whole would. Each such thing is a Problem.
package kubepolicy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// What begins the names of the policies that are made of Kubernetes' objects.
const (
	PolicyPrefix        = "knp."
	ClusterPolicyPrefix = "kcnp."
)

// The tiers, in the order in which they are asked.
const (
	AdminTier    = "kube-admin"
	PolicyTier   = model.DefaultTier
	BaselineTier = "kube-baseline"
)

// Labels of the namespace and of the service account are the profile's, with this in front.
const (
	namespaceLabels      = "k8s_ns/label/"
	serviceAccountLabels = "k8s_sa/label/"
)

// Problem is what is wrong with an object, and what was made of it.
type Problem struct {
	Object string // like "NetworkPolicy default/web"
	Field  string // like "spec.ingress[0].from[1]", "" = the object as a whole
	Reason string
	Remedy string // what to do
}

// String is all of it in one line.
func (p Problem) String() string {
	at := p.Object
	if p.Field != "" {
		at += ": " + p.Field
	}
	return fmt.Sprintf("%s: %s: %s", at, p.Reason, p.Remedy)
}

// maxProblems bounds what is told of one object: who corrects ten sees the next ten.
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

// laterRule reports whether a rule has fields that aren't known, as those of a later version of the API.
func (r *report) laterRule(field, effect string) bool {
	i, _ := slices.BinarySearch(r.unknown, field+".")
	if i == len(r.unknown) || !strings.HasPrefix(r.unknown[i], field+".") {
		return false
	}
	r.later(r.unknown[i], effect)
	return true
}

// laterSpec reports whether anything but a rule has fields that aren't known. They may decide to what all rules apply.
func (r *report) laterSpec(effect string) (found bool) {
	for _, field := range r.unknown {
		// Kubernetes 1.24 to 1.27 have a status of NetworkPolicies.
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

// all are the problems; the last says how many more there are.
func (r *report) all() []Problem {
	if r.more == 0 {
		return r.problems
	}
	return append(r.problems, Problem{r.object, "", fmt.Sprintf("%d more problems", r.more), "correct the first ones"})
}

// PolicyKey is where a NetworkPolicy is stored.
func PolicyKey(namespace, name string) model.PolicyKey {
	return model.PolicyKey{Tier: PolicyTier, Policy: PolicyPrefix + namespace + "." + name}
}

// ClusterPolicyKey is where a ClusterNetworkPolicy of a tier of ours is stored.
func ClusterPolicyKey(tier, name string) model.PolicyKey {
	return model.PolicyKey{Tier: tier, Policy: ClusterPolicyPrefix + name}
}
