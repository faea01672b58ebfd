// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/kube"
)

const (
	podsWait = 2 * time.Minute        // for pods to start or end, and for the namespace to go
	poll     = 500 * time.Millisecond // how often the API is asked
)

// A run is one test of a cluster.
type run struct {
	env    *session.Env
	client *kube.Client
	image  string
	nodes  int
}

// run makes servers and clients on the cluster, and takes them away again, also where it fails or ctx ends.
func (r *run) run(ctx context.Context, o options) (all []outcome, err error) {
	r.env.Progress("asking the Kubernetes API")
	nodes, err := kube.List[corev1.Node](ctx, r.client, kube.Select{})
	if err != nil {
		return nil, err
	}
	if nodes, err = choose(nodes, o.nodes); err != nil {
		return nil, err
	}
	if r.image = o.image; r.image == "" {
		agents, err := kube.List[appsv1.DaemonSet](ctx, r.client, kube.Select{Labels: "k8s-app=calico-node"})
		if err != nil {
			return nil, err
		}
		if r.image, err = imageOf(agents); err != nil {
			return nil, err
		}
	}
	_, err = kube.Get[corev1.Service](ctx, r.client, "kube-system", "kube-dns")
	dns := err == nil
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := r.remove(ctx); err != nil {
		return nil, err
	}
	if !o.keep {
		defer func() { err = errors.Join(err, r.remove(context.WithoutCancel(ctx))) }()
	}
	r.nodes = len(nodes)
	ends, err := r.servers(ctx, nodes)
	if err != nil {
		return nil, err
	}
	for _, ph := range phases {
		made, err := r.phase(ctx, ph, ends, dns, o.outside)
		if err != nil {
			return nil, err
		}
		all = append(all, made...)
	}
	return append(all, untried(ends, dns, o.outside)...), nil
}

// remove deletes the namespace and waits until it is gone.
func (r *run) remove(ctx context.Context) error {
	return r.await(ctx, "deleting the namespace "+namespace, func() (string, error) {
		n, err := kube.Get[corev1.Namespace](ctx, r.client, "", namespace)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return "", nil
		case err != nil:
			return "", err
		case n.Labels["app.kubernetes.io/managed-by"] != ours["app.kubernetes.io/managed-by"]:
			return "", fmt.Errorf("namespace %s lacks the label app.kubernetes.io/managed-by=calicoctl: delete it if nobody needs it", namespace)
		case n.DeletionTimestamp == nil:
			err = kube.Delete[corev1.Namespace](ctx, r.client, "", namespace, string(n.UID))
		}
		return "it is still there", err
	})
}

// await asks until nothing is missing.
func (r *run) await(ctx context.Context, what string, missing func() (string, error)) error {
	r.env.Progress("%s", what)
	ctx, cancel := context.WithTimeout(ctx, podsWait)
	defer cancel()
	for {
		still, err := missing()
		if still == "" || err != nil {
			return err
		}
		r.env.Progress("%s: %s", what, still)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %s: %w", what, still, ctx.Err())
		case <-time.After(poll):
		}
	}
}

// servers makes the namespace with a server and its service for each node, and waits until the servers run.
func (r *run) servers(ctx context.Context, nodes []*corev1.Node) (ends []end, err error) {
	if _, err := kube.Create(ctx, r.client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: ours}}); err != nil {
		return nil, err
	}
	err = r.await(ctx, "waiting for the namespace's service account", func() (string, error) {
		_, err := kube.Get[corev1.ServiceAccount](ctx, r.client, namespace, "default")
		if errors.Is(err, os.ErrNotExist) {
			return "there is none yet, which is kube-controller-manager's to make", nil
		}
		return "", err
	})
	if err != nil {
		return nil, err
	}
	for i, n := range nodes {
		name := named("server", i)
		s, err := kube.Create(ctx, r.client, serviceOf(name))
		if err == nil {
			_, err = kube.Create(ctx, r.client, serverPod(r.image, name, n.Name))
		}
		if err != nil {
			return nil, err
		}
		e := end{node: n.Name, server: name, service: addrs(s.Spec.ClusterIPs...), nodePort: s.Spec.Ports[0].NodePort, kubelet: n.Status.DaemonEndpoints.KubeletEndpoint.Port}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				e.host = append(e.host, addrs(a.Address)...)
			}
		}
		ends = append(ends, e)
	}
	pods, err := r.pods(ctx, "starting servers", "server", corev1.PodRunning)
	if err != nil {
		return nil, err
	}
	for i := range ends {
		for _, a := range pods[ends[i].server].Status.PodIPs {
			ends[i].pod = append(ends[i].pod, addrs(a.IP)...)
		}
	}
	return ends, nil
}

