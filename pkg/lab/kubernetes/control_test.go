// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"strings"
	"testing"
)

func TestControl(t *testing.T) {
	p := Control(t)
	p.Apply(`{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: till, namespace: shop}, spec: {containers: [{name: a, image: none}]}}
`)
	p.KillAPI()
	if out, err := p.TryKubectl("", "get", "namespaces"); err == nil {
		t.Errorf("an API server that was killed answers: %s", out)
	}
	p.StartAPI()
	if out := p.Kubectl("get", "pods", "-A", "-o", "name"); out != "pod/till\n" {
		t.Errorf("pods after a restart: %q", out)
	}
	// Another's name has another's rights.
	p.Kubeconfig = p.KubeconfigAs("system:serviceaccount:shop:default")
	if out, err := p.TryKubectl("", "get", "pods", "-A"); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("a service account without rights reads pods: %v %s", err, out)
	}
}
