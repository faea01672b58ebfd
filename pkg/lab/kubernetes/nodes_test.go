// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// uidOf is the uid of the Node that a host in etcd says it is; "" where etcd has no such host.
func uidOf(t *testing.T, etcd *store.Client, host string) string {
	t.Helper()
	s, err := etcd.Read(t.Context(), model.KeyRange(model.HostMetadataKey{Host: host}))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.Entries() {
		return e.Value.(model.HostMetadata).Kubernetes.UID
	}
	return ""
}

// TestSlowNode takes a node away, and waits until its addresses are free. Then the machine comes back under its name; and once more,
// before its former Node's grace has passed.
func TestSlowNode(t *testing.T) {
	c := Up(t, Images(t)...)
	etcd := c.Install(Manifest(t))
	c.Apply(workload("Deployment", "default", "idle", 8, idle))
	c.AwaitPods(8, "-l", "app=idle")
	b := c.Node("node-b")
	remove := func() (former string) {
		former = uidOf(t, etcd, b.Name)
		if former == "" {
			t.Error("etcd doesn't say which Node node-b is")
		}
		b.PowerFailure()
		c.Kubectl("delete", "node", b.Name)
		return former
	}
	back := func(former string) {
		b.Boot()
		c.AwaitReady()
		c.Kubectl("rollout", "status", "-n", "kube-system", "daemonset/calico-node", "--timeout=180s")
		eventually.Within(t, Patience, "etcd to say which Node node-b is", func() error {
			want := c.Kubectl("get", "node", b.Name, "-o", "jsonpath={.metadata.uid}")
			if have := uidOf(t, etcd, b.Name); have != want || have == former {
				return fmt.Errorf("it says %q; it is %q and was %q", have, want, former)
			}
			return nil
		})
		c.Kubectl("rollout", "restart", "deployment/idle")
		c.Kubectl("rollout", "status", "deployment/idle", "--timeout=180s")
		for _, p := range c.AwaitPods(8, "-l", "app=idle") {
			if p.Node == b.Name {
				c.AwaitClean(etcd)
				return
			}
		}
		t.Error("no pod is on node-b after it came back")
	}

	former := remove()
	c.AwaitPods(8, "-l", "app=idle")
	eventually.Within(t, 12*time.Minute, "node-b to be gone from etcd, with its addresses", func() error {
		s, err := etcd.Read(t.Context(), model.PrefixRange("/calico/"))
		if err != nil {
			return err
		}
		for _, e := range s.Entries() {
			switch v := e.Value.(type) {
			case model.Block:
				for _, a := range v.Attributes {
					if a.Secondary["node"] == b.Name {
						return fmt.Errorf("%s has %v", v.CIDR, a.Secondary)
					}
				}
			case model.HostMetadata:
				if e.Key == (model.HostMetadataKey{Host: b.Name}) {
					return fmt.Errorf("%s is there", e.Key.Path())
				}
			}
		}
		return nil
	})
	back(former)
	back(remove())
}

// TestSlowAway takes the API server, our etcd, and both away for minutes: no leader is left, pods are reached meanwhile, nothing that lives
// is deleted, and then all goes on.
func TestSlowAway(t *testing.T) {
	c := Up(t, Images(t)...)
	etcd := c.Install(Manifest(t))
	c.Apply(workload("DaemonSet", "default", "web", 0, web) + policy("default", "closed", "{podSelector: {matchLabels: {app: none}}}"))
	pods := c.AwaitPods(2, "-l", "app=web")
	c.AwaitClean(etcd)
	a := c.Node("node-a")
	held := func() (keys []string) {
		t.Helper()
		s, err := etcd.Read(t.Context(), model.PrefixRange("/calico/"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Entries() {
			switch e.Key.(type) {
			case model.PolicyKey, model.ProfileRulesKey, model.WorkloadEndpointKey, model.BlockKey, model.HandleKey:
				keys = append(keys, e.Key.Path())
			}
		}
		return keys
	}
	before := held()
	stopAPI, startAPI := c.KillAPI, c.StartAPI
	stopEtcd, startEtcd := func() { a.Run("pkill", "-STOP", "-f", "^/etcd( |$)") }, func() { a.Run("sh", "-c", "pkill -CONT -f '^/etcd( |$)' || true") } // kubelet may have started another
	for _, away := range []struct {
		name        string
		stop, start []func()
	}{
		{"API server", []func(){stopAPI}, []func(){startAPI}},
		{"etcd", []func(){stopEtcd}, []func(){startEtcd}},
		{"both", []func(){stopAPI, stopEtcd}, []func(){startEtcd, startAPI}},
	} {
		c.Run(t, away.name, func(t *testing.T) {
			for _, stop := range away.stop {
				stop()
			}
			if away.name == "etcd" { // at once: kubelet soon starts another
				c.Eventually("node-b, whose runtime asks for the plugin's STATUS, not to be ready", func(out string) error {
					if !strings.HasPrefix(out, "False ") || !strings.Contains(out, "etcd is unavailable: https://"+a.Address.String()+":2479") {
						return errors.New(out)
					}
					return nil
				}, "get", "node", "node-b", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].message}`)
			}
			for _, p := range pods {
				if out := a.Run("busybox", "ping", "-q", "-c", "75", p.IP.String()); !strings.Contains(out, "75 packets received") {
					t.Errorf("%s on %s: %s", p.IP, p.Node, out)
				}
			}
			if away.name == "etcd" {
				if out := c.Kubectl("get", "-n", "kube-system", "daemonset/calico-node", "-o", "jsonpath={.status.numberReady}"); out != "2" {
					t.Errorf("%s agents are ready, want 2: etcd is no host's fault", out)
				}
			}
			for _, start := range away.start {
				start()
			}
			c.AwaitReady()
			c.Kubectl("rollout", "status", "-n", "kube-system", "daemonset/calico-node", "--timeout=180s")
			c.Kubectl("rollout", "status", "-n", "kube-system", "deployment/calico-controllers", "--timeout=180s")
			if diff := cmp.Diff(before, held()); diff != "" {
				t.Errorf("etcd holds (-before +after):\n%s", diff)
			}
			c.Apply(workload("Deployment", "default", "idle", 4, idle))
			c.AwaitPods(4, "-l", "app=idle")
			c.Kubectl("delete", "deployment", "idle", "--wait")
			c.AwaitPods(2)
			c.AwaitClean(etcd)
		})
	}
}
