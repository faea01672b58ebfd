// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// Kubectl runs kubectl and returns its output. If it fails, the test fails.
func (p *Plane) Kubectl(args ...string) string {
	p.tb.Helper()
	out, err := p.TryKubectl("", args...)
	if err != nil {
		p.tb.Fatal(err)
	}
	return out
}

// Apply applies manifests.
func (p *Plane) Apply(manifests string) {
	p.tb.Helper()
	if _, err := p.TryKubectl(manifests, "apply", "-f", "-"); err != nil {
		p.tb.Fatal(err)
	}
}

// TryKubectl runs kubectl with the text as its input.
func (p *Plane) TryKubectl(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "kubectl"), append([]string{"--kubeconfig", p.Kubeconfig, "--cache-dir", p.file("cache")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s%s", strings.Join(args, " "), err, out.String(), complaint.String())
	}
	return out.String(), nil
}

// Eventually runs kubectl until its output satisfies the condition.
func (p *Plane) Eventually(what string, condition func(out string) error, args ...string) {
	p.tb.Helper()
	p.within(Patience, what, condition, args...)
}

func (p *Plane) within(limit time.Duration, what string, condition func(out string) error, args ...string) {
	p.tb.Helper()
	eventually.Within(p.tb, limit, what, func() error {
		out, err := p.TryKubectl("", args...)
		if err != nil {
			return err
		}
		return condition(out)
	})
}

// DefineClusterNetworkPolicies adds the kind ClusterNetworkPolicy to the API, using upstream's definition with
// experimental fields.
func (p *Plane) DefineClusterNetworkPolicies() {
	p.tb.Helper()
	dir := command(p.tb, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api")
	p.Kubectl("apply", "-f", filepath.Join(strings.TrimSpace(dir), "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"))
	p.Kubectl("wait", "--for=condition=Established", "crd/clusternetworkpolicies.policy.networking.k8s.io")
}
