// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// release of the manifest, and the one that an upgrade comes from.
const release, former = "0.1.0", "0.0.9"

// before is the manifest of the former release, and its images. FORMER is the folder in which `make e2e-k8s` built those; without it they are
// today's programs under another name: every pod of ours is replaced all the same.
func before(t *testing.T, c *Cluster) (manifest string) {
	t.Helper()
	file, built := Manifest(t), os.Getenv("FORMER")
	if built != "" {
		file = filepath.Join(built, "k8s-manifests", "calico.yaml")
		tars, err := filepath.Glob(filepath.Join(built, "bin", "images", "*.tar"))
		if err != nil || len(tars) < 2 {
			t.Fatalf("images of the former release in %s: %v, %v", built, tars, err)
		}
		for _, n := range c.Nodes {
			for _, tar := range tars {
				n.Import(tar)
			}
		}
	} else {
		for _, n := range c.Nodes {
			for _, image := range []string{"calico", "etcd"} {
				name := "docker.io/calico/" + image + ":"
				if out, err := n.ctr("images", "tag", name+release, name+former).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	replaced := strings.NewReplacer(release, former, strings.ReplaceAll(release, ".", "-"), strings.ReplaceAll(former, ".", "-")).Replace(string(text))
	if replaced == string(text) {
		t.Fatalf("no %s in %s", release, file)
	}
	return c.write("former.yaml", replaced)
}

// TestUpgrade replaces every component, including nodes' certificates for etcd, and goes back, while pods of both nodes
// ping each other: no packet is lost, no node's network is reported unavailable, and what other software has chained to
// our network configuration stays.
func TestUpgrade(t *testing.T) {
	c := Up(t, Images(t)...)
	manifest := before(t, c)
	etcd := c.Install(manifest)
	c.Kubectl("create", "namespace", "flood")
	c.Apply(workload("DaemonSet", "flood", "web", 0, web))
	pods := c.AwaitPods(2, "-n", "flood")
	for _, n := range c.Nodes {
		n.chain(`.plugins += [{"type": "mesh-cni"}]`)
	}
	for _, step := range []struct{ name, manifest string }{{"upgrade", Manifest(t)}, {"rollback", manifest}} {
		c.Run(t, step.name, func(t *testing.T) {
			floods := []*flood{c.flood(t, pods[0], pods[1]), c.flood(t, pods[1], pods[0])}
			chained := c.Nodes[0].watchChain(t)
			conditions := c.watchNetworkUnavailable(t)
			c.Install(step.manifest)
			c.Kubectl("rollout", "status", "-n", kubeSystem, "statefulset/calico-etcd", "--timeout=180s")
			if step.name == "upgrade" {
				c.renewNodeCertificates(t)
			}
			for _, f := range floods {
				f.end(t)
			}
			if out := chained(); out != "" {
				t.Errorf("the network configuration was at times:\n%s", out)
			}
			if out := conditions(); !strings.Contains(out, "node-a=False\n") || strings.Contains(out, "True") {
				t.Errorf("the condition NetworkUnavailable:\n%s", out)
			}
			c.Apply(workload("DaemonSet", "flood", "chained", 0, idle))
			c.AwaitPods(2, "-n", "flood", "-l", "app=chained")
			c.Kubectl("delete", "daemonset", "-n", "flood", "chained")
			c.AwaitPods(0, "-n", "flood", "-l", "app=chained")
			c.AwaitClean(etcd)
		})
	}
	// What its owner removes stays away.
	n := c.Nodes[0]
	n.chain(`.plugins |= map(select(.type != "mesh-cni"))`)
	c.Kubectl("rollout", "restart", "-n", kubeSystem, "daemonset/calico-node")
	c.Kubectl("rollout", "status", "-n", kubeSystem, "daemonset/calico-node", "--timeout=180s")
	if list := n.Run("cat", conflist); strings.Contains(list, "mesh-cni") {
		t.Errorf("an entry that was removed is back: %s", list)
	}
}

// renewNodeCertificates has the agents ask for their nodes' certificates again.
func (c *Cluster) renewNodeCertificates(t *testing.T) {
	const file = "/var/lib/calico/etcd/node.pem"
	for _, n := range c.Nodes {
		n.Run("rm", file)
	}
	for _, n := range c.Nodes {
		eventually.Within(t, 2*Patience, "a new certificate on "+n.Name, func() error { return n.Command("test", "-s", file).Run() })
	}
}

const conflist = "/etc/cni/net.d/10-calico.conflist"

// meshCNI is a plugin that does nothing.
const meshCNI = `#!/bin/sh
[ "$CNI_COMMAND" != ADD ] || exec jq -c .prevResult
`

// chain edits the network configuration like another program's installer, with a jq program.
func (n *Node) chain(edit string) {
	n.c.tb.Helper()
	n.Write("/opt/cni/bin/mesh-cni", meshCNI)
	n.Run("chmod", "755", "/opt/cni/bin/mesh-cni")
	n.Run("sh", "-c", "jq '"+edit+"' "+conflist+" >/etc/cni/net.d/.mesh && mv /etc/cni/net.d/.mesh "+conflist)
}

// watchChain reads the network configuration over and over. What it returns ends that, and returns every one that was no list with the
// other's entry.
func (n *Node) watchChain(t *testing.T) (end func() string) {
	const stop = "/run/chain-watched"
	n.Run("rm", "-f", stop)
	return watch(t, n.Command("sh", "-c", `while [ ! -e `+stop+` ]; do text=$(cat `+conflist+`)
			echo "$text" | jq -e '.plugins | map(.type) | index("mesh-cni")' >/dev/null || echo "$text"; sleep 0.005; done`),
		func(*exec.Cmd) { n.Run("touch", stop) })
}

// watchNetworkUnavailable notes what each Node's condition says. What it returns ends that, and returns all of it.
func (c *Cluster) watchNetworkUnavailable(t *testing.T) (end func() string) {
	return watch(t, exec.CommandContext(t.Context(), filepath.Join(c.bin, "kubectl"), "--kubeconfig", c.Kubeconfig, "get", "nodes", "--watch", "-o",
		`jsonpath={.metadata.name}={.status.conditions[?(@.type=="NetworkUnavailable")].status}{"\n"}`),
		func(cmd *exec.Cmd) { _ = cmd.Process.Kill() }) // it may have ended
}

// watch runs a command until what it returns is called, which returns what was printed.
func watch(t *testing.T, cmd *exec.Cmd, stop func(*exec.Cmd)) (end func() string) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceFunc(func() {
		stop(cmd)
		_ = cmd.Wait() // how it ended tells nothing
	})
	t.Cleanup(ended)
	return func() string {
		ended()
		return out.String()
	}
}

// A flood is a ping every 2 ms, from one pod to another.
type flood struct {
	c        *Cluster
	from, to Pod
	out      chan string
	before   echoes
}

// echoes are the requests that a pod has sent, and the answers that have come to it.
type echoes struct{ out, in int }

// echoes counts as the pod's kernel does: ping's own socket has room for a few answers, and loses some on a busy machine.
func (f *flood) echoes() (e echoes) {
	f.c.tb.Helper()
	var names []string
	for line := range strings.Lines(f.c.Kubectl("exec", "-n", f.from.Namespace, f.from.Name, "--", "cat", "/proc/net/snmp")) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != "Icmp:":
		case names == nil:
			names = fields
		default:
			for i, name := range names {
				n, _ := strconv.Atoi(fields[i]) // the first is a name
				switch name {
				case "OutEchos":
					e.out = n
				case "InEchoReps":
					e.in = n
				}
			}
		}
	}
	return e
}

