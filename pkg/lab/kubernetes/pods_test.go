// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// TestPods: a static pod is known by the uid that kubelet has for it, and a pod of a new namespace waits while no controllers run.
func TestPods(t *testing.T) {
	c := Up(t, Images(t)...)
	etcd := c.Install(Manifest(t))
	b := c.Node("node-b")
	c.Run(t, "static", func(t *testing.T) {
		endpoint := func() (found model.WorkloadEndpoint, err error) {
			key := model.WorkloadEndpointKey{Host: "node-b", Orchestrator: "k8s", Workload: "default.static-node-b", Endpoint: "eth0"}
			s, err := etcd.Read(t.Context(), model.KeyRange(key))
			if err != nil {
				return found, err
			}
			e, _ := s.Get(key)
			found, ok := e.Value.(model.WorkloadEndpoint)
			if !ok {
				return found, fmt.Errorf("no endpoint %s", key.Path())
			}
			return found, nil
		}
		labelled := func(app string) (found model.WorkloadEndpoint) {
			t.Helper()
			eventually.Within(t, Patience, "the endpoint's label app="+app, func() (err error) {
				if found, err = endpoint(); err == nil && found.Labels["app"] != app {
					err = fmt.Errorf("labels %v", found.Labels)
				}
				return err
			})
			return found
		}
		write := func(app string) {
			b.Write("/etc/kubernetes/manifests/static.yaml", fmt.Sprintf(
				"apiVersion: v1\nkind: Pod\nmetadata: {name: static, namespace: default, labels: {app: %s}}\nspec: {terminationGracePeriodSeconds: 1, containers: [%s]}\n", app, idle))
		}
		write("one")
		first := c.AwaitPods(1, "-l", "app=one")[0]
		was := labelled("one")
		if mirrored := c.Kubectl("get", "pod", first.Name, "-o", `jsonpath={.metadata.annotations.kubernetes\.io/config\.mirror}`); was.PodUID != mirrored || was.PodUID == first.UID {
			t.Errorf("the endpoint is of %s, want %s, not its mirror's %s", was.PodUID, mirrored, first.UID)
		}
		c.Kubectl("delete", "pod", first.Name)
		eventually.Within(t, Patience, "another mirror", func() error {
			if now := c.Pods("-l", "app=one"); len(now) != 1 || now[0].UID == first.UID {
				return fmt.Errorf("%v", now)
			}
			return nil
		})
		c.Kubectl("label", "pod", first.Name, "app=two", "--overwrite")
		if now := labelled("two"); now.PodUID != was.PodUID || now.IPv4Nets[0] != was.IPv4Nets[0] {
			t.Errorf("endpoint of %s with %v, before of %s with %v", now.PodUID, now.IPv4Nets, was.PodUID, was.IPv4Nets)
		}
		c.AwaitClean(etcd)
		write("three")
		if now := labelled("three"); now.PodUID == was.PodUID {
			t.Errorf("another file's pod is of %s too", now.PodUID)
		}
		c.AwaitPods(1, "-l", "app=three")
		b.Run("rm", "/etc/kubernetes/manifests/static.yaml")
		c.AwaitPods(0)
		c.AwaitClean(etcd)
	})
	c.Run(t, "without controllers", func(t *testing.T) {
		readiness := func(what string, met func(page string) bool) {
			t.Helper()
			eventually.Within(t, Patience, what, func() error {
				out, err := b.Command("busybox", "wget", "-qO-", "http://127.0.0.1:9099/readiness").CombinedOutput()
				if err == nil && !met(string(out)) {
					err = fmt.Errorf("%s", out)
				}
				return err
			})
		}
		leaderless := func(page string) bool { return strings.Contains(page, "nobody leads calico-controllers since ") }
		c.Kubectl("scale", "-n", "kube-system", "deployment/calico-controllers", "--replicas=0")
		c.AwaitPods(0, "-n", "kube-system", "-l", "k8s-app=calico-controllers")
		c.namespace(t, "fresh")
		c.Apply(workload("Deployment", "fresh", "idle", 1, idle))
		c.Eventually("an event that names the profile", func(out string) error {
			if !strings.Contains(out, "profile k8s_ns.fresh does not exist, which calico-controllers make") {
				return fmt.Errorf("events: %s", out)
			}
			return nil
		}, "get", "events", "-n", "fresh", "-o", "jsonpath={.items[*].message}")
		if p := c.Pods("-n", "fresh"); len(p) != 1 || p[0].Phase != "Pending" {
			t.Errorf("%v, want one that waits", p)
		}
		readiness("the agent to say that nobody leads, and be ready", leaderless)
		c.Kubectl("scale", "-n", "kube-system", "deployment/calico-controllers", "--replicas=2")
		c.AwaitPods(1, "-n", "fresh")
		readiness("the agent to have nothing to say", func(page string) bool { return !leaderless(page) })
	})
}
