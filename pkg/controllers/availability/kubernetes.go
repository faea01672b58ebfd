// SPDX-License-Identifier: Apache-2.0

package availability

import (
	"context"
	"errors"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/kube"
)

// daemonSet is the name of the agents' DaemonSet.
const daemonSet = "calico-node"

// Kubernetes implements API with a client of the Kubernetes API.
type Kubernetes struct {
	Client *kube.Client
	// Namespace is the namespace of the DaemonSet calico-node.
	Namespace string
}

// seen is the part of a Node that is kept.
type seen struct {
	name    string
	network kube.Network
}

// Watch implements API.
func (a Kubernetes) Watch(ctx context.Context, tell func(node string, n kube.Network), gone func(node string)) error {
	keep := func(n *corev1.Node) seen { return seen{n.Name, kube.NetworkOf(n)} }
	return kube.Watch(ctx, a.Client, kube.Select{}, keep, kube.Handler[seen]{
		Set: func(s seen) { tell(s.name, s.network) }, Deleted: func(_, name string) { gone(name) },
	})
}

// Installed implements API.
func (a Kubernetes) Installed(ctx context.Context) (bool, error) {
	ds, err := kube.Get[appsv1.DaemonSet](ctx, a.Client, a.Namespace, daemonSet)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && ds.DeletionTimestamp == nil, err
}

// SetNetwork implements API.
func (a Kubernetes) SetNetwork(ctx context.Context, node string, unavailable bool) error {
	return kube.SetNetwork(ctx, a.Client, node, unavailable)
}
