// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// nsm is a container of a pod that mounts the manager's directory.
func nsm(name, image, command string) string {
	return fmt.Sprintf(`{name: %s, image: %q, command: [%s], volumeMounts: [{name: nsm, mountPath: /var/lib/networkservicemesh}]}`, name, image, command)
}

// TestNetworkServices connects a client to endpoints on its node and another: the DaemonSet is rolled and no packet is lost, the node of an
// endpoint is lost and the client gets the other endpoint, and the node comes back.
func TestNetworkServices(t *testing.T) {
	c := Up(t, Images(t)...)
	c.Install(Manifest(t))
	c.Kubectl("apply", "-f", filepath.Join(manifests, "calico-nsm.yaml"))
	managers := func() {
		t.Helper()
		c.Kubectl("rollout", "status", "-n", kubeSystem, "deployment/calico-nsm-signer", "--timeout=180s")
		c.Kubectl("rollout", "status", "-n", kubeSystem, "daemonset/calico-nsm", "--timeout=180s")
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, of := range []string{"deployment/far", "deployment/near", "deployment/client", "-n=kube-system daemonset/calico-nsm"} {
				out, err := c.TryKubectl("", append([]string{"logs", "--all-containers", "--all-pods", "--tail=30"}, strings.Fields(of)...)...)
				t.Log(of, out, err)
			}
		}
	})
	managers()
	const ours = "calico/calico:0.1.0"
	pod := func(name, node, more string) string {
		return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      nodeSelector: {kubernetes.io/hostname: %[2]s}
      terminationGracePeriodSeconds: 1
      securityContext: {runAsUser: 0}
      volumes: [{name: nsm, hostPath: {path: /var/lib/networkservicemesh}}]
%[3]s
---
`, name, node, more)
	}
	gateway := func(name, node, pool string) string {
		return pod(name, node, "      containers: ["+nsm("nse", ours, "/nsmctl, serve, -service, intranet, -name, "+name+", -pools, "+pool)+"]")
	}
	listed := func(want ...string) {
		t.Helper()
		c.Eventually("the registry to have "+strings.Join(want, " "), func(out string) error {
			if got := strings.Fields(out); strings.Join(got, " ") != strings.Join(want, " ") {
				return errors.New(out)
			}
			return nil
		}, "get", "nse", "-n", kubeSystem, "--sort-by=.spec.nse_provider_name", "-o", `jsonpath={range .items[*]}{.spec.nse_provider_name}@{.spec.network_service_host} {end}`)
	}
	c.Apply(gateway("far", "node-b", "10.60.0.0/24"))
	c.AwaitPods(1, "-l", "app=far")
	listed("far@node-b")
	c.Apply(pod("client", "node-a", "      initContainers: ["+nsm("connect", ours, "/nsmctl, request, -service, intranet, -addressed")+"]\n      containers: ["+idleShell+"]"))
	client := c.AwaitPods(1, "-l", "app=client")[0]
	ping := func(count, address string) error {
		out, err := c.TryKubectl("", "exec", client.Name, "--", "ping", "-c", count, "-W", "1", address)
		if err == nil && !strings.Contains(out, count+" packets received") {
			err = errors.New(out)
		}
		return err
	}
	eventually.Nil(t, "the client to reach the endpoint", func() error { return ping("1", "10.60.0.1") })
	if out := c.Kubectl("logs", client.Name, "-c", "connect"); !strings.Contains(out, `"endpoint_host":"node-b"`) || !strings.Contains(out, `"mechanism":"vxlan"`) || !strings.Contains(out, `"payload":"ETHERNET"`) {
		t.Error(out)
	}
	for _, n := range c.Nodes {
		if out := n.Run("openssl", "x509", "-in", "/var/lib/calico/nsm/manager.pem", "-noout", "-ext", "subjectAltName"); !strings.Contains(out, "DNS:calico-nsm, DNS:"+n.Name+".calico-nsm") {
			t.Error(out)
		}
	}

	// The DaemonSet is rolled while packets pass.
	passed := make(chan error, 1)
	go func() { passed <- ping("30", "10.60.0.1") }()
	c.Kubectl("rollout", "restart", "-n", kubeSystem, "daemonset/calico-nsm")
	managers()
	if err := <-passed; err != nil {
		t.Error("while the managers were replaced:", err)
	}
	listed("far@node-b")

	// The endpoint's node is lost.
	c.Apply(gateway("near", "node-a", "10.61.0.0/24"))
	c.AwaitPods(1, "-l", "app=near")
	listed("far@node-b", "near@node-a")
	b := c.Node("node-b")
	b.PowerFailure()
	c.Kubectl("delete", "node", b.Name)
	listed("near@node-a")
	c.Eventually("the Lease of its manager to be gone", func(out string) error {
		if strings.TrimSpace(out) != "calico-nsm-node-a" {
			return errors.New(out)
		}
		return nil
	}, "get", "leases", "-n", kubeSystem, "-l", "k8s-app=calico-nsm", "-o", "jsonpath={.items[*].metadata.name}")
	eventually.Within(t, 8*time.Minute, "the client to be connected to the other endpoint", func() error { return ping("1", "10.61.0.1") })

	// It is back, under its name.
	b.Boot()
	c.AwaitReady()
	managers()
	listed("far@node-b", "near@node-a")
	c.Kubectl("delete", "deployment", "near")
	eventually.Within(t, 2*Patience, "the client to be connected to the first endpoint again", func() error { return ping("1", "10.60.0.1") })
	c.Kubectl("delete", "deployment", "client")
	eventually.Within(t, 2*Patience, "nothing to be left of the connection", func() error {
		if out := b.Run("sh", "-c", "ls /var/lib/calico/nsm/connections"); out != "" {
			return errors.New(out)
		}
		return nil
	})
}

// idleShell is a container that tests work in.
const idleShell = `{name: main, image: "` + Agnhost + `"}`
