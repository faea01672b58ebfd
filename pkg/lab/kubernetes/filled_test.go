// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// bootstrapAccount is the service account of the Job and the CronJob.
const bootstrapAccount = "system:serviceaccount:kube-system:calico-bootstrap"

// TestFilled has bootstrap fill what the manifest makes, with its account's rights: a later apply of either kind takes nothing back, and of
// anything else it may write nothing.
func TestFilled(t *testing.T) {
	p := Control(t)
	manifest := filepath.Join(manifests, "calico.yaml")
	p.Kubectl("apply", "-f", manifest)
	p.Apply("{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {node-role.kubernetes.io/control-plane: \"\"}}}\n")
	p.Kubectl("patch", "node", "n1", "--subresource=status", "-p", `{"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}}`)
	bootstrap := func() (end func() string) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root(t), "bin", "calico-install"), "bootstrap")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+p.KubeconfigAs(bootstrapAccount))
		return watch(t, cmd, func(cmd *exec.Cmd) { _ = cmd.Process.Kill() }) // it waits for an etcd that doesn't come
	}
	filled := func() []string {
		return strings.Split(p.Kubectl("get", "secrets,configmaps", "-n", kubeSystem, "-l", "k8s-app=calico-etcd", "-o", `go-template={{range .items}}{{range $k, $v := .data}}{{$k}}={{printf "%q\n" $v}}{{end}}{{end}}`), "\n")
	}
	var before []string
	twice := []func() string{bootstrap(), bootstrap()} // of two at once, one may be refused, and goes on in its next run
	eventually.Within(t, Patience, "the secrets to be filled", func() error {
		if before = filled(); len(before) != 2+5+2*3+5+1 {
			return errors.New(strings.Join(before, "\n"))
		}
		return nil
	})
	said := twice[0]() + twice[1]()
	if strings.Contains(said, "forbidden") {
		t.Error(said)
	}
	slices.Sort(before)
	for _, how := range [][]string{{}, {"--server-side", "--force-conflicts"}, {}} {
		p.Kubectl(append([]string{"apply", "-f", manifest}, how...)...)
		after := filled()
		slices.Sort(after)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("kubectl apply %v (-before +after):\n%s", how, diff)
		}
	}
	for right, want := range map[string]bool{
		"get /secrets calico-etcd-ca": true, "update /secrets calico-etcd-ca": true, "get /secrets other": false, "list /secrets": false,
		"create /secrets": false, "create /configmaps": false, "update /configmaps kubernetes-services-endpoint": false,
		"list /nodes": true, "patch /nodes n1": false, "patch /nodes/status n1": false, "create /pods": false,
	} {
		f := append(strings.Fields(right), "")
		g := grant{Verbs: f[:1], APIGroups: []string{""}, Resources: []string{strings.TrimPrefix(f[1], "/")}}
		if f[2] != "" {
			g.ResourceNames = f[2:3]
		}
		if p.allowed(t, bootstrapAccount, g) != want {
			t.Errorf("calico-bootstrap: %s: want allowed %v", right, want)
		}
	}
}
