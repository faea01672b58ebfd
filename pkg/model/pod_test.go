// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/google/go-cmp/cmp"
)

func TestPodLabels(t *testing.T) {
	own := map[string]string{
		"app": "web", "calico/k8s_ns": "kube-system", "calico/x": "1", "projectcalico.org/serviceaccount": "root", "projectcalico.org/namespace": "kube-system",
		"pcns.x": "1", "pcsa.x": "1", "k8s_ns.kube-system": "", "example.org/calico/": "kept", "pcnsx": "kept",
	}
	want := map[string]string{
		"app": "web", "calico/k8s_ns": "shop", "projectcalico.org/serviceaccount": "cart", "example.org/calico/": "kept", "pcnsx": "kept",
	}
	if diff := cmp.Diff(want, model.PodLabels("shop", "cart", own)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"calico/k8s_ns": "shop"}, model.PodLabels("shop", "", nil)); diff != "" {
		t.Errorf("without labels (-want +got):\n%s", diff)
	}
}

func TestPodProfiles(t *testing.T) {
	for account, want := range map[string][]string{"": {"k8s_ns.shop"}, "cart": {"k8s_ns.shop", "ksa.shop.cart"}} {
		if diff := cmp.Diff(want, model.PodProfiles("shop", account)); diff != "" {
			t.Errorf("account %q (-want +got):\n%s", account, diff)
		}
	}
}
