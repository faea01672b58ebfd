// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// fakeAPI is an API whose live answers a test sets, and that counts the requests. The test passes watch events to the keeper itself.
type fakeAPI struct {
	API
	pod    Pod
	err    error
	silent bool // it never answers
	asked  int
}

func (f *fakeAPI) Pod(ctx context.Context, _, _ string) (Pod, error) {
	f.asked++
	if f.silent {
		<-ctx.Done()
		return Pod{}, ctx.Err()
	}
	return f.pod, f.err
}

func (f *fakeAPI) Namespace(context.Context, string) (map[string]string, error) {
	return map[string]string{"cni.projectcalico.org/ipv4pools": "live"}, nil
}

var web = Pod{
	Namespace: "shop", Name: "web", UID: "u1", Node: "n", ServiceAccount: "cart", Labels: map[string]string{"app": "web"},
	Annotations: map[string]string{"cni.projectcalico.org/hwAddr": "own"}, Ports: []model.EndpointPort{{Name: "http", Protocol: model.ProtocolTCP, Port: 80}},
}

var cidr = netip.MustParsePrefix("10.244.1.0/24")

// synced returns a keeper that knows an empty cluster.
func synced(api *fakeAPI) *Cache {
	k := New(Config{Node: "n", API: api})
	k.SetPodCIDRs([]netip.Prefix{cidr})
	for _, kind := range []string{KindPod, KindNamespace, KindNode} {
		k.Synced(kind)
	}
	return k
}

var comparePods = cmpopts.EquateComparable(netip.Prefix{})

func TestWatched(t *testing.T) {
	api := &fakeAPI{}
	k := synced(api)
	k.SetNamespace("shop", map[string]string{"cni.projectcalico.org/hwAddr": "namespace's", "cni.projectcalico.org/ipv4pools": "namespace's"})
	k.SetPod(web)
	want := gate.Pod{
		UID: "u1", ServiceAccount: "cart", Labels: web.Labels, Ports: web.Ports, PodCIDRs: []netip.Prefix{cidr},
		Annotations: map[string]string{"cni.projectcalico.org/hwAddr": "own", "cni.projectcalico.org/ipv4pools": "namespace's"},
	}
	for _, uid := range []string{"", "u1"} {
		got, err := k.Pod(t.Context(), gate.PodRequest{Namespace: "shop", Name: "web", UID: uid})
		if diff := cmp.Diff(want, got, comparePods); diff != "" || err != nil {
			t.Errorf("uid %q: %v (-want +got):\n%s", uid, err, diff)
		}
	}
	// A static pod has another uid in the API, and yet another once its mirror there is recreated.
	static := web
	static.StaticUID = "of-the-file"
	for _, mirror := range []string{"u1", "u2"} {
		static.UID = mirror
		k.SetPod(static)
		for _, uid := range []string{"", "of-the-file"} {
			if got, err := k.Pod(t.Context(), gate.PodRequest{Namespace: "shop", Name: "web", UID: uid}); err != nil || got.UID != "of-the-file" {
				t.Errorf("static pod: %+v, %v", got, err)
			}
		}
	}
	// The node alone.
	got, err := k.Pod(t.Context(), gate.PodRequest{})
	if diff := cmp.Diff(gate.Pod{PodCIDRs: []netip.Prefix{cidr}}, got, comparePods); diff != "" || err != nil {
		t.Errorf("node: %v (-want +got):\n%s", err, diff)
	}
	if api.asked != 0 {
		t.Errorf("the API was asked %d times for what is known", api.asked)
	}
}

