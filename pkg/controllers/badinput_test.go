// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// samples have every field of each watched kind that is read.
var samples = map[string]string{
	"/api/v1/namespaces":      `{apiVersion: v1, kind: Namespace, metadata: {name: good, uid: u, labels: {team: a}, annotations: {x: z}}, spec: {finalizers: [kubernetes]}, status: {phase: Active}}`,
	"/api/v1/serviceaccounts": `{apiVersion: v1, kind: ServiceAccount, metadata: {name: good, namespace: shop, uid: u, labels: {team: a}}, secrets: [{name: a}]}`,
	"/api/v1/nodes":           `{apiVersion: v1, kind: Node, metadata: {name: good, uid: u, labels: {role: a}}, spec: {podCIDR: 10.0.0.0/24}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}`,
	"/api/v1/pods": `{apiVersion: v1, kind: Pod, metadata: {name: good, namespace: shop, uid: u, labels: {app: web}, annotations: {kubernetes.io/config.mirror: m}},
  spec: {serviceAccountName: till, hostNetwork: false, initContainers: [{name: i, restartPolicy: Always, ports: [{name: side, containerPort: 81, protocol: UDP}]}],
    containers: [{name: a, ports: [{name: http, containerPort: 80, protocol: TCP}]}]}, status: {phase: Running}}`,
	"/apis/networking.k8s.io/v1/networkpolicies": `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: good, namespace: shop, uid: u},
  spec: {podSelector: {matchLabels: {app: web}, matchExpressions: [{key: a, operator: In, values: [b]}]}, policyTypes: [Ingress, Egress],
    ingress: [{from: [{podSelector: {matchLabels: {app: db}}, namespaceSelector: {matchLabels: {team: a}}}], ports: [{protocol: TCP, port: http}]}],
    egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{protocol: UDP, port: 1, endPort: 9}]}]}}`,
	"/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies": `{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: good, uid: u},
  spec: {tier: Admin, priority: 7, subject: {namespaces: {matchLabels: {team: a}}},
    ingress: [{name: one, action: Pass, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}], protocols: [{tcp: {destinationPort: {number: 80}}}, {destinationNamedPort: http}]}],
    egress: [{name: two, action: Deny, to: [{networks: [10.0.0.0/8]}, {nodes: {matchLabels: {role: a}}}], protocols: [{udp: {destinationPort: {range: {start: 1, end: 9}}}}]}]}}`,
}

// many is the size of huge things.
const many = 3000

// variants calls put with copies of the value that each have one bad field, and what is bad. With wrong, fields may also have a wrong
// type: objects of a custom kind may hold whatever their definition allows.
func variants(path string, v any, wrong bool, put func(what string, v any)) {
	put(path+" null", nil)
	if wrong {
		put(path+" of another type", map[bool]any{true: []any{"text"}, false: "text"}[isText(v)])
	}
	switch v := v.(type) {
	case string:
		put(path+" empty", "")
		put(path+" huge", strings.Repeat("x", many))
		put(path+" of the next version", "NextVersion")
	case float64:
		put(path+" huge", int64(1<<31-1))
		put(path+" negative", -1)
	case []any:
		put(path+" empty", []any{})
		put(path+" huge", slices.Repeat(v, many))
		put(path+" with null", append(slices.Clone(v), nil))
		for i, e := range v {
			variants(fmt.Sprintf("%s[%d]", path, i), e, wrong, func(what string, e any) {
				other := slices.Clone(v)
				other[i] = e
				put(what, other)
			})
		}
	case map[string]any:
		put(path+" empty", map[string]any{})
		for _, key := range slices.Sorted(maps.Keys(v)) {
			e := v[key]
			if field := path + "." + key; !slices.Contains([]string{".apiVersion", ".kind", ".metadata.name", ".metadata.namespace", ".metadata.uid"}, field) {
				absent := maps.Clone(v)
				delete(absent, key)
				if field != ".metadata" {
					put(field+" absent", absent)
				}
				variants(field, e, wrong && !strings.HasPrefix(field, ".metadata"), func(what string, e any) {
					other := maps.Clone(v)
					other[key] = e
					put(what, other)
				})
			}
		}
		next := maps.Clone(v)
		next["nextVersion"] = map[string]any{"a": []any{1, nil}}
		if _, text := v["app"]; !text && v["team"] == nil && v["role"] == nil && !strings.HasSuffix(path, "annotations") {
			put(path+" of the next version", next)
		}
	}
}

func isText(v any) bool { _, is := v.(string); return is }

// badAPI serves lists of objects that are each bad in one way, and accepts events.
type badAPI struct {
	lists map[string][]any  // by path
	what  map[string]string // of an object, by kind and name, what is bad

	mu     sync.Mutex
	events map[string]string
}

