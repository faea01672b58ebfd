// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// grant is a rule of a role.
type grant struct {
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames,omitempty"`
	Verbs         []string `json:"verbs"`
}

// TestRightsTakenAway takes every right of our roles away, one at a time: the API server refuses that very call to the account, so no other
// rule grants it too. That each is used, and so something fails without it, is TestBootstrap's.
func TestRightsTakenAway(t *testing.T) {
	p := Control(t)
	p.Kubectl("apply", "-f", filepath.Join(manifests, "calico.yaml"))
	var roles struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []grant
		}
	}
	if err := json.Unmarshal([]byte(p.Kubectl("get", "roles,clusterroles", "-n", kubeSystem, "-o", "json")), &roles); err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, role := range roles.Items {
		account := strings.TrimSuffix(role.Metadata.Name, "-etcd")                                           // bootstrap's for our own etcd
		if !strings.HasPrefix(account, "calico-") || account == "calico-admin" || account == "calico-view" { // the last are people's
			continue
		}
		apply := func(rules []grant) {
			t.Helper()
			text, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/rules", "value": rules}})
			if err != nil {
				t.Fatal(err)
			}
			p.Kubectl("patch", role.Kind, role.Metadata.Name, "-n", kubeSystem, "--type=json", "-p", string(text))
		}
		for i, rule := range role.Rules {
			eachRight(rule, func(one grant, rest []grant) {
				taken++
				allowed := func() bool {
					t.Helper()
					return p.allowed(t, "system:serviceaccount:"+kubeSystem+":"+account, one)
				}
				if !allowed() {
					t.Errorf("%s %s: %v is refused with all rights", role.Kind, account, one)
				}
				apply(slices.Concat(role.Rules[:i], role.Rules[i+1:], rest))
				eventually.True(t, fmt.Sprintf("%s %s to be refused %v", role.Kind, account, one), func() bool { return !allowed() })
			})
		}
		apply(role.Rules)
	}
	if taken < 40 {
		t.Errorf("only %d rights were found", taken)
	}
	t.Logf("%d rights", taken)
}

// allowed asks the API server whether a user has a right.
func (p *Plane) allowed(t *testing.T, user string, right grant) bool {
	t.Helper()
	resource, sub, _ := strings.Cut(right.Resources[0], "/")
	attributes := map[string]string{"namespace": kubeSystem, "verb": right.Verbs[0], "group": right.APIGroups[0], "resource": resource, "subresource": sub}
	if len(right.ResourceNames) > 0 {
		attributes["name"] = right.ResourceNames[0]
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
		"spec": map[string]any{"user": user, "resourceAttributes": attributes},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.TryKubectl(string(text), "create", "--raw", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "-f", "-")
	var review struct{ Status struct{ Allowed bool } }
	if err == nil {
		err = json.Unmarshal([]byte(out), &review)
	}
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// eachRight goes through a rule's rights, and what the rule grants without that one.
func eachRight(r grant, do func(one grant, rest []grant)) {
	names := r.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var all []grant
	for _, resource := range r.Resources {
		for _, name := range names {
			for _, verb := range r.Verbs {
				one := grant{APIGroups: r.APIGroups, Resources: []string{resource}, Verbs: []string{verb}}
				if name != "" {
					one.ResourceNames = []string{name}
				}
				all = append(all, one)
			}
		}
	}
	for i, one := range all {
		do(one, slices.Concat(all[:i], all[i+1:]))
	}
}
