// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// block is a command of the document, at the margin or in a list, with the heading that it is below.
var block = regexp.MustCompile("(?ms)^## ([^\n]*)$|^( *)```sh\n(.*?)^ *```$")

// TestDocument runs every command of docs/kubernetes.md, in order, on a cluster that has another plugin, as a person would.
func TestDocument(t *testing.T) {
	c := Up(t, Images(t)...)
	for i, n := range c.Nodes {
		n.ptp(i)
	}
	c.AwaitReady()
	c.Apply(workload("Deployment", "default", "web", 4, web))
	c.AwaitPods(4, "-l", "app=web")
	home := t.TempDir()
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(root(t), "my-calico")) }) // the document's
	ran, heading, session := map[string]int{}, "", ""
	for _, b := range blocks(t) {
		if b.heading != heading {
			heading, session = b.heading, ""
		}
		script := b.script
		if strings.Contains(script, "-gc-resume") {
			c.brake(t)
		}
		// What an earlier command of a section has set is there in the next.
		c.shell(t, home, session, script)
		for line := range strings.Lines(script) {
			if strings.HasPrefix(line, ". ") || regexp.MustCompile(`^\w+=`).MatchString(line) {
				session += line
			}
		}
		ran[heading]++
		switch heading {
		case "Replace a node":
			if !strings.Contains(script, "delete node") {
				break
			}
			// The machine comes back under its name.
			b := c.Node("node-b")
			b.KillKubelet()
			b.StartKubelet()
			c.AwaitReady()
			c.AwaitPods(4, "-l", "app=web")
		case "Move from another plugin":
			for _, n := range c.Nodes {
				n.Run("rm", "/etc/cni/net.d/10-net.conflist")
			}
			c.AwaitPods(4, "-l", "app=web")
			etcd := c.Etcd()
			c.AwaitClean(etcd)
		case "Uninstall":
			if strings.Contains(script, "xargs") {
				c.Kubectl("delete", "deployment", "web")
				c.uninstalled(t, "nothing of Calico is left on this node")
			}
		}
	}
	for _, heading := range []string{"Install", "Look", "Pool and encapsulation", "Policy", "Ports of the nodes", "Network services", "Upgrade", "Replace a node", "Move from another plugin", "Uninstall"} {
		if ran[heading] == 0 {
			t.Errorf("docs/kubernetes.md has no command below %q", heading)
		}
	}
	c.withoutCondition(t)
	eventually.Within(t, Patience, "the secrets to be gone", func() error {
		_, err := c.TryKubectl("", "wait", "-n", "kube-system", "--for=delete", "secret/calico-etcd-ctl", "--timeout=1s")
		return err
	})
}

// brake has garbage collection be stopped, as where much would go at once.
func (c *Cluster) brake(t *testing.T) {
	t.Helper()
	_, err := c.Etcd().Transact(t.Context(), []model.Range{model.KeyRange(model.GarbageBrakeKey{})}, func(*model.View) (model.Change, error) {
		return model.Change{Puts: []model.Put{{Key: model.GarbageBrakeKey{}, Value: model.GarbageBrake{Time: time.Now(), Reason: "much would go"}}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// documentBlock is a command of the document.
type documentBlock struct{ heading, script string }

func blocks(t *testing.T) (all []documentBlock) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	heading := ""
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		if m[1] != "" {
			heading = m[1]
			continue
		}
		all = append(all, documentBlock{heading, strings.ReplaceAll("\n"+m[3], "\n"+m[2], "\n")})
	}
	return all
}

// documented are the commands below a heading of the document.
func documented(t *testing.T, heading string) (scripts []string) {
	t.Helper()
	for _, b := range blocks(t) {
		if b.heading == heading {
			scripts = append(scripts, b.script)
		}
	}
	return scripts
}

// shell runs commands as a person does who is in the repository's folder.
func (c *Cluster) shell(t *testing.T, home, before, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail")
	cmd.Dir = root(t)
	cmd.Stdin = strings.NewReader(before + script)
	cmd.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG="+c.Kubeconfig, "PATH="+c.bin+":"+os.Getenv("PATH"), "KUBECACHEDIR="+c.file("cache"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, script, out)
	}
	t.Logf("%s\n%s", script, out)
}
