// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/model"
)

// TestNode: the API's Node reports the network as available once it is, and what is wrong with the runtime's directory.
func TestNode(t *testing.T) {
	h, p := newHost(t), kubernetes.Control(t)
	p.Apply("{apiVersion: v1, kind: Node, metadata: {name: host-1}}")
	conf, staged := t.TempDir(), filepath.Join(h.dir, "var", netconf.StagedName)
	for path, text := range map[string]string{
		staged: `{"name": "net", "plugins": [{"type": "calico"}]}`, filepath.Join(conf, "05-other.conf"): `{"name": "other", "type": "bridge"}`,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	condition := func() string {
		return p.Kubectl("get", "node", "host-1", "-o", `jsonpath={range .status.conditions[?(@.type=="NetworkUnavailable")]}{.status} {.reason}{end}`)
	}
	stop := h.startWith(func(c *Config) { c.CNI.Dir, c.Kubernetes.Kubeconfig = conf, p.Kubeconfig })
	h.unready("/calico/v1/Ready is not true in etcd")
	if got := condition(); got != "" {
		t.Errorf("before the agent serves: %s", got)
	}
	h.put(model.ReadyKey{}, model.Ready(true))
	h.until("the Node's network is there", func() bool { return condition() == "False CalicoIsUp" })
	h.until("the Node has an event about the other configuration", func() bool {
		described := p.Kubectl("describe", "node", "host-1")
		return strings.Contains(described, "AnotherNetworkConfiguration") && strings.Contains(described, "05-other.conf comes before 10-calico.conflist by name")
	})
	stop()
	if got := condition(); got != "False CalicoIsUp" {
		t.Errorf("after the agent's end, as in a restart: %s", got)
	}
}