func newBadAPI(t *testing.T) *badAPI {
	a := &badAPI{lists: map[string][]any{}, what: map[string]string{}, events: map[string]string{}}
	for path, sample := range samples {
		var good map[string]any
		if err := yaml.Unmarshal([]byte(sample), &good); err != nil {
			t.Fatal(err)
		}
		kind := good["kind"].(string)
		variants("", good, strings.Contains(path, "v1alpha2"), func(what string, v any) {
			o, _ := v.(map[string]any)
			m, _ := o["metadata"].(map[string]any)
			if m["name"] == nil {
				return // the API has no such object
			}
			o, m = maps.Clone(o), maps.Clone(m)
			m["name"] = fmt.Sprint("bad-", len(a.lists[path]))
			o["metadata"] = m
			a.what[kind+" "+m["name"].(string)] = kind + " " + strings.TrimPrefix(what, ".")
			a.lists[path] = append(a.lists[path], o)
		})
		a.lists[path] = append(a.lists[path], good)
	}
	return a
}

func (a *badAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	reply := func(status int, v any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	items, listed := a.lists[r.URL.Path]
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events"):
		data, _ := io.ReadAll(r.Body)
		var envelope runtime.Unknown // four bytes, then the object in protobuf
		var e corev1.Event
		if len(data) > 4 && envelope.Unmarshal(data[4:]) == nil && e.Unmarshal(envelope.Raw) == nil && e.Type == corev1.EventTypeWarning {
			a.mu.Lock()
			a.events[e.InvolvedObject.Kind+" "+e.InvolvedObject.Name] = e.Message
			a.mu.Unlock()
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(data)
	case r.Method == http.MethodPatch:
		reply(http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	case r.Method == http.MethodGet && listed && r.URL.Query().Get("sendInitialEvents") != "":
		reply(http.StatusUnprocessableEntity, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422})
	case r.Method == http.MethodGet && listed && r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodGet && listed:
		first := items[0].(map[string]any)
		reply(http.StatusOK, map[string]any{
			"kind": first["kind"].(string) + "List", "apiVersion": first["apiVersion"], "metadata": map[string]string{"resourceVersion": "1"}, "items": items,
		})
	default:
		reply(http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
	}
}

// TestBadInput: every field of every watched kind is absent, null, huge, and of a later version. An event tells the object's
// owner if it can, the metric counts the object, and other objects are applied.
func TestBadInput(t *testing.T) {
	api := newBadAPI(t)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	store := etcd.New(t)
	store.Put(model.ReadyKey{}, model.Ready(true))
	var cfg Config
	env, err := Daemon(&cfg).Prepare("", []string{"-etcd-endpoints", store.Addr(), "-health", "0", "-metrics", "0", "-namespace-policy-limit", "0"}, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Enabled = map[string]bool{Namespaces: true, ServiceAccounts: true, Policies: true, Workloads: true}
	client, err := kube.New(kube.Config{Name: "test", APIRoot: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	c := assemble(cfg, env, client, store.Store)
	ctx, stop := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	t.Cleanup(func() { stop(); _ = group.Wait() })
	c.watch(ctx, group)
	group.Go(func() error {
		c.etcd.Lead(ctx, "test", func(context.Context) error { return nil }, c.lead)
		return nil
	})
	for kind, k := range map[string]model.Key{
		kindNamespace: model.ProfileRulesKey{Profile: "k8s_ns.good"}, kindServiceAccount: model.ProfileLabelsKey{Profile: "ksa.shop.good"},
		kindNetworkPolicy: model.PolicyKey{Tier: "default", Policy: "knp.shop.good"}, kindClusterPolicy: model.PolicyKey{Tier: "kube-admin", Policy: "kcnp.good"},
	} {
		store.Until("the "+kind+" in order is in etcd", func() bool { return store.Get(k) != nil })
	}
	store.Until("all pods and nodes are known", func() bool {
		return c.endpoints.Pods() == len(api.lists["/api/v1/pods"]) && c.cluster.count() == len(api.lists["/api/v1/nodes"])
	})
	var have []string
	eventually.Progress(t, "each object that isn't in order has an event", func() (int, error) {
		api.mu.Lock()
		defer api.mu.Unlock()
		have = nil
		for object, message := range api.events {
			have = append(have, fmt.Sprintf("%s: %.150s\n", api.what[object], message))
		}
		total := 0
		for _, kind := range []string{kindNamespace, kindServiceAccount, kindPod, kindNode, kindNetworkPolicy, kindClusterPolicy} {
			total += c.invalid.Count(kind)
		}
		if total != len(have) {
			return total + len(have), fmt.Errorf("%d events of %d objects", len(have), total)
		}
		return 0, nil
	})
	slices.Sort(have)
	const golden = "testdata/badinput.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(strings.Join(have, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), strings.Join(have, "")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
