// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/garbage"
	"github.com/calico-go/calico/pkg/kube"
)

// TestFinished: garbage collection treats a finished pod as gone, by the watch and by a live request, and no other pod.
func TestFinished(t *testing.T) {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "u"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(pod)
	}))
	t.Cleanup(server.Close)
	client, err := kube.New(kube.Config{Name: "test", APIRoot: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for phase, finished := range map[corev1.PodPhase]bool{
		corev1.PodSucceeded: true, corev1.PodFailed: true,
		corev1.PodRunning: false, corev1.PodPending: false, corev1.PodUnknown: false, "": false, "NextVersion": false,
	} {
		pod.Status.Phase = phase
		look, err := Live{client}.Pod(t.Context(), garbage.Pod{Namespace: "ns", Name: "job"})
		if err != nil || look.Absent != finished || slices.Contains(look.UIDs, "u") == finished {
			t.Errorf("phase %q, live: %+v, %v", phase, look, err)
		}
		if kept := keepPod(pod); kept.network == finished {
			t.Errorf("phase %q, watched: %+v", phase, kept)
		}
	}
}
