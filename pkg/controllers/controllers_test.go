// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/controllers"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// world is a Kubernetes API, an etcd, and controllers between them.
type world struct {
	*etcd.Server
	plane *kubernetes.Plane
	api   *kube.Client
	// program is the path of the program, "" = it isn't built yet.
	program string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{Server: etcd.New(t), plane: kubernetes.Control(t)}
	api, err := kube.New(kube.Config{Kubeconfig: w.plane.Kubeconfig, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	w.api = api
	t.Cleanup(api.Close)
	w.Put(model.ReadyKey{}, model.Ready(true))
	return w
}

// run runs controllers until stop is called.
func (w *world) run(identity string, args ...string) (stop func()) {
	w.Helper()
	var log io.Writer = io.Discard
	if testing.Verbose() {
		log = os.Stderr
	}
	var cfg controllers.Config
	env, err := controllers.Daemon(&cfg).Prepare("", append([]string{"-etcd-endpoints", w.Addr(), "-kubeconfig", w.plane.Kubeconfig, "-health", "0", "-metrics", "0"}, args...), nil, log)
	if err != nil {
		w.Fatal(err)
	}
	env.Logger, cfg.Identity = env.Logger.With("identity", identity), identity
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- controllers.Run(ctx, &cfg, env) }()
	stop = func() {
		cancel()
		if done == nil {
			return
		}
		if err := <-done; err != nil {
			w.Errorf("controllers %s: %v", identity, err)
		}
		done = nil
	}
	w.Cleanup(stop)
	return stop
}

// holds waits until a key holds a value, nil = none.
func (w *world) holds(key model.Key, want any) {
	w.Helper()
	eventually.Within(w, kubernetes.Patience, key.Path(), func() error {
		diff := cmp.Diff(want, w.Get(key), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))
		if diff != "" {
			return errors.New("(-want +got):\n" + diff)
		}
		return nil
	})
}

const shop = `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: till, namespace: shop, labels: {tier: front}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web, projectcalico.org/x: nobody}}, spec: {serviceAccountName: till, containers: [{name: a, image: none, ports: [{name: http, containerPort: 8080}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: closed, namespace: shop}, spec: {podSelector: {}}}
`

// uid returns the UID of a pod.
func (w *world) uid(namespace, name string) string {
	w.Helper()
	p, err := kube.Get[corev1.Pod](context.Background(), w.api, namespace, name)
	if err != nil {
		w.Fatal(err)
	}
	return string(p.UID)
}

func key(namespace, name string) model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: "a", Orchestrator: "k8s", Workload: namespace + "." + name, Endpoint: "eth0"}
}

func written(uid string) model.WorkloadEndpoint {
	return model.WorkloadEndpoint{
		State: model.StateActive, Name: "cali0", ProfileIDs: []string{"k8s_ns.shop"}, IPv4Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")},
		Labels: map[string]string{"calico/k8s_ns": "shop"}, ContainerID: "0a1b", PodUID: uid, MTU: 1450,
	}
}

func labelled(uid string) model.WorkloadEndpoint {
	e := written(uid)
	e.Labels = map[string]string{"app": "web", "calico/k8s_ns": "shop", "projectcalico.org/serviceaccount": "till"}
	e.ProfileIDs = []string{"k8s_ns.shop", "ksa.shop.till"}
	e.Ports = []model.EndpointPort{{Name: "http", Protocol: model.ProtocolTCP, Port: 8080}}
	return e
}

var allow = model.Rules{Inbound: []model.Rule{{Action: model.ActionAllow}}, Outbound: []model.Rule{{Action: model.ActionAllow}}}

