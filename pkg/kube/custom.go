// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Custom is a kind without a Go type, which the API knows from a CustomResourceDefinition.
type Custom struct {
	Group, Version string
	Kind, Resource string // Resource is the plural
	Namespaced     bool
}

// Definitions is the kind of CustomResourceDefinitions. Each is called <resource>.<group>.
var Definitions = Custom{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Resource: "customresourcedefinitions"}

func (k Custom) of() kind {
	return kind{version: schema.GroupVersion{Group: k.Group, Version: k.Version}, name: k.Kind, resource: k.Resource, namespaced: k.Namespaced, custom: true}
}

// WatchCustom is Watch for such a kind.
func WatchCustom[U any](ctx context.Context, c *Client, k Custom, keep func(*unstructured.Unstructured) U, h Handler[U]) error {
	return watchKind(ctx, c, k.of(), Select{Page: 20}, func(o runtime.Object) (kept U, err error) {
		u, is := o.(*unstructured.Unstructured)
		if !is {
			return kept, fmt.Errorf("the API sent a %T in place of a %s", o, k.Kind)
		}
		return keep(u), nil
	}, h)
}

// GetCustom is Get for such a kind.
func (c *Client) GetCustom(ctx context.Context, k Custom, namespace, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	of := k.of()
	o, err := c.dynamic.Resource(of.resourceOf()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	return o, explain(of.text("get", namespace, name), name, err)
}

// PatchCustomStatus is PatchStatus for such a kind.
func (c *Client) PatchCustomStatus(ctx context.Context, k Custom, namespace, name string, patch any) error {
	return c.patchCustomStatus(ctx, k, namespace, name, types.MergePatchType, patch)
}

// ReplaceCustomStatus replaces the status of an object of such a kind: what isn't in the new one is gone.
func (c *Client) ReplaceCustomStatus(ctx context.Context, k Custom, namespace, name string, status any) error {
	return c.patchCustomStatus(ctx, k, namespace, name, types.JSONPatchType, []map[string]any{{"op": "add", "path": "/status", "value": status}})
}

func (c *Client) patchCustomStatus(ctx context.Context, k Custom, namespace, name string, kind types.PatchType, patch any) error {
	of := k.of()
	data, err := json.Marshal(patch)
	if err == nil {
		ctx, cancel := bounded(ctx)
		defer cancel()
		_, err = c.dynamic.Resource(of.resourceOf()).Namespace(namespace).Patch(ctx, name, kind, data, metav1.PatchOptions{}, "status")
	}
	return explain(of.text("patch the status of", namespace, name), name, err)
}
