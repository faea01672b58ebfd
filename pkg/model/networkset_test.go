// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// TestNetworkSetMatched: a set's own labels never say who it is, or whose.
func TestNetworkSetMatched(t *testing.T) {
	own := map[string]string{
		"role": "x", "example.com/a": "b", "calico/k8s_ns": "other", "projectcalico.org/name": "other", "projectcalico.org/kind": "Pod", "projectcalico.org/serviceaccount": "admin",
		"pcns.team": "x", "pcsa.team": "x", "k8s_ns/label/team": "x", "k8s_sa/label/team": "x", "k8s_ns.other": "",
	}
	for _, tc := range []struct {
		name     string
		labels   map[string]string
		profiles []string
	}{
		{"office", map[string]string{"role": "x", "example.com/a": "b", "projectcalico.org/name": "office", "projectcalico.org/kind": "GlobalNetworkSet"}, nil},
		{"shop/office", map[string]string{
			"role": "x", "example.com/a": "b", "projectcalico.org/name": "office", "projectcalico.org/kind": "NetworkSet", "calico/k8s_ns": "shop",
		}, []string{"k8s_ns.shop"}},
	} {
		labels, profiles := model.NetworkSetKey{Name: tc.name}.Matched(own)
		if diff := cmp.Diff(tc.labels, labels) + cmp.Diff(tc.profiles, profiles); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
	if own["projectcalico.org/name"] != "other" || len(own) != 11 {
		t.Errorf("the set's own labels were changed: %v", own)
	}
}