// The content of the API reaches etcd, and so do changes in either.
func TestControllers(t *testing.T) {
	w := newWorld(t)
	w.plane.Apply(shop)
	uid := w.uid("shop", "web")
	w.Put(key("shop", "web"), written(uid))
	w.Put(model.WorkloadEndpointKey{Host: "b", Orchestrator: "k8s", Workload: "shop.web", Endpoint: "eth0"}, written("another"))
	stale := model.PolicyKey{Tier: "default", Policy: "knp.shop.gone"}
	foreign := model.PolicyKey{Tier: "default", Policy: "mine"}
	profile := model.ProfileRulesKey{Profile: "web"}
	for _, k := range []model.Key{stale, foreign} {
		w.Put(k, model.Policy{Selector: "all()"})
	}
	w.Put(profile, model.Rules{})
	w.run("one")

	w.holds(key("shop", "web"), labelled(uid))
	w.holds(model.ProfileRulesKey{Profile: "k8s_ns.shop"}, allow)
	w.holds(model.ProfileTagsKey{Profile: "k8s_ns.shop"}, model.Tags{"k8s_ns.shop"})
	w.holds(model.ProfileLabelsKey{Profile: "k8s_ns.shop"}, model.Labels{"k8s_ns/label/team": "a", "k8s_ns/label/kubernetes.io/metadata.name": "shop"})
	w.holds(model.ProfileLabelsKey{Profile: "ksa.shop.till"}, model.Labels{"k8s_sa/label/tier": "front"})
	thousand, last := 1000.0, 10_000_000.0
	closed := model.PolicyKey{Tier: "default", Policy: "knp.shop.closed"}
	policy := model.Policy{Selector: `calico/k8s_ns == "shop"`, Order: &thousand, Types: []model.Direction{model.Inbound}}
	w.holds(closed, policy)
	w.holds(model.TierKey{Tier: "kube-admin"}, model.Tier{Order: &thousand, DefaultAction: model.TierPass})
	w.holds(model.TierKey{Tier: "kube-baseline"}, model.Tier{Order: &last, DefaultAction: model.TierPass})
	w.holds(stale, nil)
	w.holds(model.LeaderKey{}, model.Text("one"))

	// Changes in the API.
	w.plane.Kubectl("label", "-n", "shop", "pod/web", "app=db", "--overwrite")
	db := labelled(uid)
	db.Labels["app"] = "db"
	w.holds(key("shop", "web"), db)
	w.plane.Kubectl("label", "namespace/shop", "team-")
	w.holds(model.ProfileLabelsKey{Profile: "k8s_ns.shop"}, model.Labels{"k8s_ns/label/kubernetes.io/metadata.name": "shop"})

	// Changes in etcd.
	w.Remove(closed, model.TierKey{Tier: "kube-admin"})
	w.Put(model.ProfileRulesKey{Profile: "k8s_ns.shop"}, model.Rules{})
	w.Put(key("shop", "web"), written(uid))
	w.holds(closed, policy)
	w.holds(model.TierKey{Tier: "kube-admin"}, model.Tier{Order: &thousand, DefaultAction: model.TierPass})
	w.holds(model.ProfileRulesKey{Profile: "k8s_ns.shop"}, allow)
	w.holds(key("shop", "web"), db)
	w.overwritten("shop", "NetworkPolicy/closed", "Pod/web")
	w.overwritten("default", "Namespace/shop")

	// Deletions: a profile stays while an endpoint has it.
	w.plane.Kubectl("delete", "-n", "shop", "networkpolicy/closed", "serviceaccount/till")
	w.holds(closed, nil)
	w.holds(model.ProfileLabelsKey{Profile: "ksa.shop.till"}, model.Labels{"k8s_sa/label/tier": "front"})
	w.Remove(key("shop", "web"))
	w.holds(model.ProfileLabelsKey{Profile: "ksa.shop.till"}, nil)

	// What others made stays.
	w.holds(model.WorkloadEndpointKey{Host: "b", Orchestrator: "k8s", Workload: "shop.web", Endpoint: "eth0"}, written("another"))
	w.holds(foreign, model.Policy{Selector: "all()"})
	w.holds(profile, model.Rules{})
}

// overwritten waits until objects have the event that their keys had been changed by another writer.
func (w *world) overwritten(namespace string, objects ...string) {
	w.Helper()
	w.plane.Eventually("events of "+strings.Join(objects, ", "), func(out string) error {
		for _, o := range objects {
			if !strings.Contains(out, o+" ") {
				return fmt.Errorf("%s has none: %s", o, out)
			}
		}
		return nil
	}, "get", "events", "-n", namespace, "--field-selector=reason=Overwritten", "-o", "jsonpath={range .items[*]}{.involvedObject.kind}/{.involvedObject.name} {end}")
}