// TestLate: the watch delivers a pod, a pod with another uid or a namespace a moment after kubelet has it.
func TestLate(t *testing.T) {
	former := web
	former.UID = "u0"
	for name, first := range map[string]func(*Cache){
		"pod":       func(k *Cache) { k.SetNamespace("shop", nil) },
		"other uid": func(k *Cache) { k.SetNamespace("shop", nil); k.SetPod(former) },
		"namespace": func(k *Cache) { k.SetPod(web) },
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &fakeAPI{}
			k := synced(api)
			first(k)
			go func() {
				time.Sleep(patience / 2)
				k.SetNamespace("shop", nil)
				k.SetPod(web)
			}()
			got, err := k.Pod(t.Context(), gate.PodRequest{Namespace: "shop", Name: "web", UID: "u1"})
			if err != nil || got.UID != "u1" || api.asked != 0 {
				t.Errorf("%s: %+v, %v, asked %d times", name, got, err, api.asked)
			}
		})
	}
}

// TestLive: what the watch doesn't deliver in time is read from the API, once.
func TestLive(t *testing.T) {
	other, elsewhere := web, web
	other.UID, elsewhere.Node = "u2", "m"
	for _, tt := range []struct {
		name   string
		api    fakeAPI
		absent bool
		err    string
	}{
		{"there", fakeAPI{pod: web}, false, ""},
		{"absent", fakeAPI{err: fmt.Errorf("get Pod: %w", os.ErrNotExist)}, true, "no such pod: the Kubernetes API has no pod shop/web"},
		{"another", fakeAPI{pod: other}, true, "no such pod: pod shop/web has the uid u2 by now, not u1"},
		{"away", fakeAPI{err: errors.New("connection refused")}, false, "the Kubernetes API can't be read: connection refused"},
		{"another node's", fakeAPI{pod: elsewhere}, false,
			`the agent refused: pod shop/web is to run on node "m", and this agent is node "n"'s: give it the Node's name as NODENAME`},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := synced(&tt.api)
			began := time.Now()
			got, err := k.Pod(t.Context(), gate.PodRequest{Namespace: "shop", Name: "web", UID: "u1"})
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tt.err || errors.Is(err, gate.ErrNoPod) != tt.absent || tt.api.asked != 1 || time.Since(began) != patience {
				t.Errorf("%s: %v after %v, asked %d times", tt.name, err, time.Since(began), tt.api.asked)
			}
			if tt.err == "" && (got.UID != "u1" || got.Annotations["cni.projectcalico.org/ipv4pools"] != "live" || len(got.PodCIDRs) != 1) {
				t.Errorf("%s: %+v", tt.name, got)
			}
		})
	}
}

// TestSilentAPI: an API that doesn't answer delays a caller by 5 s at most.
func TestSilentAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := synced(&fakeAPI{silent: true})
		began := time.Now()
		_, err := k.Pod(t.Context(), gate.PodRequest{Namespace: "shop", Name: "web", UID: "u1"})
		if err == nil || err.Error() != "the Kubernetes API can't be read: context deadline exceeded" || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestUnsynced: before everything is known nothing is, and the API, which can't be read, isn't asked either.
func TestUnsynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{}
		k := New(Config{Node: "n", API: api})
		k.Synced(KindNode)
		k.Trouble(KindNamespace, errors.New("list namespaces: forbidden"))
		for _, r := range []gate.PodRequest{{}, {Namespace: "shop", Name: "web"}} {
			if _, err := k.Pod(t.Context(), r); err == nil || err.Error() != "the Kubernetes API can't be read: list namespaces: forbidden" || api.asked != 0 {
				t.Errorf("%+v: %v", r, err)
			}
		}
		k.Synced(KindNamespace)
		if _, err := k.Pod(t.Context(), gate.PodRequest{}); err == nil || err.Error() != "the Kubernetes API can't be read: no answer yet" {
			t.Error(err)
		}
		k.Synced(KindPod)
		k.SetNamespace("shop", nil)
		k.SetPod(web)
		k.Trouble(KindPod, errors.New("away")) // what is known stays so
		if _, err := k.Pod(t.Context(), gate.PodRequest{Namespace: "shop", Name: "web"}); err != nil {
			t.Error(err)
		}
		k.DeletePod("shop", "web")
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		if _, err := k.Pod(ctx, gate.PodRequest{Namespace: "shop", Name: "web"}); !errors.Is(err, errUnknown) || api.asked != 0 {
			t.Errorf("a deleted pod, of one who doesn't wait: %v", err)
		}
	})
}

