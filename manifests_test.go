// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestManifests holds the files that users apply to the kustomize sources that they are made from.
func TestManifests(t *testing.T) {
	release := found(`(?m)^RELEASE +:= ([0-9.]+)`, readText(t, "Makefile"), 1)
	if len(release) != 1 {
		t.Fatalf("the Makefile has releases %q", release)
	}
	out, err := exec.Command("go", "run", "-C", "tools", "./manifests", "-check", "-release", release[0]).CombinedOutput()
	if err != nil {
		t.Errorf("run make manifests: %v\n%s", err, out)
	}
}

// TestReplicasShareANode: with hostNetwork, a port that is declared keeps the second replica from a cluster's only node.
func TestReplicasShareANode(t *testing.T) {
	for _, file := range []string{"calico.yaml", "calico-etcd.yaml"} {
		deployments := 0
		for object := range strings.SplitSeq(readText(t, "k8s-manifests/"+file), "\n---\n") {
			if !strings.Contains(object, "\nkind: Deployment\n") || !strings.Contains(object, "\n  replicas: 2\n") {
				continue
			}
			deployments++
			if strings.Contains(object, "containerPort:") || strings.Contains(object, "hostPort:") || !strings.Contains(object, "nodeTaintsPolicy: Honor") {
				t.Errorf("%s: want no ports declared, and only nodes counted that can take a replica:\n%s", file, object)
			}
		}
		if deployments != 1 {
			t.Errorf("%s: %d deployments, want that of the controllers", file, deployments)
		}
	}
}