func (c *Cluster) flood(t *testing.T, from, to Pod) *flood {
	t.Helper()
	f := &flood{c: c, from: from, to: to, out: make(chan string, 1)}
	eventually.Within(t, Patience, from.Name+" to reach "+to.Name, func() error { return c.connect(from, to.IP.String()+":8080") })
	f.before = f.echoes()
	go func() {
		out, err := c.TryKubectl("", "exec", "-n", from.Namespace, from.Name, "--", "ping", "-q", "-i", "0.002", "-w", "300", to.IP.String())
		f.out <- fmt.Sprintf("%s%v", out, err)
	}()
	return f
}

// end stops it and finds that every packet has come back.
func (f *flood) end(t *testing.T) {
	t.Helper()
	f.c.Kubectl("exec", "-n", f.from.Namespace, f.from.Name, "--", "sh", "-c", "kill -INT $(busybox pidof ping)")
	out := <-f.out
	var sent, lost int
	eventually.Within(t, Patience, "answers to "+f.from.Name, func() error {
		now := f.echoes()
		sent = now.out - f.before.out
		if lost = sent - (now.in - f.before.in); lost != 0 {
			return fmt.Errorf("%d of %d are lost: %s", lost, sent, out)
		}
		return nil
	})
	t.Logf("from %s: %d sent, %d lost", filepath.Join(f.from.Node, f.from.Name), sent, lost)
	if sent < 1000 {
		t.Errorf("from %s: only %d sent: %s", f.from.Name, sent, out)
	}
}