// Ports of the nodes are protected, at their current tunnels as well, and no longer once controllers without protected ports
// run.
func TestProtectedPorts(t *testing.T) {
	w := newWorld(t)
	w.plane.Apply("{apiVersion: v1, kind: Node, metadata: {name: a}}")
	w.plane.Kubectl("patch", "node", "a", "--subresource=status", "-p", `{"status": {"addresses": [{"type": "InternalIP", "address": "10.9.0.1"}]}}`)
	tunnel, vxlan := netip.MustParseAddr("10.244.64.0"), model.HostConfigKey{Host: "a", Name: "IPv4VXLANTunnelAddr"}
	w.Put(vxlan, model.Text(tunnel.String()))
	ports := []model.Port{{Min: 2479, Max: 2479}}
	puts := kubepolicy.Protection(ports, []netip.Addr{tunnel})
	endpoint, _ := kubepolicy.NodeEndpoint(kubepolicy.Node{Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.1")}})
	puts = append(puts, model.Put{Key: kubepolicy.NodeEndpointKey("a"), Value: endpoint})
	stop := w.run("one", "-protected-ports", "2479", "-controllers", "node")
	for _, p := range puts {
		w.holds(p.Key, p.Value)
	}
	w.Remove(vxlan)
	for _, p := range kubepolicy.Protection(ports, nil) {
		w.holds(p.Key, p.Value)
	}
	stop()
	w.run("two")
	for _, p := range puts {
		w.holds(p.Key, nil)
	}
}

// While the API, etcd or a leader is away nothing is deleted, and everything goes on when it is back.
func TestAway(t *testing.T) {
	w := newWorld(t)
	w.plane.Apply(shop)
	uid := w.uid("shop", "web")
	w.Put(key("shop", "web"), written(uid))
	stop := w.run("one")
	w.run("two")
	w.holds(key("shop", "web"), labelled(uid))
	lost := w.guard(model.PolicyKey{Tier: "default", Policy: "knp.shop.closed"}, model.ProfileRulesKey{Profile: "k8s_ns.shop"}, key("shop", "web"))

	t.Log("etcd away")
	w.Stop()
	w.plane.Kubectl("label", "-n", "shop", "pod/web", "app=etcd", "--overwrite")
	w.Start()
	want := labelled(uid)
	want.Labels["app"] = "etcd"
	w.holds(key("shop", "web"), want)

	t.Log("API away")
	w.plane.KillAPI()
	w.Remove(model.ProfileTagsKey{Profile: "k8s_ns.shop"}) // the leader may write it again
	w.plane.StartAPI()
	w.plane.Kubectl("label", "-n", "shop", "pod/web", "app=api", "--overwrite")
	want.Labels["app"] = "api"
	w.holds(key("shop", "web"), want)
	w.holds(model.ProfileTagsKey{Profile: "k8s_ns.shop"}, model.Tags{"k8s_ns.shop"})

	t.Log("leader away")
	stop()
	w.plane.Kubectl("label", "-n", "shop", "pod/web", "app=leader", "--overwrite")
	want.Labels["app"] = "leader"
	w.holds(key("shop", "web"), want)
	if lost() {
		t.Error("something that lives was deleted")
	}
}

// Of two on one node the one that has the ports leads: health and metrics are the leader's.
func TestSharedNode(t *testing.T) {
	w := newWorld(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.run("standby", "-health", taken.Addr().String())
	w.plane.Apply(shop)
	stop := w.run("leader")
	profile := model.ProfileTagsKey{Profile: "k8s_ns.shop"}
	w.holds(profile, model.Tags{"k8s_ns.shop"})
	lease, err := kube.Get[coordinationv1.Lease](t.Context(), w.api, "kube-system", controllers.LeaseName)
	if err != nil {
		t.Fatal(err)
	}
	if by := lease.Spec.HolderIdentity; by == nil || *by != "leader" {
		t.Errorf("the Lease is %v's", by)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	stop()
	w.Remove(profile)
	w.holds(profile, model.Tags{"k8s_ns.shop"})
}

// guard waits until the keys exist, and reports whether any of them was ever deleted since.
func (w *world) guard(keys ...model.Key) (lost func() bool) {
	w.Helper()
	made := map[model.Key]int64{}
	for _, k := range keys {
		w.Until(k.Path()+" exists", func() bool {
			made[k] = w.created(k)
			return made[k] != 0
		})
	}
	return func() (any bool) {
		w.Helper()
		for k, revision := range made {
			if now := w.created(k); now != revision {
				w.Logf("%s was made at revision %d, and is of %d", k.Path(), revision, now)
				any = true
			}
		}
		return any
	}
}

// created returns the revision at which a key was made, 0 = it doesn't exist.
func (w *world) created(k model.Key) int64 {
	w.Helper()
	snapshot, err := w.Store.Read(context.Background(), model.KeyRange(k))
	if err != nil {
		w.Fatal(err)
	}
	e, _ := snapshot.Get(k)
	return e.Created
}
