// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-go/calico/pkg/agent/availability"
	"github.com/calico-go/calico/pkg/agent/pods"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/daemon/statefile"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nodecert"
)

// Kubernetes is how the Kubernetes API is reached.
type Kubernetes struct {
	Off        bool   // don't read it
	Kubeconfig string // "" = by the pod's service account, if this is a pod
	// Members are the Nodes that run members of the manifests' etcd; empty if unknown, or if there is no such etcd.
	Members []string
	// Certificate is the file of this host's own certificate for etcd; "" = don't ask for one.
	Certificate string
}

// kubernetes returns a client of the Kubernetes API, nil if there is none to read.
func (c Config) kubernetes(env run.Env) (*kube.Client, error) {
	k := c.Kubernetes
	if k.Off || k.Kubeconfig == "" && run.Variables(env.Environ)["KUBERNETES_SERVICE_HOST"] == "" {
		return nil, nil
	}
	client, err := kube.New(kube.Config{Kubeconfig: k.Kubeconfig, Name: "calico-node", Logger: env.Logger})
	switch {
	case err == nil:
		return client, nil
	case k.Kubeconfig == "": // in a pod without a service account, which may need no Kubernetes
		env.Logger.Warn("the Kubernetes API isn't read: pods of networks with policy.type k8s can't start", "err", err)
		return nil, nil
	}
	return nil, fmt.Errorf("the Kubernetes API (KUBECONFIG; CALICO_KUBERNETES=off to do without): %w", err)
}

// certificate obtains this host's own certificate for etcd; nil if none is wanted.
func (c Config) certificate(ctx context.Context, client *kube.Client, env run.Env) (*nodecert.Certificate, error) {
	if c.Kubernetes.Certificate == "" {
		return nil, nil
	}
	if client == nil {
		return nil, errors.New("a certificate for etcd (CALICO_ETCD_NODE_CERTIFICATE) is asked for by the Kubernetes API, which isn't read: see KUBECONFIG and CALICO_KUBERNETES")
	}
	k := nodecert.New(nodecert.Config{Node: c.Node, File: c.Kubernetes.Certificate, Kube: client, Problems: env.Problems, Logger: env.Logger})
	return k, k.Ensure(ctx)
}

// confDir is where container runtimes look for their network configuration by default.
const confDir = "/etc/cni/net.d"

// newPods returns the cache of this host's pods.
func newPods(cfg Config, client *kube.Client, podCIDRs func([]netip.Prefix)) *pods.Cache {
	dir := statefile.OnHost(cmp.Or(cfg.CNI.Dir, confDir))
	return pods.New(pods.Config{Node: cfg.Node, API: pods.Kubernetes{Client: client}, Unshaped: func() bool { return pods.Unshaped(dir) }, PodCIDRs: podCIDRs})
}

// nodeEvents returns a function that records warnings about this host's Node; nil without an API.
func nodeEvents(node string, client *kube.Client) func(reason, message string) {
	if client == nil {
		return nil
	}
	// kubelet has no uid for its Node either, and puts the name in its place: `kubectl describe node` finds both.
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}
	return func(reason, message string) { client.Warning(about, reason, message) }
}

// podEvents returns a function that records warnings about pods that the API has on this host. It ignores endpoints in etcd that merely
// have a pod's name.
func podEvents(client *kube.Client, known *pods.Cache) func(key model.WorkloadEndpointKey, reason, message string) {
	return func(key model.WorkloadEndpointKey, reason, message string) {
		namespace, name := key.Pod()
		if uid := known.UID(namespace, name); uid != "" {
			client.Warning(corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID(uid)}, reason, message)
		}
	}
}

// memberLabel is the label of the Nodes that run pods of the manifests' etcd.
const memberLabel = "projectcalico.org/etcd"

// keepNode keeps the member label of this host's Node as Members say, if they are known. It stops the agent when the Node is replaced: the
// client of etcd uses the former Node's certificate. end stops keepNode.
func (c Config) keepNode(ctx context.Context, client *kube.Client, env run.Env, stop func()) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var under sync.WaitGroup
	if len(c.Kubernetes.Members) > 0 {
		begun := make(chan struct{})
		close(begun) // etcd waits for the label
		replaced := func() {
			env.Logger.Warn("this host's Node is another one now: the agent starts anew, with a certificate for etcd of that")
			stop()
		}
		k := availability.New(availability.Config{
			Node: c.Node, API: ownNode{client, slices.Contains(c.Kubernetes.Members, c.Node), replaced}, What: "label " + memberLabel,
			Served: begun, Unready: func() string { return "" }, Problems: env.Problems, Logger: env.Logger,
		})
		under.Go(func() { _ = k.Run(ctx) }) // it ends with the context
	}
	return func() {
		cancel()
		under.Wait()
	}
}

// ownNode is this host's Node and its member label.
type ownNode struct {
	client   *kube.Client
	member   bool
	replaced func()
}

// Watch implements availability.API.
func (o ownNode) Watch(ctx context.Context, node string, seen func(right bool)) error {
	var uid types.UID
	return kube.Watch(ctx, o.client, kube.Select{Fields: "metadata.name=" + node}, func(n *corev1.Node) *corev1.Node { return n }, kube.Handler[*corev1.Node]{Set: func(n *corev1.Node) {
		if uid != "" && uid != n.UID {
			o.replaced()
		}
		uid = n.UID
		seen((n.Labels[memberLabel] == "member") == o.member)
	}})
}

// Set implements availability.API. It patches the status, which changes labels too: the agent has no right to the Node's spec.
func (o ownNode) Set(ctx context.Context, node string) error {
	value := map[bool]any{true: "member"}[o.member] // or null: none
	return kube.PatchStatus[corev1.Node](ctx, o.client, "", node, map[string]any{"metadata": map[string]any{"labels": map[string]any{memberLabel: value}}})
}
