// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// requestTimeout bounds a request whose context has no deadline.
const requestTimeout = 20 * time.Second

// pageSize is how many objects one request of a list reads.
const pageSize = 500

// Select narrows a list or a watch; the zero value selects every object of the kind.
type Select struct {
	Namespace string
	Fields    string // such as spec.nodeName=node-1
	Labels    string
	// Page is how many objects a watch reads per request, 0: 500. Lower it for kinds whose objects untrusted users can make
	// large.
	Page int64
}

// bounded returns ctx, with a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, requestTimeout)
}

// at addresses a request to an object, or, if name is "", to all objects of a namespace.
func (k kind) at(r *rest.Request, namespace, name string) *rest.Request {
	r = r.Resource(k.resource).NamespaceIfScoped(namespace, k.namespaced && namespace != "")
	if name != "" {
		r = r.Name(name)
	}
	return r
}

// text returns how errors describe a request about an object.
func (k kind) text(verb, namespace, name string) string {
	if namespace != "" && k.namespaced {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%s %s %s", verb, k.name, name)
}

// Get reads an object as it is now, from the API's own store. os.ErrNotExist is in the error's chain if the API says that it
// doesn't exist.
func Get[T Kind](ctx context.Context, c *Client, namespace, name string) (*T, error) {
	k, o := kindOf[T](), new(T)
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := k.at(c.groups[k.version].Get(), namespace, name).Do(ctx).Into(any(o).(runtime.Object))
	if err != nil {
		return nil, explain(k.text("get", namespace, name), name, err)
	}
	return o, nil
}

// GetRaw is Get for callers that need the fields of a NetworkPolicy that only a later version of the API has: see WatchRaw.
func GetRaw[T Kind](ctx context.Context, c *Client, namespace, name string) (*T, Raw, error) {
	k := kindOf[T]()
	ctx, cancel := bounded(ctx)
	defer cancel()
	o, err := k.at(c.groups[k.version].Get(), namespace, name).Do(ctx).Get()
	if errors.Is(err, errLater) {
		o, err = c.dynamic.Resource(k.resourceOf()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, Raw{}, explain(k.text("get", namespace, name), name, err)
	}
	return objectOf[T](o)
}

// Log returns what the container of a pod has printed.
func Log(ctx context.Context, c *Client, namespace, pod string) ([]byte, error) {
	k := kindOf[corev1.Pod]()
	ctx, cancel := bounded(ctx)
	defer cancel()
	log, err := k.at(c.groups[k.version].Get(), namespace, pod).SubResource("log").DoRaw(ctx)
	if err != nil {
		return nil, explain(k.text("read the log of", namespace, pod), pod, err)
	}
	return log, nil
}

// List reads all selected objects as they are now. It returns all of them or an error.
func List[T Kind](ctx context.Context, c *Client, s Select) (all []*T, err error) {
	k := kindOf[T]()
	w := &watcher{client: c, kind: k, selected: s, raw: k.custom}
	for opts := (metav1.ListOptions{Limit: pageSize}); ; {
		one, cancel := bounded(ctx)
		m, err := w.page(one, opts, func(item runtime.Object) error {
			o, _, err := objectOf[T](item)
			all = append(all, o)
			return err
		})
		cancel()
		if err != nil {
			return nil, explain("list "+k.resource, "", err)
		}
		if opts.Continue = m.GetContinue(); opts.Continue == "" {
			return all, nil
		}
	}
}

// Create creates an object and returns it as the API stores it. os.ErrExist is in the error's chain if the name is taken.
func Create[T Kind](ctx context.Context, c *Client, o *T) (*T, error) {
	k := kindOf[T]()
	return write(ctx, k, "create", k.at(c.groups[k.version].Post(), metaOf(o).GetNamespace(), ""), o)
}

// Update writes an object and returns it as the API stores it. ErrChanged is in the error's chain if it has changed since it
// was read.
func Update[T Kind](ctx context.Context, c *Client, o *T) (*T, error) {
	k := kindOf[T]()
	return write(ctx, k, "update", k.at(c.groups[k.version].Put(), metaOf(o).GetNamespace(), metaOf(o).GetName()), o)
}

func write[T Kind](ctx context.Context, k kind, verb string, r *rest.Request, o *T) (*T, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	out, m := new(T), metaOf(o)
	if err := r.Body(any(o)).Do(ctx).Into(any(out).(runtime.Object)); err != nil {
		return nil, explain(k.text(verb, m.GetNamespace(), m.GetName()), m.GetName(), err)
	}
	return out, nil
}

// Delete deletes an object if it has this uid; "" = any. os.ErrNotExist is in the error's chain if it doesn't exist.
func Delete[T Kind](ctx context.Context, c *Client, namespace, name, uid string) error {
	k := kindOf[T]()
	ctx, cancel := bounded(ctx)
	defer cancel()
	var opts metav1.DeleteOptions
	if uid != "" {
		id := types.UID(uid)
		opts.Preconditions = &metav1.Preconditions{UID: &id}
	}
	err := k.at(c.groups[k.version].Delete(), namespace, name).Body(&opts).Do(ctx).Error()
	return explain(k.text("delete", namespace, name), name, err)
}

// Patch changes an object by a merge patch, which is encoded as JSON: fields that it doesn't name stay, whichever client
// wrote them.
func Patch[T Kind](ctx context.Context, c *Client, namespace, name string, patch any) error {
	return patchAt[T](ctx, c, namespace, name, "", types.MergePatchType, patch)
}

// PatchStatus changes an object's status by a patch, which is encoded as JSON. It is a strategic merge patch, which merges
// conditions by type, but for kinds of a CustomResourceDefinition a merge patch, which replaces whole lists.
func PatchStatus[T Kind](ctx context.Context, c *Client, namespace, name string, patch any) error {
	how := types.StrategicMergePatchType
	if kindOf[T]().custom {
		how = types.MergePatchType
	}
	return patchAt[T](ctx, c, namespace, name, "status", how, patch)
}

// PatchApproval changes the conditions that approve or deny a CertificateSigningRequest, by a strategic merge patch.
func PatchApproval(ctx context.Context, c *Client, name string, patch any) error {
	return patchAt[certificatesv1.CertificateSigningRequest](ctx, c, "", name, "approval", types.StrategicMergePatchType, patch)
}

func patchAt[T Kind](ctx context.Context, c *Client, namespace, name, subresource string, how types.PatchType, patch any) error {
	k, what := kindOf[T](), "patch"
	if subresource != "" {
		what = "patch the " + subresource + " of"
	}
	what = k.text(what, namespace, name)
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	r := k.at(c.groups[k.version].Patch(how), namespace, name)
	if subresource != "" {
		r = r.SubResource(subresource)
	}
	return explain(what, name, r.Body(data).Do(ctx).Error())
}
