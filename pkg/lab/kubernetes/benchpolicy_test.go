// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/probe"
)

const (
	policyNamespaces = 10
	policyEach       = 100 // policies in each of them
	probeNamespace   = "probe"
	probePort        = 7000
)

// podNamespace is the network namespace of a pod.
type podNamespace struct {
	testing.TB
	file *os.File
}

// Do implements probe.Namespace.
func (n podNamespace) Do(fn func() error) (err error) {
	entered := false
	netns.Within(n, n.file, func() { entered, err = true, fn() })
	if !entered {
		return errors.New("the pod's network namespace can't be entered")
	}
	return err
}

// namespaceOf finds the network namespace of a pod of the node by its address.
func (n *Node) namespaceOf(tb testing.TB, ip netip.Addr) podNamespace {
	tb.Helper()
	files, err := filepath.Glob(n.Path("/run/netns/*"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			tb.Fatal(err)
		}
		ns, found := podNamespace{tb, file}, false
		err = ns.Do(func() error {
			all, err := net.InterfaceAddrs()
			found = slices.ContainsFunc(all, func(a net.Addr) bool { return a.(*net.IPNet).IP.String() == ip.String() })
			return err
		})
		if err == nil && found {
			tb.Cleanup(func() { _ = file.Close() }) // it was only entered
			return ns
		}
		_ = file.Close() // likewise
	}
	tb.Fatalf("%s has no pod with the address %s", n.Name, ip)
	return podNamespace{}
}

// load makes policies and, on each node, a pod of each namespace that they are for.
func (w *contest) load() {
	w.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range policyNamespaces {
		namespace := fmt.Sprintf("load-%d", i)
		w.Kubectl("create", "namespace", namespace)
		w.Eventually("a service account", func(string) error { return nil }, "get", "serviceaccount", "-n", namespace, "default")
		for _, n := range w.Nodes {
			group.Go(func() error { return w.pod(namespace, "web-"+n.Name, n.Name) })
		}
		for j := range policyEach {
			group.Go(func() error {
				return w.policy(namespace, fmt.Sprintf("from-%d", j), networkingv1.NetworkPolicyIngressRule{
					From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"client": fmt.Sprint(j)}}}},
					Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, 8000+j)},
				})
			})
		}
	}
	if err := group.Wait(); err != nil {
		w.Fatal(err)
	}
	w.AwaitPods(policyNamespaces*len(w.Nodes), "-A", "-l", "app=web")
}

func port(protocol corev1.Protocol, n int) networkingv1.NetworkPolicyPort {
	number := intstr.FromInt(n)
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &number}
}

// policy makes one for all pods of a namespace.
func (w *contest) policy(namespace, name string, ingress ...networkingv1.NetworkPolicyIngressRule) error {
	_, err := kube.Create(w.Context(), w.api, &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: ingress},
	})
	return err
}

// path is between two pods of a namespace of their own.
func (w *contest) path() *probe.Path {
	w.Helper()
	w.Kubectl("create", "namespace", probeNamespace)
	w.Eventually("a service account", func(string) error { return nil }, "get", "serviceaccount", "-n", probeNamespace, "default")
	r, node := w.watchPods(probeNamespace), w.Node("node-b")
	var pods [2]podNamespace
	var to netip.AddrPort
	for i, name := range []string{"from", "to"} {
		if err := w.pod(probeNamespace, name, node.Name); err != nil {
			w.Fatal(err)
		}
		eventually.Within(w, Patience, name+" to run", func() error {
			s, err := r.get(name)
			to = netip.AddrPortFrom(s.ip, probePort)
			return err
		})
		pods[i] = node.namespaceOf(w, to.Addr())
	}
	path, err := probe.Open(pods[0], pods[1], to)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = path.Close() }) // nothing is written to it
	return path
}

// policyDoc returns a GlobalNetworkPolicy for the pods of the path.
func policyDoc(name, rules string) string {
	return fmt.Sprintf(`{"apiVersion":"projectcalico.org/v3","kind":"GlobalNetworkPolicy","metadata":{"name":%q},"spec":{"selector":"projectcalico.org/namespace == '%s'","types":["Ingress"]%s}}`,
		name, probeNamespace, rules)
}

// custom returns a function that sends a request about GlobalNetworkPolicies to the API, by a proxy of kubectl's.
func (w *contest) custom() func(method, name, doc string) error {
	w.Helper()
	proxy := exec.Command(filepath.Join(w.bin, "kubectl"), "--kubeconfig", w.Kubeconfig, "proxy", "--port=0")
	out, err := proxy.StdoutPipe()
	if err == nil {
		err = proxy.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait() // it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, addr, found := strings.Cut(strings.TrimSpace(line), "Starting to serve on ")
	if err != nil || !found {
		w.Fatalf("kubectl proxy: %q, %v", line, err)
	}
	return func(method, name, doc string) error {
		url := strings.TrimSuffix("http://"+addr+"/apis/projectcalico.org/v3/globalnetworkpolicies/"+name, "/")
		r, err := http.NewRequestWithContext(w.Context(), method, url, strings.NewReader(doc))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode >= 300 {
			err = fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, text)
		}
		return errors.Join(err, answer.Body.Close())
	}
}

// policies measures by packets how long a policy takes from its creation in the API to the kernel.
func (w *contest) policies(path *probe.Path) {
	custom := w.custom()
	udp := networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP, probePort)}}
	steps := []struct {
		name   string
		allows bool
		change func() error
	}{
		{"created", false, func() error { return w.policy(probeNamespace, "deny") }},
		{"created", true, func() error { return w.policy(probeNamespace, "allow", udp) }},
		{"deleted", false, func() error {
			return kube.Delete[networkingv1.NetworkPolicy](w.Context(), w.api, probeNamespace, "allow", "")
		}},
		{"deleted", true, func() error {
			return kube.Delete[networkingv1.NetworkPolicy](w.Context(), w.api, probeNamespace, "deny", "")
		}},
		{"applied", false, func() error { return custom(http.MethodPost, "", policyDoc("deny", "")) }},
		{"applied", true, func() error {
			return custom(http.MethodPost, "", policyDoc("allow", fmt.Sprintf(`,"ingress":[{"action":"Allow","protocol":"UDP","destination":{"ports":[%d]}}]`, probePort)))
		}},
		{"withdrawn", false, func() error { return custom(http.MethodDelete, "allow", "") }},
		{"withdrawn", true, func() error { return custom(http.MethodDelete, "deny", "") }},
	}
	took := map[string][]time.Duration{}
	for range *policies {
		for _, s := range steps {
			var began, answered time.Time
			effect, err := path.Change(w.Context(), s.allows, func() error {
				began = time.Now()
				err := s.change()
				answered = time.Now()
				return err
			})
			if err != nil {
				w.Fatalf("%s: %v", s.name, err)
			}
			took[s.name] = append(took[s.name], effect.Since.Sub(began))
			took["answer"] = append(took["answer"], answered.Sub(began))
		}
	}
	for _, name := range []string{"answer", "created", "deleted", "applied", "withdrawn"} {
		w.report(took[name], "policy-"+name)
	}
}
