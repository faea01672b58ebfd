// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/calico-go/calico/test/eventually"
)

// release of the manifest, and the one that an upgrade comes from. It has the same programs under another name: every pod of ours
// is replaced all the same.
const release, former = "0.1.0", "0.0.9"

// TestUpgrade replaces every component, and goes back, while pods of both nodes ping each other: no packet is lost.
func TestUpgrade(t *testing.T) {
	c := Up(t, Images(t)...)
	text, err := os.ReadFile(Manifest(t))
	if err != nil {
		t.Fatal(err)
	}
	before := strings.NewReplacer(release, former, strings.ReplaceAll(release, ".", "-"), strings.ReplaceAll(former, ".", "-")).Replace(string(text))
	if before == string(text) {
		t.Fatalf("no %s in the manifest", release)
	}
	for _, n := range c.Nodes {
		for _, image := range []string{"calico", "etcd"} {
			name := "docker.io/calico/" + image + ":"
			if out, err := n.ctr("images", "tag", name+release, name+former).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	etcd := c.Install(c.write("former.yaml", before))
	c.Kubectl("create", "namespace", "flood")
	c.Apply(workload("DaemonSet", "flood", "web", 0, web))
	pods := c.AwaitPods(2, "-n", "flood")
	for _, step := range []struct{ name, manifest string }{{"upgrade", Manifest(t)}, {"rollback", c.file("former.yaml")}} {
		c.Run(t, step.name, func(t *testing.T) {
			floods := []*flood{c.flood(t, pods[0], pods[1]), c.flood(t, pods[1], pods[0])}
			c.Install(step.manifest)
			c.Kubectl("rollout", "status", "-n", "kube-system", "statefulset/calico-etcd", "--timeout=180s")
			for _, f := range floods {
				f.end(t)
			}
			c.AwaitClean(etcd)
		})
	}
}

// A flood is a ping every 2 ms, from one pod to another.
type flood struct {
	c        *Cluster
	from, to Pod
	out      chan string
}

func (c *Cluster) flood(t *testing.T, from, to Pod) *flood {
	t.Helper()
	f := &flood{c, from, to, make(chan string, 1)}
	eventually.Within(t, Patience, from.Name+" to reach "+to.Name, func() error { return c.connect(from, to.IP.String()+":8080") })
	go func() {
		out, err := c.TryKubectl("", "exec", "-n", from.Namespace, from.Name, "--", "ping", "-i", "0.002", "-w", "300", to.IP.String())
		f.out <- fmt.Sprintf("%s%v", out, err)
	}()
	return f
}

var pinged = regexp.MustCompile(`: seq=(\d+) `)

// end stops it and finds that every packet came back before the last that did: what was sent later may be under way. That
// the last is of now is known by a connection, which comes first.
func (f *flood) end(t *testing.T) {
	t.Helper()
	eventually.Within(t, Patience, f.from.Name+" to reach the other", func() error { return f.c.connect(f.from, f.to.IP.String()+":8080") })
	// ping's socket has room for a few answers: on a busy machine it loses some by itself, and counts them in the last column.
	raw := f.c.Kubectl("exec", "-n", f.from.Namespace, f.from.Name, "--", "sh", "-c", "cat /proc/net/raw && kill -INT $(busybox pidof ping)")
	dropped := 0
	for line := range strings.Lines(raw) {
		if fields := strings.Fields(line); len(fields) > 0 {
			n, _ := strconv.Atoi(fields[len(fields)-1]) // none in the head
			dropped += n
		}
	}
	out := <-f.out
	received, sent := map[int]bool{}, 0
	for _, m := range pinged.FindAllStringSubmatch(out, -1) {
		n, _ := strconv.Atoi(m[1])
		received[n], sent = true, max(sent, n+1)
	}
	var lost []int
	for n := range sent {
		if !received[n] {
			lost = append(lost, n)
		}
	}
	t.Logf("from %s: %d sent, %d lost, %d dropped by ping's socket", filepath.Join(f.from.Node, f.from.Name), sent, len(lost), dropped)
	if sent < 1000 || len(lost) > dropped {
		t.Errorf("from %s: of %d sent are lost %v: %s", f.from.Name, sent, lost, out[max(0, len(out)-500):])
	}
}
