// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package nsmanager

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/nsm"
)

// TestKubernetes: two managers with their account's rights find each other's endpoints in the API, write no other's, and know of one that
// has gone.
func TestKubernetes(t *testing.T) {
	p := kubernetes.Control(t)
	p.Kubectl("apply", "-f", filepath.Join(filepath.Dir(kubernetes.Manifest(t)), "calico-nsm.yaml"))
	p.Kubectl("wait", "--for=condition=Established", "crd/networkservices.networkservicemesh.io", "crd/networkserviceendpoints.networkservicemesh.io")
	p.Apply("{apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: n2}}\n")
	ledgers := map[string]*problems.Ledger{}
	at := time.Now
	open := func(node string) *kubernetesAPI {
		t.Helper()
		file := p.KubeconfigAs("system:serviceaccount:kube-system:calico-nsm", "authentication.kubernetes.io/node-name="+node) // as the token of a pod there says
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		env := run.Env{Logger: log, Health: health.New("calico-test"), Problems: problems.New(log)}
		ledgers[node] = env.Problems
		list := func(about string, err error) { env.Problems.Note("connections", about, err) }
		r, err := openKubernetes(t.Context(), Config{Node: node, Kubeconfig: file}, env, list, newKnown())
		if err != nil {
			t.Fatal(err)
		}
		r.now = func() time.Time { return at() }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.watch(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			_ = r.close()
		})
		eventually.True(t, node+" to have read all", r.isWhole)
		return r
	}
	n1, n2 := open("n1"), open("n2")
	knows := func(r *kubernetesAPI, want string) {
		t.Helper()
		eventually.Nil(t, r.node+" to know "+want, func() error {
			var got []string
			for _, e := range r.those(func(nsm.Endpoint) bool { return true }) {
				got = append(got, fmt.Sprint(e.Service, e.Host, e.Name, e.Address, e.Interfaces))
			}
			if payload, _ := r.payload("vpn"); payload+strings.Join(got, " ") != want {
				return fmt.Errorf("%s %v", payload, got)
			}
			return nil
		})
	}
	gw := nsm.Endpoint{Service: "vpn", Host: "n1", Name: "GW:1", Address: "192.0.2.1:5005", Interfaces: []nsm.Interface{{Type: nsm.Kernel, Parameters: map[string]string{"pools": "10.60.0.0/24"}}}}
	for range 2 {
		if err := n1.enter(t.Context(), gw); err != nil {
			t.Fatal(err)
		}
		knows(n2, "ETHERNETvpnn1GW:1192.0.2.1:5005[{KERNEL_INTERFACE 0 map[pools:10.60.0.0/24]}]")
	}
	if out := p.Kubectl("get", "nse", "-n", "kube-system"); !strings.Contains(out, "vpn       GW:1       n1     192.0.2.1:5005") {
		t.Error(out)
	}
	uid := p.Kubectl("get", "node", "n1", "-o", "jsonpath={.metadata.uid}")
	for _, kind := range []string{"nse", "lease"} {
		if out := p.Kubectl("get", kind, "-n", "kube-system", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].uid}"); out != uid {
			t.Errorf("%s: owned by %q, want %q", kind, out, uid)
		}
	}
	gw.Interfaces, gw.Address = nil, "192.0.2.9:5005"
	if err := n1.enter(t.Context(), gw); err != nil {
		t.Fatal(err)
	}
	knows(n2, "ETHERNETvpnn1GW:1192.0.2.9:5005[]")
	p.Kubectl("patch", "netsvc", "vpn", "-n", "kube-system", "--type=merge", "-p", `{"spec": {"payload": "IPv4"}}`)
	p.Kubectl("delete", "nse", "--all", "-n", "kube-system")
	knows(n1, "IPv4")
	if err := n1.enter(t.Context(), gw); err != nil {
		t.Fatal(err)
	}
	knows(n2, "IPv4vpnn1GW:1192.0.2.9:5005[]")

	// Another node's.
	for name, do := range map[string]func(context.Context) error{
		"endpoint": func(ctx context.Context) error {
			return n2.enter(ctx, nsm.Endpoint{Service: "vpn", Host: "n1", Name: "mine", Address: "192.0.2.66:5005"})
		},
		"removal": func(ctx context.Context) error { return n2.remove(ctx, gw) },
		"lease": func(ctx context.Context) error {
			n2.renewed = time.Time{}
			n2.node = "n1"
			defer func() { n2.node = "n2" }()
			return n2.hold(ctx)
		},
	} {
		eventually.Nil(t, name+" to be refused", func() error { // once the API server has read the policy
			err := do(t.Context())
			if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'calico-nsm'") {
				return fmt.Errorf("written, or refused for another reason: %w", err)
			}
			return nil
		})
	}
	if err := n1.enter(t.Context(), gw); err != nil { // what n2 could write before
		t.Fatal(err)
	}

	// A manager that has gone, and is back. One outside of the cluster has no Lease.
	p.Apply(`{apiVersion: networkservicemesh.io/v1, kind: NetworkServiceEndpoint, metadata: {name: outside, namespace: kube-system}, spec: {network_service_name: vpn, network_service_host: out, nse_provider_name: gw, address: "198.51.100.1:5005"}}`)
	if away := n2.away(t.Context()); away["n1"] {
		t.Error("before a minute has passed:", away)
	}
	later := time.Now().Add(2 * leaseTime)
	at = func() time.Time { return later }
	if away := n2.away(t.Context()); !away["n1"] || away["out"] {
		t.Error(away)
	}
	if err := n1.enter(t.Context(), gw); err != nil {
		t.Fatal(err)
	}
	at = func() time.Time { return later.Add(lookAfter) }
	if away := n2.away(t.Context()); away["n1"] {
		t.Error(away)
	}

	// What the definitions let through and is of no use.
	p.Apply(`{apiVersion: networkservicemesh.io/v1, kind: NetworkServiceEndpoint, metadata: {name: bad, namespace: kube-system}, spec: {network_service_name: "a b", network_service_host: out, nse_provider_name: gw, address: x}}`)
	eventually.True(t, "the bad one to be listed", func() bool { return len(ledgers["n2"].All()) == 1 })
	p.Kubectl("delete", "nse", "bad", "-n", "kube-system")
	eventually.True(t, "the bad one to be gone", func() bool { return len(ledgers["n2"].All()) == 0 })
	if _, err := p.TryKubectl(`{apiVersion: networkservicemesh.io/v1, kind: NetworkServiceEndpoint, metadata: {name: worse, namespace: kube-system}, spec: {network_service_name: vpn}}`, "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), "spec.address: Required value") {
		t.Error(err)
	}
	if err := n1.enter(t.Context(), nsm.Endpoint{Service: "No Object", Host: "n1", Name: "gw", Address: "192.0.2.1:5005"}); err == nil || !strings.Contains(err.Error(), "NetworkService") {
		t.Error(err)
	}
}
