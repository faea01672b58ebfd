// SPDX-License-Identifier: Apache-2.0

package availability

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/kube"
)

// Kubernetes is the API by a client.
type Kubernetes struct{ Client *kube.Client }

// Watch implements API.
func (a Kubernetes) Watch(ctx context.Context, node string, seen func(available bool)) error {
	isAvailable := func(n *corev1.Node) bool { return !kube.NetworkOf(n).Unavailable }
	return kube.Watch(ctx, a.Client, kube.Select{Fields: "metadata.name=" + node}, isAvailable, kube.Handler[bool]{Set: seen})
}

// Set implements API.
func (a Kubernetes) Set(ctx context.Context, node string) error {
	return kube.SetNetwork(ctx, a.Client, node, false)
}
