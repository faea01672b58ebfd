// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// manifest returns one of the sources of the manifests.
func manifest(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../k8s-manifests/base/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const policies = `{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: pods}, spec: {cidr: 10.0.0.0/16, natOutgoing: true}}
---
{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: web}, spec: {tier: net, selector: app == 'web', ingress: [{action: Allow, protocol: TCP, destination: {ports: [80]}}]}}
---
{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: net}, spec: {order: 10}}
---
{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: web, namespace: default}, spec: {selector: app == 'web', egress: [{action: Deny}]}}
`

// accepted waits until an object's condition is as wanted, from the left.
func (w *world) accepted(kind, name, want string) {
	w.Helper()
	eventually.Within(w, kubernetes.Patience, kind+" "+name+" is "+want, func() error {
		if is := w.condition(kind, name); !strings.HasPrefix(is, want) {
			return errors.New(is)
		}
		return nil
	})
}

// condition returns an object's condition Accepted, or why it can't be read.
func (w *world) condition(kind, name string) string {
	out, err := w.plane.TryKubectl("", "get", kind, name, "-o", `jsonpath={range .status.conditions[?(@.type=="Accepted")]}{.status} {.reason} {.message}{end}`)
	if err != nil {
		return err.Error()
	}
	return out
}

// TestResources: what kubectl applies is in force, says so, and goes when it is deleted, but not when the definition of its kind is. The
// controllers have the rights of the manifests.
func TestResources(t *testing.T) {
	w := newWorld(t)
	w.plane.Apply(manifest(t, "definitions.yaml"))
	w.plane.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	w.plane.Apply(manifest(t, "controllers-rbac.yaml"))
	w.plane.Apply(policies)
	admin := w.plane.Kubeconfig
	w.plane.Kubeconfig = w.plane.KubeconfigAs("system:serviceaccount:kube-system:calico-controllers")
	w.run("one")
	stop := w.run("two")
	w.plane.Kubeconfig = admin
	accepted := w.accepted
	accepted("ippools.projectcalico.org", "pods", "True Accepted")
	accepted("tiers.projectcalico.org", "net", "True Accepted")
	accepted("globalnetworkpolicies.projectcalico.org", "web", "True Accepted")
	accepted("networkpolicies.projectcalico.org", "web", "True Accepted")
	if out := w.plane.Kubectl("get", "ipp"); !strings.Contains(out, "10.0.0.0/16") || !strings.Contains(out, "ACCEPTED") {
		t.Errorf("%s", out)
	}
	w.plane.Apply(`{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: over}, spec: {cidr: 10.0.128.0/17}}`)
	accepted("ippools.projectcalico.org", "over", "False Invalid spec.cidr: 10.0.128.0/17 overlaps the pool 10.0.0.0/16 (pods)")
	eventually.Within(t, kubernetes.Patience, "an event on the pool", func() error {
		if out := w.plane.Kubectl("get", "events", "-A", "-o", "jsonpath={.items[*].involvedObject.name}"); !strings.Contains(out, "over") {
			return errors.New(out)
		}
		return nil
	})

	// What the controllers have anyway changes nothing of theirs.
	w.plane.Apply(`{apiVersion: projectcalico.org/v3, kind: KubeControllersConfiguration, metadata: {name: default}, spec: {logSeverityScreen: Info}}`)
	accepted("kubecontrollersconfigurations.projectcalico.org", "default", "True Accepted")

	// While the API is away nothing goes, and what somebody changes then is restored.
	w.plane.KillAPI()
	tier := w.Get(model.TierKey{Tier: "net"}).(model.Tier)
	tier.Order = new(99.0)
	w.Put(model.TierKey{Tier: "net"}, tier)
	w.plane.StartAPI()
	tier.Order = new(10.0)
	w.holds(model.TierKey{Tier: "net"}, tier)
	there := func() {
		t.Helper()
		for name, kind := range map[string]string{"net": "Tier", "web": "GlobalNetworkPolicy", "pods": "IPPool"} {
			k, err := resource.Find(kind)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.New(w.Store).Get(context.Background(), k, "", name); err != nil {
				t.Errorf("%v", err)
			}
		}
	}
	there()

	// Another replica goes on, and what is deleted goes.
	stop()
	w.plane.Kubectl("delete", "networkpolicies.projectcalico.org", "web")
	w.holds(model.PolicyKey{Tier: "default", Policy: "default/web"}, nil)

	// A definition of a later version has fields that these controllers don't know, and one of an earlier version lacks some that they do.
	const schema = "/spec/versions/0/schema/openAPIV3Schema"
	const spec = schema + "/properties/spec/properties/"
	w.plane.Kubectl("patch", "crd", "tiers.projectcalico.org", "--type=json", "-p",
		`[{"op":"add","path":"`+spec+`future","value":{"type":"string"}},{"op":"remove","path":"`+spec+`defaultAction"},{"op":"remove","path":"`+schema+`/x-kubernetes-validations"}]`)
	apply := func(name, spec string) error {
		_, err := w.plane.TryKubectl(`{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: `+name+`}, spec: {`+spec+`}}`, "apply", "-f", "-")
		return err
	}
	order := 100
	eventually.Within(t, kubernetes.Patience, "the controllers' watch has the later definition, too", func() error { // a former one leaves the field out
		order++
		if err := apply("first", fmt.Sprintf("order: %d, future: x", order)); err != nil {
			return err
		}
		if is := w.condition("tiers.projectcalico.org", "first"); !strings.HasPrefix(is, "False Invalid spec.future: unknown field") {
			return errors.New(is)
		}
		return nil
	})
	for name, spec := range map[string]string{"net": "order: 11, future: x", "other": "order: 12"} {
		if err := apply(name, spec); err != nil {
			t.Error(err)
		}
	}
	w.accepted("tiers.projectcalico.org", "net", "False Invalid spec.future: unknown field")
	w.accepted("tiers.projectcalico.org", "other", "True Accepted")
	if now, _ := w.Get(model.TierKey{Tier: "net"}).(model.Tier); now.Order == nil || *now.Order != 10 {
		t.Errorf("an object that can't be read has changed what is in force: %+v", now)
	}
	if err := apply("other", "order: 12, defaultAction: Pass"); err == nil || !strings.Contains(err.Error(), `unknown field "spec.defaultAction"`) {
		t.Errorf("a field that the definition lacks: %v", err)
	}
	w.plane.Apply(manifest(t, "definitions.yaml"))

	// The definitions go: nothing does that is in force. They come back, and the objects with them.
	w.plane.Kubectl("delete", "crd", "globalnetworkpolicies.projectcalico.org", "tiers.projectcalico.org", "--timeout=60s")
	there()
	w.plane.Apply(manifest(t, "definitions.yaml"))
	w.plane.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	w.plane.Apply(strings.ReplaceAll(policies, "order: 10", "order: 20"))
	accepted("tiers.projectcalico.org", "net", "True Accepted")
	accepted("globalnetworkpolicies.projectcalico.org", "web", "True Accepted")
	there()
	eventually.Within(t, kubernetes.Patience, "the tier has its new order", func() error {
		if now, _ := w.Get(model.TierKey{Tier: "net"}).(model.Tier); now.Order == nil || *now.Order != 20 {
			return errors.New("it hasn't")
		}
		return nil
	})
}

// TestAdopt: what calicoctl wrote becomes objects, which say just that, and calicoctl's again, and is in force all the time.
func TestAdopt(t *testing.T) {
	w := newWorld(t)
	w.plane.Apply(manifest(t, "definitions.yaml"))
	w.plane.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	w.run("one")
	calicoctl := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(os.Getenv("CALICO_BIN_DIR"), "calicoctl"), args...)
		cmd.Env, cmd.Stdin = append(os.Environ(), "ETCD_ENDPOINTS="+w.Addr()), strings.NewReader(stdin)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", cmd, err, err.(*exec.ExitError).Stderr)
		}
		return string(out)
	}
	documents := policies + `---
{apiVersion: projectcalico.org/v3, kind: FelixConfiguration, metadata: {name: default}, spec: {ipipMTU: 1400, failsafeInboundHostPorts: [{protocol: TCP, port: 22}]}}
---
{apiVersion: projectcalico.org/v3, kind: BGPPeer, metadata: {name: tor, labels: {rack: a}}, spec: {nodeSelector: rack == 'a', peerIP: 192.0.2.1, asNumber: 64513}}
---
{apiVersion: projectcalico.org/v3, kind: HostEndpoint, metadata: {name: eth0}, spec: {node: n1, interfaceName: eth0}}
`
	calicoctl(`{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: net}, spec: {order: 10}}`, "apply", "-f", "-")
	calicoctl(documents, "apply", "-f", "-")
	kinds := []string{"ippools", "tiers", "globalnetworkpolicies", "networkpolicies", "felixconfigurations", "bgppeers", "hostendpoints"}
	names := []string{"pods", "net", "web", "web", "default", "tor", "eth0"}
	stored := func() (all []string) {
		for i, kind := range kinds {
			all = append(all, calicoctl("", "get", strings.TrimSuffix(kind, ".projectcalico.org"), names[i], "-o", "jsonpath={.metadata.name} {.metadata.labels} {.spec}"))
		}
		return all
	}
	before := stored()
	w.plane.Apply(calicoctl("", "datastore", "adopt"))
	for i := range kinds {
		kinds[i] += ".projectcalico.org"
		w.accepted(kinds[i], names[i], "True Accepted")
	}
	if diff := cmp.Diff(before, stored()); diff != "" {
		t.Errorf("what is in force has changed:\n%s", diff)
	}
	if left := calicoctl("", "datastore", "adopt"); left != "" {
		t.Errorf("what is still calicoctl's: %s", left)
	}
	// What calicoctl prints, kubectl takes, and nothing changes.
	for i, kind := range kinds {
		w.plane.Apply(calicoctl("", "get", strings.TrimSuffix(kind, ".projectcalico.org"), "-o", "yaml", "--export", names[i]))
		if generation := w.plane.Kubectl("get", kind, names[i], "-o", "jsonpath={.metadata.generation}"); generation != "1" {
			t.Errorf("%s %s has changed by what calicoctl prints: %s", kind, names[i], w.plane.Kubectl("get", kind, names[i], "-o", "yaml"))
		}
	}
	calicoctl("", "datastore", "adopt", "--back")
	for i, kind := range kinds {
		w.accepted(kind, names[i], "False Conflict")
		w.plane.Kubectl("delete", kind, names[i])
	}
	if diff := cmp.Diff(before, stored()); diff != "" {
		t.Errorf("what is in force has changed:\n%s", diff)
	}
	calicoctl("", "delete", "gnp", "web")
}

