// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
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

// TestMemoryLimits: a container that takes too much memory is ended, not its neighbours. None is throttled.
func TestMemoryLimits(t *testing.T) {
	type container struct {
		Name      string
		Resources struct{ Limits map[string]string }
	}
	type pod struct {
		Spec struct{ Containers, InitContainers []container }
	}
	type object struct {
		Spec struct {
			Template    pod
			JobTemplate struct{ Spec struct{ Template pod } }
		}
	}
	seen := 0
	for _, file := range []string{"calico.yaml", "calico-etcd.yaml", "calico-uninstall.yaml"} {
		for text := range strings.SplitSeq(readText(t, "k8s-manifests/"+file), "\n---\n") {
			var kind struct{ Kind string }
			if err := yaml.Unmarshal([]byte(text), &kind); err != nil || kind.Kind == "CustomResourceDefinition" {
				continue
			}
			var o object
			if err := yaml.Unmarshal([]byte(text), &o); err != nil {
				continue // no pod: its spec is of another form
			}
			for _, p := range []pod{o.Spec.Template, o.Spec.JobTemplate.Spec.Template} {
				for _, c := range append(p.Spec.Containers, p.Spec.InitContainers...) {
					seen++
					if l := c.Resources.Limits; l["memory"] == "" || l["cpu"] != "" {
						t.Errorf("%s: container %s has the limits %v: want memory alone", file, c.Name, l)
					}
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d containers", seen)
	}
}

// TestReplicasShareANode: with hostNetwork, a port that is declared keeps the second replica from a cluster's only node.
func TestReplicasShareANode(t *testing.T) {
	for _, file := range []string{"calico.yaml", "calico-etcd.yaml"} {
		deployments := 0
		for object := range strings.SplitSeq(readText(t, "k8s-manifests/"+file), "\n---\n") {
			if !strings.Contains(object, "\nkind: Deployment\n") {
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
