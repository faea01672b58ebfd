// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// TestSlowApplications runs what people run on a cluster that was installed by one kubectl apply, and looks after each for
// what is left.
func TestSlowApplications(t *testing.T) {
	c := Up(t, Images(t)...)
	etcd := c.Install(Manifest(t))
	c.AwaitClean(etcd)
	run := func(name string, fn func(t *testing.T)) {
		c.Run(t, name, func(t *testing.T) {
			fn(t)
			c.AwaitClean(etcd)
		})
		c.AwaitClean(etcd)
	}

	run("Scale", func(t *testing.T) {
		c.namespace(t, "scale")
		c.Apply(workload("Deployment", "scale", "idle", 30, idle))
		for _, replicas := range []int{30, 0, 30, 0, 30, 0, 30} {
			c.Kubectl("scale", "-n", "scale", "deployment/idle", fmt.Sprintf("--replicas=%d", replicas))
			c.AwaitPods(replicas, "-n", "scale")
			c.AwaitClean(etcd)
		}
	})

	run("StatefulSet", func(t *testing.T) {
		c.namespace(t, "states")
		c.Apply(workload("StatefulSet", "states", "db", 3, idle))
		before := c.AwaitPods(3, "-n", "states")
		c.Kubectl("rollout", "restart", "-n", "states", "statefulset/db")
		c.Kubectl("rollout", "status", "-n", "states", "statefulset/db", "--timeout=120s")
		after := c.AwaitPods(3, "-n", "states")
		for i := range after {
			if before[i].Name != after[i].Name || before[i].UID == after[i].UID {
				t.Errorf("after a restart: %+v, before: %+v", after[i], before[i])
			}
		}
		c.AwaitClean(etcd)
		c.Kubectl("delete", "pod", "-n", "states", "db-0", "db-1", "--force", "--grace-period=0")
		c.AwaitPods(3, "-n", "states")
	})

	run("Drain", func(t *testing.T) {
		c.namespace(t, "drain")
		c.Apply(workload("Deployment", "drain", "idle", 10, idle))
		c.AwaitPods(10, "-n", "drain")
		c.Kubectl("drain", "node-b", "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app=idle", "--timeout=120s")
		for _, p := range c.AwaitPods(10, "-n", "drain") {
			if p.Node != "node-a" {
				t.Errorf("after node-b was drained, %s is on %s", p.Name, p.Node)
			}
		}
		c.AwaitClean(etcd)
		c.Kubectl("uncordon", "node-b")
	})

	run("Services", func(t *testing.T) {
		c.namespace(t, "services")
		spread := strings.Replace(workload("Deployment", "services", "web", 2, web), "terminationGracePeriodSeconds: 1",
			"terminationGracePeriodSeconds: 1\n      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]", 1)
		c.Apply(spread + service("services", "web"))
		pods := c.AwaitPods(2, "-n", "services")
		if pods[0].Node == pods[1].Node {
			t.Fatalf("both pods are on %s", pods[0].Node)
		}
		addr := c.serviceAddress("services", "web")
		// From each node both answer: one across nodes, and one is the pod itself.
		for _, from := range pods {
			seen := map[string]bool{}
			eventually.Within(t, Patience, "both pods to answer "+from.Name, func() error {
				name, err := c.get(from, addr, "80")
				seen[name] = true
				if err == nil && !(seen[pods[0].Name] && seen[pods[1].Name]) {
					err = fmt.Errorf("seen %v", seen)
				}
				return err
			})
		}
		// A pod reaches the API server by its service, on its own node as on the other.
		for _, from := range pods {
			eventually.Within(t, Patience, from.Name+" to reach the API server", func() error { return c.connect(from, apiService+":443") })
		}
	})

	run("DefaultDeny", func(t *testing.T) {
		c.namespace(t, "closed")
		c.Apply(workload("Deployment", "closed", "web", 1, web) + workload("Deployment", "closed", "client", 1, web) + service("closed", "web"))
		c.AwaitPods(2, "-n", "closed")
		c.Apply(policy("closed", "default-deny", `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
		addr := c.serviceAddress("closed", "web")
		client := c.Pods("-n", "closed", "-l", "app=client")[0]
		eventually.True(t, "the client to be cut off", func() bool { return c.connect(client, addr+":80") != nil })
		// Probes come from the pod's own node: a pod that starts now gets ready.
		c.Kubectl("rollout", "restart", "-n", "closed", "deployment/web")
		c.Kubectl("rollout", "status", "-n", "closed", "deployment/web", "--timeout=120s")
		c.AwaitPods(1, "-n", "closed", "-l", "app=web")
		client = c.AwaitPods(1, "-n", "closed", "-l", "app=client")[0]
		if err := c.connect(client, addr+":80"); err == nil {
			t.Error("a client reaches a new pod in spite of default deny")
		}
		if out := c.Kubectl("exec", "-n", "closed", client.Name, "--", "echo", "in"); out != "in\n" {
			t.Errorf("exec: %q", out)
		}
		c.portForward(t, "closed", "deployment/web")
		c.Apply(policy("closed", "web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: http}]}]}`) +
			policy("closed", "client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}`))
		eventually.Within(t, Patience, "the client to be let through", func() error { return c.connect(client, addr+":80") })
	})

	run("Probes", c.testProbes)

	// A pod that is to be deleted works, and is guarded by policy, until its container has ended.
	run("Leaving", func(t *testing.T) {
		c.namespace(t, "leaving")
		slow := strings.NewReplacer("terminationGracePeriodSeconds: 1", "terminationGracePeriodSeconds: 20", `args: [netexec`,
			`lifecycle: {preStop: {sleep: {seconds: 15}}}, args: [netexec`)
		c.Apply(slow.Replace(workload("Deployment", "leaving", "web", 1, web)) + workload("Deployment", "leaving", "client", 1, web) +
			policy("leaving", "default-deny", `{podSelector: {}, policyTypes: [Ingress, Egress]}`) +
			policy("leaving", "each-other", `{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [web, client]}]}}]}], egress: [{to: [{podSelector: {}}]}]}`))
		c.AwaitPods(2, "-n", "leaving")
		server, client := c.Pods("-n", "leaving", "-l", "app=web")[0], c.Pods("-n", "leaving", "-l", "app=client")[0]
		id := strings.TrimPrefix(c.Kubectl("get", "pod", "-n", "leaving", server.Name, "-o", "jsonpath={.status.containerStatuses[0].containerID}"), "containerd://")
		runs := func() bool {
			out, err := c.Node(server.Node).ctr("tasks", "ls").Output()
			if err != nil {
				t.Fatal(err)
			}
			return regexp.MustCompile(id + ` .*RUNNING`).Match(out)
		}
		both := func() error {
			return errors.Join(c.connect(client, server.IP.String()+":8080"), c.connect(server, client.IP.String()+":8080"))
		}
		eventually.Within(t, Patience, "both to reach each other", both)
		c.Kubectl("delete", "pod", "-n", "leaving", server.Name, "--wait=false")
		c.Kubectl("label", "pod", "-n", "leaving", server.Name, "leaving=yes")
		asked := 0
		for ; runs(); asked++ {
			if err := both(); err != nil && runs() {
				t.Fatalf("request %d of a pod that is leaving: %v", asked, err)
			}
		}
		if asked < 3 {
			t.Errorf("only %d requests were made while the pod was leaving", asked)
		}
		c.AwaitPods(2, "-n", "leaving")
	})
}

// portForward asks a web server through kubectl port-forward.
func (c *Cluster) portForward(t *testing.T, namespace, target string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, "kubectl"), "--kubeconfig", c.Kubeconfig, "port-forward", "-n", namespace, target, ":8080")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("kubectl port-forward: %v", err)
	}
	// Forwarding from 127.0.0.1:40001 -> 8080
	reply, err := http.Get("http://" + strings.Fields(line)[2] + "/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }() // its status is what was asked for
	if reply.StatusCode != http.StatusOK {
		t.Errorf("by port-forward: %s", reply.Status)
	}
}
