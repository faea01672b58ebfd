// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// kill ends a program in a pod at once, on every node that runs it; kubelet starts it again.
func (c *Cluster) kill(t *testing.T, program string) {
	t.Helper()
	killed := 0
	for _, n := range c.Nodes {
		// A node has its own numbers of processes, and no others.
		out, err := n.Command("pgrep", "-f", "^/"+program+"( |$)").Output()
		if err != nil {
			continue // it doesn't run there
		}
		for _, pid := range strings.Fields(string(out)) {
			n.Run("kill", "-9", pid)
			killed++
		}
	}
	if killed == 0 {
		t.Errorf("no process of %s on any node", program)
	}
}

// TestKilled ends every component at once while pods come and go: nothing of them is left once all is up again, and what
// ran has gone on.
func TestKilled(t *testing.T) {
	c := Up(t, Images(t)...)
	etcd := c.Install(Manifest(t))
	c.Kubectl("create", "namespace", "churn")
	c.Apply(workload("Deployment", "churn", "stays", 2, web) + workload("Deployment", "churn", "idle", 8, idle))
	stays := c.AwaitPods(2, "-n", "churn", "-l", "app=stays")
	c.AwaitPods(8, "-n", "churn", "-l", "app=idle")
	replicas := 8
	for _, component := range []struct {
		name     string
		kill, up func(t *testing.T)
	}{
		{"kubelet", func(*testing.T) { c.each((*Node).KillKubelet) }, func(*testing.T) { c.each((*Node).StartKubelet) }},
		{"containerd", func(*testing.T) { c.each((*Node).KillContainerd) }, func(*testing.T) { c.each((*Node).StartContainerd) }},
		{"agent", func(t *testing.T) { c.kill(t, "calico-node") }, func(*testing.T) {}},
		{"controllers", func(t *testing.T) { c.kill(t, "calico-controllers") }, func(*testing.T) {}},
		{"etcd", func(t *testing.T) { c.kill(t, "etcd") }, func(*testing.T) {}},
		{"API server", func(*testing.T) { c.KillAPI() }, func(*testing.T) { c.StartAPI() }},
	} {
		c.Run(t, component.name, func(t *testing.T) {
			// Half way through: some are being made or removed when it ends, and more are asked for.
			replicas = 12 - replicas
			c.Kubectl("scale", "-n", "churn", "deployment/idle", fmt.Sprintf("--replicas=%d", replicas))
			component.kill(t)
			component.up(t)
			c.AwaitPods(replicas, "-n", "churn", "-l", "app=idle")
			c.AwaitClean(etcd)
			for i, from := range stays {
				to := stays[1-i]
				eventually.Within(t, Patience, from.Name+" to reach "+to.Name, func() error { return c.connect(from, to.IP.String()+":8080") })
			}
		})
	}
	// etcd's data is lost, and pods are asked for before agents have entered what runs in the new etcd: none gets an address in use.
	c.Run(t, "etcd's data", func(t *testing.T) {
		guid := func() string {
			s, err := etcd.Read(t.Context(), model.KeyRange(model.GlobalConfigKey{Name: "ClusterGUID"}))
			if err != nil || len(s.Entries()) != 1 {
				t.Fatalf("the cluster's GUID: %v, %v", s.Entries(), err)
			}
			return fmt.Sprint(s.Entries()[0].Value)
		}
		was, before := guid(), c.Pods("-n", "churn")
		c.Node("node-a").Run("rm", "-rf", "/var/lib/calico-etcd/data")
		c.kill(t, "etcd")
		replicas *= 2
		c.Kubectl("scale", "-n", "churn", "deployment/idle", fmt.Sprintf("--replicas=%d", replicas))
		c.maintain("emptied") // now, instead of within minutes
		users := map[netip.Addr]string{}
		for _, p := range append(before, c.AwaitPods(replicas+2, "-n", "churn")...) {
			if other, used := users[p.IP]; used && other != p.UID {
				t.Errorf("%s has the address %s of another", p.Name, p.IP)
			}
			users[p.IP] = p.UID
		}
		if len(users) != replicas+2 {
			t.Errorf("%d pods, %d addresses: those that ran have been replaced", replicas+2, len(users))
		}
		c.AwaitClean(etcd)
		if guid() == was {
			t.Error("etcd has its data as before")
		}
		if err := c.connect(stays[0], stays[1].IP.String()+":8080"); err != nil {
			t.Errorf("pods that ran before: %v", err)
		}
	})
	c.Run(t, "power", func(t *testing.T) {
		b := c.Node("node-b")
		b.PowerFailure()
		b.Boot()
		c.AwaitReady()
		c.AwaitPods(replicas, "-n", "churn", "-l", "app=idle")
		c.AwaitPods(2, "-n", "churn", "-l", "app=stays")
		c.AwaitClean(etcd)
	})
}

func (c *Cluster) each(do func(*Node)) {
	for _, n := range c.Nodes {
		do(n)
	}
}
