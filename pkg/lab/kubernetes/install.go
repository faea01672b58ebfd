// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/calico-go/calico/pkg/store"
)

// Images returns the tars that `make images` made for this architecture.
func Images(tb testing.TB) []string {
	tb.Helper()
	tars, err := filepath.Glob(filepath.Join(root(tb), "bin", "images", "*"+runtime.GOARCH+"*.tar"))
	if err != nil || len(tars) < 2 {
		tb.Fatalf("images of calico and etcd: run make images: found %v, %v", tars, err)
	}
	return tars
}

// Manifest returns the path of the manifest that users apply.
func Manifest(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(root(tb), "k8s-manifests", "calico.yaml")
}

// Install does what the documentation says: kubectl apply. It waits until both nodes are ready and all our pods run,
// and returns a client of the etcd that comes with them.
func (c *Cluster) Install(manifest string) *store.Client {
	c.tb.Helper()
	c.Kubectl("apply", "-f", manifest)
	c.awaitCalico()
	return c.Etcd()
}

// awaitCalico waits until all nodes are ready, and agents and controllers are as in the manifest.
func (c *Cluster) awaitCalico() {
	c.tb.Helper()
	c.AwaitReady()
	c.Kubectl("rollout", "status", "-n", "kube-system", "daemonset/calico-node", "--timeout=180s")
	c.Kubectl("rollout", "status", "-n", "kube-system", "deployment/calico-controllers", "--timeout=180s")
}

// Etcd connects to the manifest's etcd with an operator's certificate.
func (c *Cluster) Etcd() *store.Client {
	c.tb.Helper()
	var secret struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(c.Kubectl("get", "secret", "-n", "kube-system", ctlSecret, "-o", "json")), &secret); err != nil {
		c.tb.Fatal(err)
	}
	for name, text := range secret.Data {
		data, err := base64.StdEncoding.DecodeString(text)
		if err == nil {
			err = os.WriteFile(c.file("ctl-"+name), data, 0o600)
		}
		if err != nil {
			c.tb.Fatal(err)
		}
	}
	client, err := store.Open(c.tb.Context(), store.Config{
		Endpoints: []string{"https://" + c.Nodes[0].Address.String() + ":2479"},
		CAFile:    c.file("ctl-etcd-ca"), CertFile: c.file("ctl-etcd-cert"), KeyFile: c.file("ctl-etcd-key"),
	})
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(func() { _ = client.Close() }) // it was only read from
	return client
}

// ctlSecret has an operator's certificate for etcd.
const ctlSecret = "calico-etcd-ctl"