// TestTierRights: a tenant writes policies of the tier default in the namespace alone, and of another tier with the right to it.
func TestTierRights(t *testing.T) {
	p := kubernetes.Control(t)
	p.Apply(manifest(t, "definitions.yaml"))
	p.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	p.Apply(manifest(t, "resources-rbac.yaml"))
	p.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: tenant, namespace: default}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: calico-admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]}`)
	admin := p.Kubeconfig
	tenant := p.KubeconfigAs("tenant")
	policy := func(kind, namespace, tier string) string {
		return `{apiVersion: projectcalico.org/v3, kind: ` + kind + `, metadata: {name: web` + namespace + `}, spec: {` + tier + `selector: all()}}`
	}
	try := func(doc, refusal string) {
		t.Helper()
		p.Kubeconfig = tenant
		defer func() { p.Kubeconfig = admin }()
		eventually.Within(t, kubernetes.Patience, doc, func() error { // the API server takes rights and rules in with a delay
			_, err := p.TryKubectl(doc, "create", "--dry-run=server", "-f", "-")
			switch {
			case refusal == "":
				return err
			case err == nil:
				return errors.New("it is taken")
			case !strings.Contains(err.Error(), refusal):
				return err
			}
			return nil
		})
	}
	try(policy("NetworkPolicy", ", namespace: default", "tier: security, "), "no right to write policies of tier security")
	try(policy("NetworkPolicy", ", namespace: default", ""), "")
	try(policy("NetworkPolicy", ", namespace: default", "tier: security, "), "no right to write policies of tier security")
	try(policy("NetworkPolicy", ", namespace: kube-system", ""), "forbidden")
	try(policy("GlobalNetworkPolicy", "", ""), "forbidden")
	eventually.Nil(t, "the administrator to write a global policy of any tier", func() error {
		_, err := p.TryKubectl(policy("GlobalNetworkPolicy", "", "tier: security, "), "create", "--dry-run=server", "-f", "-")
		return err
	})
	p.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: security, namespace: default}, rules: [{apiGroups: [projectcalico.org], resources: [tier.networkpolicies], resourceNames: [security.*], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: security, namespace: default}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: security}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]}`)
	try(strings.Replace(policy("NetworkPolicy", ", namespace: default", "tier: security, "), "name: web", "name: other", 1), "")
}

// TestProgramSettings: the program ends with success when etcd changes its settings.
func TestProgramSettings(t *testing.T) {
	w := newWorld(t)
	p := startProgram(t, w, w.plane.Kubeconfig)
	p.await(func() bool { return true })
	w.Put(model.ControllersConfigKey{}, model.ControllersConfig{Disabled: []string{"node"}})
	p.stopped = true
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}
