// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/resource"
)

// Kubernetes is the API by a client.
type Kubernetes struct{ Client *kube.Client }

var kind = kube.Custom{Group: "projectcalico.org", Version: "v3", Kind: "CalicoNodeStatus", Resource: "caliconodestatuses"}

// Watch implements API.
func (a Kubernetes) Watch(ctx context.Context, h Handler) error {
	type named struct {
		name string
		*Object
	}
	keep := func(u *unstructured.Unstructured) named {
		o := &Object{}
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o) // the API has checked its form
		return named{u.GetName(), o}
	}
	return kube.WatchCustom(ctx, a.Client, kind, keep, kube.Handler[named]{
		Set:     func(n named) { h(n.name, n.Object) },
		Deleted: func(_, name string) { h(name, nil) },
		Synced:  func() {},
	})
}

// SetStatus implements API.
func (a Kubernetes) SetStatus(ctx context.Context, name string, status resource.NodeStatus) error {
	return a.Client.ReplaceCustomStatus(ctx, kind, "", name, status)
}
