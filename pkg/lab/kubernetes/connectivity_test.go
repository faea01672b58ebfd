// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestConnectivity: calicoctl's test of a cluster passes where all is well, in both families, says what to do where the network between nodes takes less than
// the pods' MTU or the operator's policy is in the way, and leaves nothing behind, also where it is interrupted.
func TestConnectivity(t *testing.T) {
	c := UpDual(t, Images(t)...)
	c.Install(c.dualManifest(t))
	run := func(status int, args ...string) string {
		t.Helper()
		out, err := c.connectivity(args...).CombinedOutput()
		got := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			got = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		t.Logf("%q:\n%s", args, out)
		if got != status {
			t.Fatalf("%q ends with %d, want %d", args, got, status)
		}
		return string(out)
	}
	nothing := func() {
		t.Helper()
		if out, err := c.TryKubectl("", "get", "namespace", "calico-connectivity"); err == nil {
			t.Errorf("left behind:\n%s", out)
		}
	}

	out := run(0, "--outside", c.Nodes[0].Address.String()+":6443")
	for _, row := range []string{
		"pod IPv4 node-a node-a ok", "pod IPv4 node-b node-a ok", "service IPv4 node-a node-b ok", "node port IPv4 node-b node-a ok",
		"node port IPv4 node-b node-a by node-b ok", "host IPv4 node-a node-b ok", "MTU IPv4 node-b node-a ok",
		"policy: all denied IPv4 node-a node-a ok", "policy: client allowed IPv4 node-b node-a ok", "policy: others denied IPv4 node-a node-b ok",
	} {
		for _, family := range []string{"IPv4", "IPv6"} {
			if row := strings.Replace(row, "IPv4", family, 1); !strings.Contains(squeeze(out), row) {
				t.Errorf("no row %q", row)
			}
		}
	}
	if strings.Contains(out, "FAILED") || !strings.Contains(squeeze(out), "DNS - - - skipped: the cluster has no service kube-system/kube-dns") {
		t.Error(out)
	}
	nothing()

	b := c.Node("node-b")
	b.Run("nft", "add table inet narrow; add chain inet narrow in { type filter hook prerouting priority -400; }; add rule inet narrow in iifname eth0 meta l4proto udp meta length > 1400 drop")
	out = run(1, "--keep")
	if !strings.Contains(squeeze(out), "MTU IPv6 node-a node-b FAILED: a packet of ") || !strings.Contains(out, "TO DO: MTU: ") ||
		strings.Count(out, "TO DO: ") != 1 || !strings.Contains(squeeze(out), "pod IPv4 node-a node-b ok") {
		t.Error("where large packets are lost")
	}
	c.Kubectl("get", "namespace", "calico-connectivity")
	b.Run("nft", "delete table inet narrow")

	// The namespace that was kept is taken away first. A policy of the operator's denies all.
	c.Apply(`{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: closed},
		spec: {namespaceSelector: 'kubernetes.io/metadata.name == "calico-connectivity"', order: 1, types: [Ingress], ingress: [{action: Deny}]}}`)
	out = run(1, "--node", "node-b", "--node", "node-a")
	if !strings.Contains(squeeze(out), "pod IPv4 node-b node-a FAILED: dial tcp ") || strings.Count(out, "TO DO: ") != 1 || !strings.Contains(out, "TO DO: pod of the same node: ") ||
		!strings.Contains(squeeze(out), "policy: all denied IPv4 node-b node-a skipped: ") {
		t.Error("with a policy that denies")
	}
	c.Kubectl("delete", "globalnetworkpolicies.projectcalico.org", "closed")
	nothing()

	if out := run(1, "--image", "calico.test/none:1", "--node", "node-a"); !strings.Contains(out, "pod server-1 on node node-a: ") || !strings.Contains(out, "calico.test/none:1") {
		t.Error("with an image that nobody has")
	}
	nothing()
	if out := run(3, "--node", "node-z"); !strings.Contains(out, `no node "node-z"`) {
		t.Error("on a node that there isn't")
	}
	if out := run(4, "--kubeconfig", c.KubeconfigAs("nobody")); !strings.Contains(out, "cannot list resource \"nodes\"") {
		t.Error("without the right")
	}

	// Interrupted.
	var said bytes.Buffer
	cmd := c.connectivity()
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.Eventually("servers to be made", func(out string) error {
		if out == "" {
			return errors.New("none")
		}
		return nil
	}, "get", "pods", "-n", "calico-connectivity", "-o", "name", "--ignore-not-found")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if exit := (*exec.ExitError)(nil); !errors.As(cmd.Wait(), &exit) || exit.ExitCode() != 1 || !strings.Contains(said.String(), "interrupted") {
		t.Errorf("interrupted: %v: %s", exit, said.String())
	}
	nothing()
}

// connectivity is calicoctl's test of the cluster.
func (c *Cluster) connectivity(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(os.Getenv("CALICO_BIN_DIR"), "calicoctl"), append([]string{"connectivity", "test"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	return cmd
}

// squeeze has one space between words.
func squeeze(text string) string { return strings.Join(strings.Fields(text), " ") }
