// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"iter"
	"slices"
)

// smallest returns the smallest world found, by leaving things out one by one, for which differs is still true.
func smallest(w *world, differs func(*world) bool) *world {
	for again := true; again; {
		again = false
		for without := range smaller(w) {
			if differs(without) {
				w, again = without, true
				break
			}
		}
	}
	return w
}

// smaller returns the worlds with one thing less each: a pod, a policy, a rule, a peer, a port.
func smaller(w *world) iter.Seq[*world] {
	return func(yield func(*world) bool) {
		for n := 0; ; n++ {
			// The n-th thing of a copy.
			c, left := clone(w), n
			if !drop(&c.Policies, &left) && !drop(&c.ClusterPolicies, &left) && !drop(&c.Pods, &left) && !dropWithin(c, &left) {
				return
			}
			if !yield(c) {
				return
			}
		}
	}
}

// dropWithin leaves out a part of a policy. None is left without the peers or ports that it had: that would mean all.
func dropWithin(w *world, left *int) bool {
	for _, np := range w.Policies {
		if drop(&np.Spec.Ingress, left) || drop(&np.Spec.Egress, left) {
			return true
		}
		for i := range np.Spec.Ingress {
			if r := &np.Spec.Ingress[i]; dropButOne(&r.From, left) || dropButOne(&r.Ports, left) {
				return true
			}
		}
		for i := range np.Spec.Egress {
			if r := &np.Spec.Egress[i]; dropButOne(&r.To, left) || dropButOne(&r.Ports, left) {
				return true
			}
		}
	}
	for _, cnp := range w.ClusterPolicies {
		if drop(&cnp.Spec.Ingress, left) || drop(&cnp.Spec.Egress, left) {
			return true
		}
		for i := range cnp.Spec.Ingress {
			if r := &cnp.Spec.Ingress[i]; dropButOne(&r.From, left) || dropButOne(&r.Protocols, left) {
				return true
			}
		}
		for i := range cnp.Spec.Egress {
			if r := &cnp.Spec.Egress[i]; dropButOne(&r.To, left) || dropButOne(&r.Protocols, left) {
				return true
			}
		}
	}
	return false
}

// drop leaves out the element of the index, or counts the index down by the elements there are.
func drop[T any](list *[]T, left *int) bool {
	if *left < len(*list) {
		if *list = slices.Delete(*list, *left, *left+1); len(*list) == 0 {
			*list = nil // as it comes from an API server
		}
		return true
	}
	*left -= len(*list)
	return false
}

func dropButOne[T any](list *[]T, left *int) bool {
	return len(*list) > 1 && drop(list, left)
}

func clone(w *world) *world {
	data, err := json.Marshal(w)
	if err != nil {
		panic(err)
	}
	out := &world{}
	if err := json.Unmarshal(data, out); err != nil {
		panic(err)
	}
	return out
}
