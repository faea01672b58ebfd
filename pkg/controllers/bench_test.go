// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package controllers_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

var (
	pods       = flag.Int("pods", 50_000, "of the benchmark")
	namespaces = flag.Int("namespaces", 5_000, "of the benchmark, each with a policy")
	resources  = flag.Int("resources", 5_000, "of the benchmark, all GlobalNetworkPolicies")
	nodes      = flag.Int("nodes", 1_000, "of the benchmark")
)

// parallel calls fn with each number below n, several at a time.
func parallel(b *testing.B, n int, fn func(i int) error) {
	b.Helper()
	next := make(chan int)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := range next {
				if err := fn(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// fill makes the objects in the API, and the endpoints in etcd.
func (w *world) fill(b *testing.B) {
	ctx := context.Background()
	labels := map[string]string{"app": "web", "app.kubernetes.io/name": "web", "pod-template-hash": "5d4f8c7b9"}
	parallel(b, *nodes, func(i int) error {
		_, err := kube.Create(ctx, w.api, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}})
		return err
	})
	parallel(b, *namespaces, func(i int) error {
		name := fmt.Sprintf("ns-%d", i)
		_, err := kube.Create(ctx, w.api, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
		if err != nil {
			return err
		}
		_, err = kube.Create(ctx, w.api, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: name}})
		if err != nil {
			return err
		}
		peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: labels}}
		_, err = kube.Create(ctx, w.api, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: name},
			Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}}},
		})
		return err
	})
	addr := netip.MustParseAddr("10.0.0.1")
	addrs := make([]netip.Addr, *pods)
	for i := range addrs {
		addrs[i], addr = addr, addr.Next()
	}
	parallel(b, *pods, func(i int) error {
		namespace, name := fmt.Sprintf("ns-%d", i%*namespaces), fmt.Sprintf("web-5d4f8c7b9-%d", i)
		p, err := kube.Create(ctx, w.api, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
			Spec: corev1.PodSpec{ServiceAccountName: "default", NodeName: fmt.Sprintf("node-%d", i%*nodes), Containers: []corev1.Container{{
				Name: "web", Image: "registry.example.com/shop/web:1.2.3", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				Env: []corev1.EnvVar{{Name: "SETTINGS", Value: strings.Repeat("x", 500)}},
			}}},
		})
		if err != nil {
			return err
		}
		_, err = w.Store.Commit(ctx, model.Change{Puts: []model.Put{{
			Key: model.WorkloadEndpointKey{Host: p.Spec.NodeName, Orchestrator: "k8s", Workload: namespace + "." + name, Endpoint: "eth0"},
			Value: model.WorkloadEndpoint{
				State: model.StateActive, Name: "cali0123456789a", MAC: model.MAC{2}, PodUID: string(p.UID), ContainerID: strings.Repeat("0a", 32), MTU: 1450,
				IPv4Nets:   []netip.Prefix{netip.PrefixFrom(addrs[i], 32)},
				ProfileIDs: model.PodProfiles(namespace, "default"), Labels: model.PodLabels(namespace, "default", labels),
				Ports: []model.EndpointPort{{Name: "http", Protocol: model.ProtocolTCP, Port: 8080}},
			},
		}}})
		return err
	})
}

// BenchmarkCluster runs the program in a large cluster: how long it takes to write all, its memory and idle CPU, and how long a
// pod's label takes to its endpoint.
func BenchmarkCluster(b *testing.B) {
	w := newWorld(b)
	b.Logf("filling: %d pods, %d namespaces and policies, %d nodes", *pods, *namespaces, *nodes)
	began := time.Now()
	w.fill(b)
	b.Logf("filled in %v", time.Since(began))

	for _, what := range []string{"first", "again"} {
		p := startProgram(b, w, w.plane.Kubeconfig)
		took := p.await(w.written)
		b.ReportMetric(took.Seconds(), "s-to-synced-"+what)
		if what == "first" {
			p.stop()
			continue
		}
		b.ReportMetric(float64(p.memory("VmHWM"))/1024, "MiB-peak")
		b.ReportMetric(float64(p.memory("VmRSS"))/1024, "MiB")
		// Measure idle CPU while nothing happens. The first pass of garbage collection is soon after the start, and there is
		// one every five minutes.
		before := p.cpu()
		time.Sleep(20 * time.Second)
		pass := p.cpu()
		b.ReportMetric(float64(pass-before)/1000, "CPU-s-pass")
		time.Sleep(40 * time.Second)
		b.ReportMetric(float64(p.cpu()-pass)/40/10, "%CPU-between")
		w.labels(b)
		p.stop()
	}
}

