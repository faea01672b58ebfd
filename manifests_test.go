// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

// A podContainer is a container of a pod of the manifests.
type podContainer struct {
	file string
	pod  corev1.PodSpec
	corev1.Container
}

// containers are those of all pods that the manifests make.
func containers(t *testing.T) (all []podContainer) {
	t.Helper()
	for _, file := range []string{"calico.yaml", "calico-etcd.yaml", "calico-nsm.yaml", "calico-uninstall.yaml"} {
		for object := range strings.SplitSeq(readText(t, "k8s-manifests/"+file), "\n---\n") {
			var o struct {
				Spec struct {
					Template    corev1.PodTemplateSpec
					JobTemplate struct {
						Spec struct{ Template corev1.PodTemplateSpec }
					}
				}
			}
			if err := yaml.Unmarshal([]byte(object), &o); err != nil {
				continue // no pod: its spec is of another form
			}
			for _, pod := range []corev1.PodSpec{o.Spec.Template.Spec, o.Spec.JobTemplate.Spec.Template.Spec} {
				for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
					all = append(all, podContainer{file, pod, c})
				}
			}
		}
	}
	if len(all) < 10 {
		t.Fatalf("the manifests have %d containers", len(all))
	}
	return all
}

// privileges are what containers have beyond the least; each manifest says why.
var privileges = map[string]string{
	"calico-nsm":  "NET_ADMIN SYS_PTRACE SYS_ADMIN DAC_OVERRIDE",
	"calico-node": "NET_ADMIN NET_RAW NET_BIND_SERVICE DAC_OVERRIDE SYS_ADMIN",
	"install":     "DAC_OVERRIDE",
	"uninstall":   "privileged",
}

// TestConfined: containers run with RuntimeDefault's system calls, a root file system that is read-only, and no more rights than are listed.
func TestConfined(t *testing.T) {
	for _, c := range containers(t) {
		s := c.SecurityContext
		var has []string
		if s.Privileged != nil && *s.Privileged {
			has = append(has, "privileged")
		} else if profile := c.pod.SecurityContext.SeccompProfile; profile == nil || profile.Type != corev1.SeccompProfileTypeRuntimeDefault || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: container %s: want the seccomp profile RuntimeDefault, and all capabilities dropped", c.file, c.Name)
		}
		if s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			t.Errorf("%s: container %s: its root file system isn't read-only", c.file, c.Name)
		}
		if s.Capabilities != nil {
			for _, add := range s.Capabilities.Add {
				has = append(has, string(add))
			}
		}
		if got := strings.Join(has, " "); got != privileges[c.Name] {
			t.Errorf("%s: container %s has %q, want %q", c.file, c.Name, got, privileges[c.Name])
		}
	}
}

// TestMemoryLimits: a container that takes too much memory is ended, not its neighbours. None is throttled.
func TestMemoryLimits(t *testing.T) {
	for _, c := range containers(t) {
		if l := c.Resources.Limits; l.Memory().IsZero() || !l.Cpu().IsZero() {
			t.Errorf("%s: container %s has the limits %v: want memory alone", c.file, c.Name, l)
		}
		want := corev1.EnvVar{Name: "GOMEMLIMIT", Value: fmt.Sprintf("%dMiB", c.Resources.Limits.Memory().Value()>>20*9/10)}
		if slices.Contains([]string{"calico-node", "calico-controllers", "calico-nsm", "signer", "install"}, c.Name) && !slices.Contains(c.Env, want) {
			t.Errorf("%s: container %s hasn't %s=%s, nine tenths of its limit", c.file, c.Name, want.Name, want.Value)
		}
	}
}

// TestAuthorityOnControlPlane: a pod that mounts the Secret of an authority, or has an account that may read it, runs on the control plane alone.
func TestAuthorityOnControlPlane(t *testing.T) {
	readers := map[string]bool{} // by file and account
	authority := func(name string) bool { return name == "calico-etcd-ca" || name == "calico-nsm-ca" }
	for _, file := range []string{"calico.yaml", "calico-etcd.yaml", "calico-nsm.yaml"} {
		for _, o := range manifestObjects(t, file) {
			for _, r := range o.Rules {
				if slices.Contains(r.Resources, "secrets") && (len(r.ResourceNames) == 0 || slices.ContainsFunc(r.ResourceNames, authority)) {
					readers[file+" "+strings.TrimSuffix(o.Metadata.Name, "-etcd")] = true // TestRights has roles of no other name
				}
			}
		}
	}
	found := 0
	for _, c := range containers(t) {
		if !readers[c.file+" "+c.pod.ServiceAccountName] && !slices.ContainsFunc(c.pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && authority(v.Secret.SecretName) }) {
			continue
		}
		found++
		control, terms := "node-role.kubernetes.io/control-plane", []corev1.NodeSelectorTerm(nil)
		if a := c.pod.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			terms = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		}
		// Of several terms one is enough.
		kept := len(terms) > 0 && !slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
			return !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
				return r.Key == control && r.Operator == corev1.NodeSelectorOpExists
			})
		})
		tolerated := slices.ContainsFunc(c.pod.Tolerations, func(r corev1.Toleration) bool {
			return r.Key == control && r.Operator == corev1.TolerationOpExists && (r.Effect == "" || r.Effect == corev1.TaintEffectNoSchedule)
		})
		if !kept || !tolerated {
			t.Errorf("%s: container %s, of account %s: kept to the control plane: %v, tolerates its taint: %v", c.file, c.Name, c.pod.ServiceAccountName, kept, tolerated)
		}
	}
	if found != 4 {
		t.Errorf("%d containers may read an authority, want the Job's, the CronJob's and the signers'", found)
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