func TestPodOf(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	got := podOf(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "u1", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{
				"cni.projectcalico.org/hwAddr": "x", "qos.projectcalico.org/x": "y", "kubernetes.io/ingress-bandwidth": "1M", "kubernetes.io/egress-bandwidth": "2M",
				"kubernetes.io/config.mirror": "static", "other": "z",
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "n", ServiceAccountName: "cart",
			InitContainers: []corev1.Container{
				{Ports: []corev1.ContainerPort{{Name: "init", ContainerPort: 1}}},
				{RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "sidecar", ContainerPort: 2}}},
			},
			Containers: []corev1.Container{
				{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}, {ContainerPort: 81}, {Name: "dns", ContainerPort: 53, Protocol: "UDP"}, {Name: "bad", ContainerPort: 1, Protocol: "GRE"}}},
				{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "none"}, {Name: "sig", ContainerPort: 7, Protocol: "SCTP"}}},
			},
		},
	})
	want := Pod{
		Namespace: "shop", Name: "web", UID: "u1", Node: "n", StaticUID: "static", ServiceAccount: "cart", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{
			"cni.projectcalico.org/hwAddr": "x", "qos.projectcalico.org/x": "y", "kubernetes.io/ingress-bandwidth": "1M", "kubernetes.io/egress-bandwidth": "2M",
		},
		Ports: []model.EndpointPort{
			{Name: "sidecar", Protocol: model.ProtocolTCP, Port: 2}, {Name: "http", Protocol: model.ProtocolTCP, Port: 80}, {Name: "dns", Protocol: model.ProtocolUDP, Port: 53}, {Name: "http", Protocol: model.ProtocolTCP, Port: 8080},
			{Name: "sig", Protocol: model.ProtocolSCTP, Port: 7},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := podOf(&corev1.Pod{}); got.Annotations != nil || got.Ports != nil {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestPodCIDRsOf(t *testing.T) {
	n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24", "fd00:1::/64", "bad"}}}
	if diff := cmp.Diff([]netip.Prefix{cidr, netip.MustParsePrefix("fd00:1::/64")}, podCIDRsOf(n), comparePods); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := podCIDRsOf(&corev1.Node{}); got != nil {
		t.Errorf("of a node without: %v", got)
	}
}

func TestUnshaped(t *testing.T) {
	const (
		alone   = `{"type":"calico"}`
		chained = `{"plugins":[{"type":"calico"},{"type":"portmap","capabilities":{"portMappings":true}}]}`
		shaping = `{"plugins":[{"type":"calico"},{"type":"bandwidth","capabilities":{"bandwidth":true}}]}`
	)
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  bool
	}{
		{"none", nil, false},
		{"others", map[string]string{"10-x.conflist": `{"plugins":[{"type":"ptp"}]}`, "20-calico.txt": alone, "30.conf": "garbage"}, false},
		{"alone", map[string]string{"10-calico.conf": alone}, true},
		{"chained", map[string]string{"10-calico.conflist": chained}, true},
		{"shaping", map[string]string{"10-calico.conflist": shaping}, false},
		{"by itself", map[string]string{"10-calico.conflist": `{"plugins":[{"type":"calico","capabilities":{"bandwidth":true}}]}`}, false},
		{"the first", map[string]string{"10-calico.conflist": shaping, "20-calico.conf": alone}, false},
	} {
		dir := t.TempDir()
		for name, content := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := Unshaped(dir); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if Unshaped(filepath.Join(t.TempDir(), "none")) {
		t.Error("a directory that isn't there")
	}
}
