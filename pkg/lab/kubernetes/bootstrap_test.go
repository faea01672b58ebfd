// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

const kubeSystem = "kube-system"

// TestBootstrap installs Calico and then asks everything of the manifests again that may be asked twice.
func TestBootstrap(t *testing.T) {
	c := Up(t, Images(t)...)
	etcd := c.Install(Manifest(t))

	c.Run(t, "diff", func(t *testing.T) {
		if out, err := c.TryKubectl("", "diff", "-f", Manifest(t)); err != nil || out != "" {
			t.Errorf("kubectl diff after kubectl apply: %v\n%s", err, out)
		}
	})

	c.Run(t, "again", func(t *testing.T) {
		before := c.secrets(t)
		if len(before) != 4 {
			t.Errorf("secrets %v", slices.Collect(maps.Keys(before)))
		}
		c.Kubectl("delete", "job", "-n", kubeSystem, "-l", "k8s-app=calico-bootstrap")
		c.Kubectl("apply", "-f", Manifest(t))
		c.Kubectl("wait", "-n", kubeSystem, "--for=condition=Complete", "--timeout=120s", "job", "-l", "k8s-app=calico-bootstrap")
		c.maintain("unchanged")
		if diff := cmp.Diff(before, c.secrets(t)); diff != "" {
			t.Errorf("what is good was made anew (-before +after):\n%s", diff)
		}
	})

	// A certificate that is of no use is made anew, as one is whose time has come; the authority stays.
	c.Run(t, "renew", func(t *testing.T) {
		before := c.secrets(t)
		c.Kubectl("patch", "secret", "-n", kubeSystem, "calico-etcd-controllers", "-p", `{"data": {"etcd-cert": ""}}`)
		c.maintain("renewed")
		after := c.secrets(t)
		for name := range before {
			if (before[name] == after[name]) == (name == "calico-etcd-controllers") {
				t.Errorf("secret %s: %s, then %s", name, before[name], after[name])
			}
		}
		// The controllers go on, with connections that they make anew.
		c.Kubectl("rollout", "restart", "-n", kubeSystem, "deployment/calico-controllers")
		c.Kubectl("rollout", "status", "-n", kubeSystem, "deployment/calico-controllers", "--timeout=180s")
	})

	c.Run(t, "members", func(t *testing.T) {
		if out := c.Kubectl("get", "nodes", "-l", "projectcalico.org/etcd=member", "-o", "name"); out != "node/node-a\n" {
			t.Errorf("etcd's nodes: %q", out)
		}
		if out := c.Kubectl("get", "configmap", "-n", kubeSystem, "calico-etcd", "-o", "jsonpath={.data.endpoints}"); out != "https://"+c.Nodes[0].Address.String()+":2479" {
			t.Errorf("endpoints: %q", out)
		}
	})

	// The roles have the rights that are used, and no others: an account that loses one is refused.
	c.Run(t, "rights", func(t *testing.T) {
		b := c.Node("node-b")
		// The agent asks for a pod that its watch doesn't show.
		b.Run("curl", "-s", "--unix-socket", "/run/calico/agent.sock", "http://agent/v1/pod?namespace=default&name=nobody")
		// A foreign configuration comes first: an event, and again.
		for n := range 2 {
			b.Write("/etc/cni/net.d/.05-other.conflist", `{"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "ptp"}]}`)
			b.Run("mv", "/etc/cni/net.d/.05-other.conflist", "/etc/cni/net.d/05-other.conflist")
			c.eventTimes("AnotherNetworkConfiguration", n+1)
			b.Run("rm", "/etc/cni/net.d/05-other.conflist")
			eventually.Within(t, Patience, "the agent to see that it is gone", func() error {
				state := b.Run("curl", "-s", "http://127.0.0.1:9099/debug/invalid")
				if strings.Contains(state, "05-other") {
					return errors.New(state)
				}
				return nil
			})
		}
		// The network of a node is reported unavailable, and a pod has a reserved label: an event, and again.
		c.Kubectl("patch", "node", "node-b", "--subresource=status", "-p", `{"status": {"conditions": [{"type": "NetworkUnavailable", "status": "True", "reason": "Test"}]}}`)
		c.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: odd, namespace: default}, spec: {containers: [{name: a, image: none.test/none, imagePullPolicy: Never}]}}`)
		for range 2 {
			c.Kubectl("label", "pod", "odd", "calico/k8s_ns=other")
			c.Kubectl("label", "pod", "odd", "calico/k8s_ns-")
		}
		// A node is asked for its status.
		c.Apply(`{apiVersion: projectcalico.org/v3, kind: CalicoNodeStatus, metadata: {name: b}, spec: {node: node-b, classes: [Agent, BGP, Routes]}}`)
		c.Eventually("the node's status", func(out string) error {
			if !strings.HasPrefix(out, "Ready 1 172.18.0.11") || !strings.Contains(out, "10.244.") {
				return errors.New(out)
			}
			return nil
		}, "get", "caliconodestatus", "b", "-o", "jsonpath={.status.agent.birdV4.state} {.status.bgp.numberEstablishedV4} {.status.bgp.peersV4[*].peerIP} {.status.routes.routesV4[*].destination}")
		// A rule names a Service.
		c.Apply(`{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: api}, spec: {selector: role == 'nobody', egress: [{action: Allow, destination: {services: {name: kubernetes, namespace: default}}}]}}`)
		api := model.ServiceKey{Name: "default/kubernetes"}
		eventually.True(t, "what the Service leads to is in etcd", func() bool {
			s, err := etcd.Read(t.Context(), model.KeyRange(api))
			e, _ := s.Get(api)
			value, _ := e.Value.(model.Service)
			return err == nil && len(value.Endpoints) > 0
		})
		// Of an object that is deleted the controllers ask once more before its key goes.
		c.DefineClusterNetworkPolicies()
		short := "{apiVersion: v1, kind: Namespace, metadata: {name: short}}\n---\n" + policy("short", "closed", "{podSelector: {}}") +
			"{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: short}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}}}\n"
		c.Apply(short)
		held := func() bool {
			tier, err := etcd.Read(t.Context(), model.KeyRange(model.PolicyKey{Tier: "kube-admin", Policy: "kcnp.short"}))
			return err == nil && len(tier.Entries()) > 0
		}
		eventually.True(t, "the cluster's policy to be in etcd", held)
		if _, err := c.TryKubectl(short, "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
		eventually.True(t, "the cluster's policy to be gone from etcd", func() bool { return !held() })
		want := c.rights(t)
		eventually.Within(t, Patience, "every right of the roles to be used", func() error {
			used := c.calls(t).used
			var unused []string
			for right := range want {
				if !used[right] && !rare(right) {
					unused = append(unused, right)
				}
			}
			slices.Sort(unused)
			if len(unused) > 0 {
				return fmt.Errorf("not used:\n%s", strings.Join(unused, "\n"))
			}
			return nil
		})
		if refused := c.calls(t).refused; len(refused) > 0 {
			t.Errorf("the API server refused what the roles should allow:\n%s", strings.Join(refused, "\n"))
		}
	})

	// Its few capabilities are all that the agent needs.
	if log := c.Kubectl("logs", "-n", kubeSystem, "-l", "k8s-app=calico-node", "--tail=-1"); strings.Contains(log, "read-only file system") || strings.Contains(log, "not permitted") {
		t.Errorf("the agent lacks something:\n%s", log)
	}

	// Who lacks a right says which, and who grants it, among the last that it says.
	c.Run(t, "refused", func(t *testing.T) {
		for account, object := range map[string]string{"calico-node": "daemonset/calico-node", "calico-controllers": "deployment/calico-controllers"} {
			c.Kubectl("patch", "clusterrole", account, "--type=json", "-p", `[{"op": "remove", "path": "/rules/0"}]`) // of pods, and others
			c.Kubectl("rollout", "restart", "-n", kubeSystem, object)
			c.Eventually("the log of "+account+" to end with what it lacks", func(out string) error {
				for line := range strings.Lines(out) {
					if strings.Contains(line, " is forbidden: ") && strings.Contains(line, "cannot watch resource") && strings.Contains(line, "give this account the right: ") {
						return nil
					}
				}
				return errors.New(out)
			}, "logs", "-n", kubeSystem, "-l", "k8s-app="+account, "--tail=20")
		}
	})
}

// secrets are etcd's, as hashes of what they hold.
func (c *Cluster) secrets(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(c.Kubectl("get", "secrets", "-n", kubeSystem, "-l", "k8s-app=calico-etcd", "-o",
		`jsonpath={range .items[*]}{.metadata.name}={.metadata.resourceVersion}{"\n"}{end}`)) {
		name, version, _ := strings.Cut(strings.TrimSpace(line), "=")
		out[name] = version
	}
	return out
}

// maintain runs the CronJob now.
func (c *Cluster) maintain(name string) {
	c.tb.Helper()
	c.Kubectl("create", "job", "-n", kubeSystem, name, "--from=cronjob/calico-etcd-maintenance")
	c.Kubectl("wait", "-n", kubeSystem, "--for=condition=Complete", "--timeout=120s", "job/"+name)
}

// calls are what our service accounts asked of the API server.
type calls struct {
	refused []string
	used    map[string]bool // "calico-node list pods"
}

func (c *Cluster) calls(t *testing.T) calls {
	t.Helper()
	out := calls{used: map[string]bool{}}
	for line := range strings.Lines(c.Audit()) {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      *struct{ Resource, Subresource, Name, APIGroup string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			continue // the last line may be half written
		}
		account, ours := strings.CutPrefix(e.User.Username, "system:serviceaccount:"+kubeSystem+":calico-")
		if !ours || e.ObjectRef == nil {
			continue
		}
		resource := strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
		call := fmt.Sprintf("calico-%s %s %s", account, e.Verb, resource)
		if e.ResponseStatus.Code == 403 {
			out.refused = append(out.refused, call+" "+e.ObjectRef.Name)
			continue
		}
		out.used[call] = true
	}
	return out
}

// eventTimes waits until an event of that reason is told so many times.
func (c *Cluster) eventTimes(reason string, n int) {
	c.tb.Helper()
	c.Eventually(fmt.Sprintf("event %s, %d times", reason, n), func(out string) error {
		if out = strings.TrimSpace(out); out != strconv.Itoa(n) {
			return fmt.Errorf("it was told %q times", out)
		}
		return nil
	}, "get", "events", "-n", "default", "--field-selector=reason="+reason, "-o", "jsonpath={.items[*].count}")
}

// rare says of a right that it is used where this test doesn't go.
func rare(right string) bool {
	switch right {
	case "calico-controllers get pods", "calico-controllers get nodes", "calico-controllers patch nodes/status", "calico-controllers get daemonsets": // minutes after a pod, a node or its agent has gone
		return true
	case "calico-bootstrap get pods": // of an API server before 1.30
		return true
	case "calico-bootstrap approve signers", "calico-bootstrap sign signers": // which are asked by the API server itself
		return true
	case "calico-controllers patch namespaces/status": // of a namespace with too many NetworkPolicies
		return true
	case "calico-controllers get customresourcedefinitions": // of a resource whose object is gone
		return true
	case "calico-node get namespaces": // a pod of a namespace that was made a moment ago
		return true
	}
	for _, k := range resource.CustomKinds() { // TestResources uses them for the controllers
		if of := strings.ToLower(k.Plural); right == "calico-controllers patch "+of+"/status" || right == "calico-controllers get "+of && k.Name != "NetworkPolicy" {
			return true
		}
	}
	// Lists are for API servers that can't begin a watch with what there is (before 1.34, or without WatchList).
	_, verb, _ := strings.Cut(right, " ")
	return strings.HasPrefix(verb, "list ") && right != "calico-bootstrap list nodes"
}

// rights are what the roles of our service accounts grant, in the words of calls.
func (c *Cluster) rights(t *testing.T) map[string]bool {
	t.Helper()
	type rule struct{ Resources, Verbs []string }
	var all struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []rule
			RoleRef  struct{ Kind, Name string }
			Subjects []struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(c.Kubectl("get", "roles,rolebindings,clusterroles,clusterrolebindings", "-n", kubeSystem, "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	rules := map[string][]rule{}
	for _, o := range all.Items {
		rules[o.Kind+"/"+o.Metadata.Name] = o.Rules
	}
	out := map[string]bool{}
	for _, o := range all.Items {
		for _, s := range o.Subjects {
			if !strings.HasPrefix(s.Name, "calico-") {
				continue
			}
			for _, r := range rules[o.RoleRef.Kind+"/"+o.RoleRef.Name] {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						out[s.Name+" "+verb+" "+resource] = true
					}
				}
			}
		}
	}
	return out
}
