// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/pki"
	"github.com/calico-go/calico/pkg/store"
)

// TestSlowHA installs three members of etcd on three nodes of the control plane, and switches one node off: pods start all the same.
func TestSlowHA(t *testing.T) {
	c := Up(t, Images(t)...)
	last := c.Grow(Images(t)...)
	c.Kubectl("label", "node", "node-b", last.Name, "node-role.kubernetes.io/control-plane=")
	manifest := c.write("ha.yaml", kustomize(t, "calico", "ha"))
	etcd := c.Install(manifest)
	c.Kubectl("rollout", "status", "-n", kubeSystem, "statefulset/calico-etcd", "--timeout=180s")
	if out, err := c.TryKubectl("", "diff", "-f", manifest); err != nil || out != "" {
		t.Errorf("kubectl diff after kubectl apply: %v\n%s", err, out)
	}
	if members := strings.Split(c.Kubectl("get", "configmap", "-n", kubeSystem, "calico-etcd", "-o", "jsonpath={.data.endpoints}"), ","); len(members) != 3 {
		t.Errorf("members: %v", members)
	}
	c.Kubectl("create", "namespace", "quorum") // it ends with the cluster: when the test does, the node that was off is off again
	c.Apply(workload("Deployment", "quorum", "idle", 6, idle))
	c.AwaitPods(6, "-n", "quorum")
	c.AwaitClean(etcd)

	c.Kubectl("cordon", last.Name)
	last.PowerFailure()
	c.Apply(workload("Deployment", "quorum", "later", 6, idle))
	for _, p := range c.AwaitPods(6, "-n", "quorum", "-l", "app=later") {
		if p.Node == last.Name {
			t.Errorf("%s is on %s, which is off", p.Name, p.Node)
		}
	}
	last.Boot()
	c.AwaitReady()
	c.Kubectl("uncordon", last.Name)
	c.Kubectl("rollout", "status", "-n", kubeSystem, "statefulset/calico-etcd", "--timeout=180s")
	c.AwaitPods(12, "-n", "quorum")
	c.AwaitClean(etcd)
}

// TestSlowExistingEtcd installs calico-etcd.yaml, edited as it says, beside an etcd with TLS that is outside of the cluster.
func TestSlowExistingEtcd(t *testing.T) {
	c := Up(t, Images(t)...)
	at := fabric.Addr().String()
	ca, err := pki.NewAuthority(c.dir, "outside-ca", "outside")
	if err != nil {
		t.Fatal(err)
	}
	for file, template := range map[string]*x509.Certificate{
		"outside-server": {IPAddresses: []net.IP{net.ParseIP(at)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		"outside-client": {ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		template.Subject = pkix.Name{CommonName: file}
		if err := ca.Issue(c.dir, file, template); err != nil {
			t.Fatal(err)
		}
	}
	url := "https://" + at + ":2379"
	outside := &process{tb: c.tb, name: "etcd outside", log: c.file("outside.log"), argv: []string{
		filepath.Join(c.bin, "etcd"), "--data-dir=" + c.file("outside"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + url, "--advertise-client-urls=" + url, "--listen-peer-urls=http://127.0.0.1:12380", "--initial-advertise-peer-urls=http://127.0.0.1:12380",
		"--initial-cluster=default=http://127.0.0.1:12380", "--client-cert-auth", "--trusted-ca-file=" + c.file("outside-ca.crt"),
		"--cert-file=" + c.file("outside-server.crt"), "--key-file=" + c.file("outside-server.key"),
	}}
	outside.start()

	text, err := os.ReadFile(filepath.Join(manifests, "calico-etcd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	edits, secret := []string{"http://<ETCD_IP>:2379", url}, "data:\n"
	for name, file := range map[string]string{"ca": "outside-ca.crt", "cert": "outside-client.crt", "key": "outside-client.key"} {
		pem, err := os.ReadFile(c.file(file))
		if err != nil {
			t.Fatal(err)
		}
		path := "/calico-secrets/etcd-" + name
		edits = append(edits, fmt.Sprintf("etcd_%s: \"\" # %s", name, path), fmt.Sprintf("etcd_%s: %q", name, path))
		secret += "  etcd-" + name + ": " + base64.StdEncoding.EncodeToString(pem) + "\n"
	}
	manifest := c.write("calico-etcd.yaml", strings.NewReplacer(append(edits, "data: {}\n", secret)...).Replace(string(text)))
	c.Kubectl("apply", "-f", manifest)
	c.awaitCalico()
	if out, err := c.TryKubectl("", "diff", "-f", manifest); err != nil || out != "" {
		t.Errorf("kubectl diff after kubectl apply: %v\n%s", err, out)
	}
	etcd, err := store.Open(t.Context(), store.Config{
		Endpoints: []string{url}, CAFile: c.file("outside-ca.crt"), CertFile: c.file("outside-client.crt"), KeyFile: c.file("outside-client.key"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() }) // it was only read from
	c.Kubectl("create", "namespace", "guests")
	c.Apply(workload("DaemonSet", "guests", "web", 0, web))
	pods := c.AwaitPods(2, "-n", "guests")
	if err := c.connect(pods[0], pods[1].IP.String()+":8080"); err != nil {
		t.Errorf("pods of two nodes: %v", err)
	}
	c.AwaitClean(etcd)

	// etcd goes and comes back: pods start and end as before.
	outside.kill()
	outside.start()
	c.Kubectl("delete", "pods", "-n", "guests", "--all")
	c.AwaitPods(2, "-n", "guests")
	c.AwaitClean(etcd)
}