// addrs parses what the API holds; a headless service's None is no address.
func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// pods waits until all pods of a role are in a phase.
func (r *run) pods(ctx context.Context, doing, role string, want corev1.PodPhase) (map[string]*corev1.Pod, error) {
	all := map[string]*corev1.Pod{}
	err := r.await(ctx, doing, func() (string, error) {
		list, err := kube.List[corev1.Pod](ctx, r.client, kube.Select{Namespace: namespace, Labels: "role=" + role})
		if err != nil {
			return "", err
		}
		var still []string
		if len(list) < r.nodes {
			still = append(still, "another has deleted a pod")
		}
		for _, p := range list {
			all[p.Name] = p
			if text := trouble(p); text != "" {
				log, _ := kube.Log(ctx, r.client, namespace, p.Name) // the pod's status says enough
				return "", fmt.Errorf("pod %s on node %s: %s: %s: its image is %s, and --image names another", p.Name, p.Spec.NodeName, text, strings.TrimSpace(string(log)), r.image)
			}
			if p.Status.Phase != want {
				still = append(still, fmt.Sprintf("%s on node %s is %s%s", p.Name, p.Spec.NodeName, p.Status.Phase, r.complaint(ctx, p.Name)))
			}
		}
		return strings.Join(still, "; "), nil
	})
	return all, err
}

// complaint returns what the last event says that has failed about a pod, behind a colon.
func (r *run) complaint(ctx context.Context, pod string) (text string) {
	events, err := kube.List[corev1.Event](ctx, r.client, kube.Select{Namespace: namespace, Fields: "type=Warning,involvedObject.name=" + pod})
	for _, e := range events { // of a list that failed there is none: nothing depends on it
		if err == nil && strings.HasPrefix(e.Reason, "Failed") { // such as FailedCreatePodSandBox
			text = ": " + strings.TrimSpace(e.Message)
		}
	}
	return text
}

// phase makes a policy and a client on each node, and reads the clients' logs.
func (r *run) phase(ctx context.Context, ph phase, ends []end, dns bool, outside string) (all []outcome, err error) {
	if ph.policy != "" {
		if _, err := kube.Create(ctx, r.client, policy(ph.policy, ph.allows)); err != nil {
			return nil, err
		}
	}
	for i, e := range ends {
		text, err := json.Marshal(plan(ph, e, ends, dns, outside))
		if err == nil {
			_, err = kube.Create(ctx, r.client, pod(r.image, ph.client, named(ph.client, i), e.node, "probe", string(text)))
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := r.pods(ctx, ph.doing, ph.client, corev1.PodSucceeded); err != nil {
		return nil, err
	}
	for i := range ends {
		name := named(ph.client, i)
		log, err := kube.Log(ctx, r.client, namespace, name)
		if err != nil {
			return nil, err
		}
		made, err := parseLog(log)
		if err != nil {
			return nil, fmt.Errorf("log of pod %s: %w", name, err)
		}
		all = append(all, made...)
	}
	return all, nil
}

// parseLog reads what a client has printed.
func parseLog(log []byte) (all []outcome, err error) {
	for line := range strings.Lines(string(log)) {
		var o outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			return nil, fmt.Errorf("%.200q: %w", line, err)
		}
		all = append(all, o)
	}
	return all, nil
}