// labels measures how long changes of pods' labels take.
func (w *world) labels(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := make(chan string, 1000)
	go func() {
		_ = w.Store.Watch(ctx, []string{"/calico/v1/host/node-1/"}, func(u model.Update) error {
			for _, e := range u.Entries {
				if v, ok := e.Value.(model.WorkloadEndpoint); ok && !u.Resync {
					seen <- v.Labels["round"]
				}
			}
			if u.Resync {
				seen <- ""
			}
			return nil
		})
	}()
	<-seen
	var all []time.Duration
	for round := range 50 {
		p, err := kube.Get[corev1.Pod](ctx, w.api, fmt.Sprintf("ns-%d", 1%*namespaces), "web-5d4f8c7b9-1")
		if err != nil {
			b.Fatal(err)
		}
		p.Labels["round"] = strconv.Itoa(round)
		began := time.Now()
		if _, err := kube.Update(ctx, w.api, p); err != nil {
			b.Fatal(err)
		}
		for text := range seen {
			if text == p.Labels["round"] {
				break
			}
		}
		all = append(all, time.Since(began))
	}
	b.ReportMetric(quantile(all, 0.5).Seconds()*1000, "ms-label-p50")
	b.ReportMetric(quantile(all, 0.99).Seconds()*1000, "ms-label-p99")
}

// written reports whether etcd holds all policies and profiles.
func (w *world) written() bool {
	n := 0
	for _, prefix := range []string{"/calico/v1/policy/tier/default/policy/knp.", "/calico/v1/policy/profile/k8s_ns.", "/calico/v1/policy/profile/ksa."} {
		n += w.count(prefix)
	}
	return n >= *namespaces*5
}

func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

// BenchmarkResources runs the program with many policies of Calico's own kind in the API: how long it takes to write all, how long after a
// start it writes what has changed meanwhile, and how much memory they cost.
func BenchmarkResources(b *testing.B) {
	w := newWorld(b)
	w.plane.Apply(manifest(b, "definitions.yaml"))
	w.plane.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	w.Put(model.StatusKey{Host: "n1"}, model.Status{Time: time.Now(), FirstUpdate: true, PolicyRevision: math.MaxInt32}) // an agent that is never late
	p := startProgram(b, w, w.plane.Kubeconfig)
	p.await(func() bool { return true })
	before := p.memory("VmHWM")
	p.stop()

	policy := func(i int, order string) string {
		return fmt.Sprintf(`{"apiVersion":"projectcalico.org/v3","kind":"GlobalNetworkPolicy","metadata":{"name":"web-%d"},"spec":{"order":%s,"selector":"app == 'web-%[1]d'",`+
			`"ingress":[{"action":"Allow","protocol":"TCP","source":{"selector":"client == 'web-%[1]d'"},"destination":{"ports":[80,"8000:8099"]}}],`+
			`"egress":[{"action":"Allow","protocol":"UDP","destination":{"ports":[53]}},{"action":"Allow","destination":{"nets":["10.0.0.0/8"]}}]}}`+"\n", i, order)
	}
	const shares = 16
	parallel(b, shares, func(share int) error {
		var docs strings.Builder
		for i := share; i < *resources; i += shares {
			docs.WriteString(policy(i, "1"))
		}
		_, err := w.plane.TryKubectl(docs.String(), "create", "-f", "-")
		return err
	})
	last := model.PolicyKey{Tier: model.DefaultTier, Policy: fmt.Sprintf("web-%d", *resources-1)}
	for i, what := range []string{"first", "again"} {
		p := startProgram(b, w, w.plane.Kubeconfig)
		eventually.Within(b, 5*time.Minute, "all are written and say so", func() error {
			p, _ := w.Get(last).(model.Policy)
			if n := w.count(model.PolicyPrefix()); n < *resources || p.Order == nil || *p.Order != float64(i+1) {
				return fmt.Errorf("%d are written", n)
			}
			text := w.plane.Kubectl("get", "gnp", "-o", `jsonpath={range .items[*].status.conditions[?(@.type=="Realised")]}{.status}{"\n"}{end}`)
			if n := strings.Count(text, "True"); n < *resources {
				return fmt.Errorf("%d say so", n)
			}
			if generations := w.plane.Kubectl("get", "gnp", last.Policy, "-o", `jsonpath={.metadata.generation} {.status.conditions[*].observedGeneration}`); generations != fmt.Sprintf("%d %[1]d %[1]d", i+1) {
				return fmt.Errorf("the last one's generations: %s", generations)
			}
			return nil
		})
		b.ReportMetric(time.Since(p.began).Seconds(), "s-resources-"+what)
		b.ReportMetric(float64(p.memory("VmHWM")-before)/1024, "MiB-resources-"+what)
		p.stop()
		w.plane.Apply(policy(*resources-1, strconv.Itoa(i+2)))
	}
}

// count returns how many keys there are under a prefix.
func (w *world) count(prefix string) int {
	snapshot, err := w.Store.Read(context.Background(), model.Range{Prefix: prefix, KeysOnly: true})
	if err != nil {
		return 0
	}
	return len(snapshot.Entries())
}
