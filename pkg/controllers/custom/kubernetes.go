// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/resource"
)

// Kubernetes implements API with a client of the Kubernetes API.
type Kubernetes struct{ *kube.Client }

func of(k *resource.Kind) kube.Custom {
	group, version, _ := strings.Cut(resource.APIVersion, "/")
	return kube.Custom{Group: group, Version: version, Kind: k.Name, Resource: strings.ToLower(k.Plural), Namespaced: k.Namespaced}
}

// Watch implements API.
func (a Kubernetes) Watch(ctx context.Context, k *resource.Kind, h kube.Handler[Object]) error {
	return kube.WatchCustom(ctx, a.Client, of(k), func(u *unstructured.Unstructured) Object { return ObjectOf(k, u) }, h)
}

// UID implements API.
func (a Kubernetes) UID(ctx context.Context, k *resource.Kind, namespace, name string) (string, error) {
	o, err := a.GetCustom(ctx, of(k), namespace, name)
	if err != nil {
		return "", err
	}
	return string(o.GetUID()), nil
}

// Defined implements API.
func (a Kubernetes) Defined(ctx context.Context, k *resource.Kind) (time.Time, error) {
	c := of(k)
	d, err := a.GetCustom(ctx, kube.Definitions, "", c.Resource+"."+c.Group)
	switch {
	case err != nil:
		return time.Time{}, err
	case d.GetDeletionTimestamp() != nil:
		return time.Time{}, fmt.Errorf("the definition %s is being deleted: %w", d.GetName(), os.ErrNotExist)
	}
	return d.GetCreationTimestamp().Time, nil
}

// SetConditions implements API.
func (a Kubernetes) SetConditions(ctx context.Context, k *resource.Kind, o Object, conditions []metav1.Condition) error {
	return a.PatchCustomStatus(ctx, of(k), o.about.Namespace, o.about.Name, map[string]any{
		"metadata": map[string]any{"resourceVersion": o.about.ResourceVersion}, "status": map[string]any{"conditions": conditions},
	})
}
