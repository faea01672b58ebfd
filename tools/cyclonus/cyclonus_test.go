// SPDX-License-Identifier: Apache-2.0

// Package cyclonus runs cyclonus' cases of NetworkPolicy on the cluster of KUBECONFIG: it generates policies, tries each port of each of nine
// pods from each of them, and compares that with its own reading of the policies. Its own command starts a process in a pod for each try;
// this has the pods' worker do all those of one pod.
package cyclonus

import (
	"flag"
	"strings"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/kube"
	corev1 "k8s.io/api/core/v1"
)

var (
	include = flag.String("include", "", "run cases with one of these tags; empty is all")
	exclude = flag.String("exclude", "sctp", "leave out cases with one of these tags; not every kernel has SCTP")
)

func TestCases(t *testing.T) {
	client, err := kube.NewKubernetesForContext("")
	if err != nil {
		t.Fatal(err)
	}
	with, without := tags(t, *include), tags(t, *exclude)
	namespaces, protocols := []string{"x", "y", "z"}, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}
	resources, err := probe.NewDefaultResources(client, namespaces, []string{"a", "b", "c"}, []int{80, 81}, protocols, nil, 300, true, "")
	if err != nil {
		t.Fatal(err)
	}
	blocked, err := resources.GetPod("z", "c") // of cases about blocks of addresses
	if err != nil {
		t.Fatal(err)
	}
	// What isn't as expected is asked for again: policies are in effect when they are. A pod always reaches itself, which cyclonus
	// doesn't know.
	interpreter := connectivity.NewInterpreter(client, resources, &connectivity.InterpreterConfig{
		ResetClusterBeforeTestCase: true, VerifyClusterStateBeforeTestCase: true, PerturbationWaitSeconds: 1, KubeProbeRetries: 5, BatchJobs: true, IgnoreLoopback: true,
	})
	for _, c := range generator.NewTestCaseGenerator(true, blocked.IP, namespaces, with, without).GenerateTestCases() {
		for _, step := range c.Steps {
			step.Probe.Mode = generator.ProbeModePodIP // no DNS is needed
		}
		t.Run(c.Description, func(t *testing.T) {
			result := interpreter.ExecuteTestCase(c)
			if result.Err != nil {
				t.Fatal(result.Err)
			}
			if !result.Passed(true) {
				(&connectivity.Printer{IgnoreLoopback: true}).PrintTestCaseResult(result)
				t.Fail()
			}
		})
	}
	for _, ns := range namespaces {
		if err := client.DeleteNamespace(ns); err != nil {
			t.Error(err)
		}
	}
}

func tags(t *testing.T, list string) []string {
	t.Helper()
	if list == "" {
		return nil
	}
	all := strings.Split(list, ",")
	if err := generator.ValidateTags(all); err != nil {
		t.Fatal(err)
	}
	return all
}
