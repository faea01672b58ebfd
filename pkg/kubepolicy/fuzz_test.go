// SPDX-License-Identifier: Apache-2.0

package kubepolicy_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// FuzzPolicy: whatever can be decoded is stored as something that can be read again, lets nothing through that the API wouldn't, and
// says so where it lets less.
func FuzzPolicy(f *testing.F) {
	for _, row := range policyRows {
		spec, err := yaml.YAMLToJSON([]byte(row.spec))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(append([]byte(`{"metadata":{"namespace":"n1","name":"a"},"spec":`), spec...), '}'))
	}
	c := chooser{rand.New(rand.NewPCG(1, 1))}
	for range 20 {
		data, err := json.Marshal(c.policy("a"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	w := c.world()
	f.Fuzz(func(t *testing.T, data []byte) {
		np := &networkingv1.NetworkPolicy{}
		if json.Unmarshal(data, np) != nil {
			return
		}
		np.Name = "a"
		key, p, problems := kubepolicy.Policy(np)
		roundTrip(t, p)
		s := slow{w, []*networkingv1.NetworkPolicy{np}}
		st := s.state(t, model.Put{Key: key, Value: p})
		for _, f := range s.flows() {
			want, got := s.allows(f), s.verdict(st, f)
			if accepted := got.Verdict == policy.Accept; accepted && !want || accepted != want && len(problems) == 0 {
				t.Fatalf("%v: allowed %t by the API, but %s; problems %v\n%s\n%s", f, want, got.Verdict, problems, trail(got), dump(np))
			}
		}
	})
}

// FuzzPod: whatever can be decoded is stored as something that can be read again, and says no other namespace than the pod's.
func FuzzPod(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"n1","name":"a","labels":{"calico/k8s_ns":"n2","a":"x"}},"spec":{"serviceAccountName":"s","containers":[{"ports":[{"name":"web","containerPort":80}]}]}}`))
	f.Add([]byte(`{"spec":{"initContainers":[{"restartPolicy":"Always","ports":[{"name":"web","protocol":"UDP","containerPort":-1}]},null]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		pod := &corev1.Pod{}
		if json.Unmarshal(data, pod) != nil {
			return
		}
		w, _ := kubepolicy.Pod(pod)
		if w.Labels[model.LabelNamespace] != pod.Namespace {
			t.Errorf("namespace %q, want %q", w.Labels[model.LabelNamespace], pod.Namespace)
		}
		e := model.WorkloadEndpoint{State: model.StateActive, Name: "cali1", Labels: w.Labels, Ports: w.Ports, ProfileIDs: w.Profiles}
		stored, err := model.FormatValue(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := model.ParseValue(model.WorkloadEndpointKey{}, stored); err != nil {
			t.Fatalf("%s: %v", stored, err)
		}
	})
}

// FuzzClusterPolicy: as FuzzPolicy, where a direction is open but for what the policy says.
func FuzzClusterPolicy(f *testing.F) {
	for _, row := range clusterRows {
		spec, err := yaml.YAMLToJSON([]byte(row.spec))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(append([]byte(`{"metadata":{"name":"a"},"spec":`), spec...), '}'))
	}
	c := chooser{rand.New(rand.NewPCG(1, 2))}
	for range 20 {
		data, err := json.Marshal(c.clusterPolicy("a"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	w := c.world()
	f.Fuzz(func(t *testing.T, data []byte) {
		cnp := &v1alpha2.ClusterNetworkPolicy{}
		if json.Unmarshal(data, cnp) != nil {
			return
		}
		cnp.Name = "a"
		key, p, problems := kubepolicy.ClusterPolicy(cnp, w.nodes())
		roundTrip(t, p)
		s := slowCluster{slow{world: w}, []*v1alpha2.ClusterNetworkPolicy{cnp}, w.nodes()}
		st := s.state(t, append(kubepolicy.Tiers(), model.Put{Key: key, Value: p})...)
		for _, f := range s.flows() {
			want, got := s.allows(f), s.verdict(st, f)
			if accepted := got.Verdict == policy.Accept; accepted && !want || accepted != want && len(problems) == 0 {
				t.Fatalf("%v: allowed %t by the API, but %s; problems %v\n%s\n%s", f, want, got.Verdict, problems, trail(got), dump(cnp))
			}
		}
	})
}
