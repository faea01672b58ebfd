// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package ipam

import (
	"bytes"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// TestPods: check asks a real API for its pods.
func TestPods(t *testing.T) {
	plane, e := kubernetes.Control(t), etcd.New(t)
	run := func(kubeconfig string) (string, error) {
		var out bytes.Buffer
		env := &session.Env{Stdout: &out, Stderr: &out, Environ: []string{"ETCD_ENDPOINTS=http://" + e.Addr(), "KUBECONFIG=" + kubeconfig}}
		defer env.Close()
		cmd := New(env)
		env.AddFlags(cmd)
		cmd.SetArgs([]string{"check"})
		cmd.SetContext(t.Context())
		err := cmd.Execute()
		return out.String(), err
	}
	if out, err := run(plane.Kubeconfig); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	e.Put(model.WorkloadEndpointKey{Host: "n", Orchestrator: "k8s", Workload: "default.gone", Endpoint: "eth0"}, model.WorkloadEndpoint{State: model.StateActive, Name: "cali1", MAC: model.MAC{2}})
	if out, err := run(plane.Kubeconfig); err == nil || !strings.Contains(out, "pod default/gone: there is no such pod") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := run("/nowhere"); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("a kubeconfig that isn't there: %v", err)
	}
}
