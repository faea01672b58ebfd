// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/kubepolicy"
)

// Kubernetes is the API by a client.
type Kubernetes struct{ Client *kube.Client }

// Watch implements API.
func (a Kubernetes) Watch(ctx context.Context, node string, k *Cache) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return kube.Watch(ctx, a.Client, kube.Select{Fields: "spec.nodeName=" + node}, podOf, kube.Handler[Pod]{
			Set: k.SetPod, Deleted: k.DeletePod, Synced: func() { k.Synced(KindPod) }, Trouble: func(err error) { k.Trouble(KindPod, err) },
		})
	})
	group.Go(func() error {
		return kube.Watch(ctx, a.Client, kube.Select{}, namespaceOf, kube.Handler[namespace]{
			Set:     func(n namespace) { k.SetNamespace(n.name, n.annotations) },
			Deleted: func(_, name string) { k.DeleteNamespace(name) },
			Synced:  func() { k.Synced(KindNamespace) }, Trouble: func(err error) { k.Trouble(KindNamespace, err) },
		})
	})
	group.Go(func() error {
		return kube.Watch(ctx, a.Client, kube.Select{Fields: "metadata.name=" + node}, podCIDRsOf, kube.Handler[[]netip.Prefix]{
			Set: k.SetPodCIDRs, Deleted: func(_, _ string) { k.SetPodCIDRs(nil) },
			Synced: func() { k.Synced(KindNode) }, Trouble: func(err error) { k.Trouble(KindNode, err) },
		})
	})
	return group.Wait()
}

// Pod implements API.
func (a Kubernetes) Pod(ctx context.Context, namespace, name string) (Pod, error) {
	p, err := kube.Get[corev1.Pod](ctx, a.Client, namespace, name)
	if err != nil {
		return Pod{}, err
	}
	return podOf(p), nil
}

// Namespace implements API.
func (a Kubernetes) Namespace(ctx context.Context, name string) (map[string]string, error) {
	n, err := kube.Get[corev1.Namespace](ctx, a.Client, "", name)
	if err != nil {
		return nil, err
	}
	return namespaceOf(n).annotations, nil
}

// podOf returns what is kept of a pod. Its ports are those the controllers keep, which also report what is wrong with them.
func podOf(p *corev1.Pod) Pod {
	w, _ := kubepolicy.Pod(p)
	return Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName, StaticUID: p.Annotations[corev1.MirrorPodAnnotationKey],
		ServiceAccount: p.Spec.ServiceAccountName, Labels: p.Labels, Annotations: known(p.Annotations), Ports: w.Ports,
	}
}

type namespace struct {
	name        string
	annotations map[string]string
}

func namespaceOf(n *corev1.Namespace) namespace { return namespace{n.Name, known(n.Annotations)} }

// podCIDRsOf returns a Node's podCIDRs, without those that don't parse.
func podCIDRsOf(n *corev1.Node) (cidrs []netip.Prefix) {
	for _, s := range append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...) {
		c, err := netip.ParsePrefix(s)
		if err == nil && !slices.Contains(cidrs, c.Masked()) {
			cidrs = append(cidrs, c.Masked())
		}
	}
	return cidrs
}
