// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/calico-go/calico/pkg/retry"
)

const (
	// firstPause and longestPause bound the pause between two tries while the API is away; when it is back it is found soon.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// steady is how long a watch must last to count as healthy.
	steady = time.Minute
	// unservedPause is the time between two tries of a kind that the API doesn't serve. No object of it is in force until
	// then.
	unservedPause = 10 * time.Second
)

// Handler receives what a watch brings, one call at a time. A nil function is not called.
type Handler[U any] struct {
	// Set reports an object: it exists, has changed, or is reported again.
	Set func(U)
	// Deleted reports that an object no longer exists.
	Deleted func(namespace, name string)
	// Synced reports that every object in the API has been passed to Set or Bad, and every vanished one to Deleted. It is
	// called after each complete list; once it has been called, a reader knows everything.
	Synced func()
	// Bad reports, instead of Set, an object that can't be read as its kind.
	Bad func(about corev1.ObjectReference, err error)
	// Trouble reports why the API can't be read at the moment; nil = it can again.
	Trouble func(error)
}

// Watch passes on every selected object, and every later change, until the context ends; it then returns nil. keep reduces an
// object to what the handler needs, and the rest is dropped; it may be called twice for one object.
//
// A list that fails or is incomplete changes nothing; it is retried until it is complete. Nothing changes while the API is
// away either. The watch then continues from where it was, or from another complete list.
func Watch[T Kind, U any](ctx context.Context, c *Client, s Select, keep func(*T) U, h Handler[U]) error {
	return WatchRaw(ctx, c, s, func(o *T, _ Raw) U { return keep(o) }, h)
}

// Raw is an object of a custom kind as the API has it, or a NetworkPolicy with fields that the Go type lacks; else it is
// empty.
type Raw struct {
	Object map[string]any
	// Unknown lists the paths of the fields that the Go type lacks, sorted, like spec.ingress[0].x.
	Unknown []string
}

// WatchRaw is Watch that also passes keep the object's Raw, with fields that only a later version of the API has.
func WatchRaw[T Kind, U any](ctx context.Context, c *Client, s Select, keep func(*T, Raw) U, h Handler[U]) error {
	return watchKind(ctx, c, kindOf[T](), s, func(o runtime.Object) (kept U, err error) {
		typed, raw, err := objectOf[T](o)
		if err == nil {
			kept = keep(typed, raw)
		}
		return kept, err
	}, h)
}

func watchKind[U any](ctx context.Context, c *Client, k kind, s Select, keep func(runtime.Object) (U, error), h Handler[U]) error {
	w := &watcher{client: c, kind: k, selected: s, raw: k.custom, trouble: h.Trouble, log: c.log.With("kind", k.name), backoff: retry.Backoff{First: firstPause, Longest: longestPause}}
	m := &mirror[U]{keep: keep, handler: h, there: map[cache.ObjectName]struct{}{}}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return w.list(ctx, o, m.convert)
		},
		WatchFuncWithContext: w.watch,
	}
	logger := logr.FromSlogHandler(w.log.Handler())
	reflector := cache.NewReflectorWithOptions(lw, nil, m, cache.ReflectorOptions{
		Name: k.resource, TypeDescription: k.resource, Logger: &logger,
		Backoff: &wait.Backoff{Duration: time.Millisecond, Steps: 1}, // w pauses, and stops when the context ends
	})
	reflector.WatchListPageSize = s.Page
	ctx = klog.NewContext(ctx, logger)
	for ctx.Err() == nil {
		err := reflector.ListAndWatchWithContext(ctx)
		if err != nil {
			w.log.Debug("watch of the Kubernetes API starts over", "err", err)
		}
		w.pause(ctx) // the watch may end as soon as it begins
	}
	return nil
}

// watcher makes the requests of one watch. Only one goroutine at a time uses it.
type watcher struct {
	client   *Client
	kind     kind
	selected Select
	trouble  func(error)
	log      *slog.Logger

	news     retry.News
	troubled bool // the last call of tell had an error
	backoff  retry.Backoff
	opened   time.Time // when a watch was opened since the last pause
	absent   bool      // the API doesn't serve the kind
	raw      bool      // the kind is read as JSON: NetworkPolicies once errLater occurred
}

// list reads a page and converts its objects.
func (w *watcher) list(ctx context.Context, o metav1.ListOptions, convert func(runtime.Object) *kept) (runtime.Object, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = "" // another API server's cache may be older than what is known already
	}
	kept := new(internalversion.List)
	m, err := w.page(ctx, o, func(item runtime.Object) error {
		kept.Items = append(kept.Items, convert(item))
		return nil
	})
	if err != nil {
		err = explain("list "+w.kind.resource, "", err)
		if ctx.Err() == nil {
			w.tell(err)
		}
		return nil, err // ListAndWatch ends, and Watch pauses
	}
	kept.ResourceVersion, kept.Continue = m.GetResourceVersion(), m.GetContinue()
	return kept, nil
}

// page reads a page and calls each for its objects.
func (w *watcher) page(ctx context.Context, o metav1.ListOptions, each func(runtime.Object) error) (m metav1.ListInterface, err error) {
	o.FieldSelector, o.LabelSelector = w.selected.Fields, w.selected.Labels
	var page runtime.Object
	if !w.raw {
		page, err = w.kind.at(w.client.groups[w.kind.version].Get(), w.selected.Namespace, "").VersionedParams(&o, parameters).Do(ctx).Get()
		w.raw = errors.Is(err, errLater)
	}
	if w.raw {
		page, err = w.client.dynamic.Resource(w.kind.resourceOf()).Namespace(w.selected.Namespace).List(ctx, o)
	}
	if err == nil {
		err = meta.EachListItem(page, each)
	}
	if err != nil {
		return nil, err
	}
	return meta.ListAccessor(page)
}

func (w *watcher) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	stream, err := w.stream(ctx, o)
	if err == nil {
		w.tell(nil)
		w.opened = time.Now()
		return stream, nil
	}
	if o.SendInitialEvents != nil && apierrors.IsInvalid(err) {
		return nil, err // this API can't send a list as a watch: the reflector lists instead
	}
	err = explain("watch "+w.kind.resource, "", err)
	if ctx.Err() == nil {
		w.tell(err)
		w.pause(ctx) // the reflector may ask again at once
	}
	return nil, err
}

func (w *watcher) stream(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch, o.FieldSelector, o.LabelSelector = true, w.selected.Fields, w.selected.Labels
	if w.raw {
		return w.client.dynamic.Resource(w.kind.resourceOf()).Namespace(w.selected.Namespace).Watch(ctx, o)
	}
	return w.kind.at(w.client.groups[w.kind.version].Get(), w.selected.Namespace, "").VersionedParams(&o, parameters).Watch(ctx)
}

// tell reports an error once, however often it occurs, and its end.
func (w *watcher) tell(err error) {
	w.absent = errors.Is(err, ErrNotServed)
	again := w.troubled && err != nil
	if w.troubled = err != nil; !w.news.Is(err) {
		return
	}
	switch {
	case again: // a list fails for about the same reason as a watch
		w.log.Debug("the Kubernetes API still can't be read", "err", err)
	case err == nil:
		w.log.Info("the Kubernetes API can be read again")
	case w.absent:
		w.log.Info("the Kubernetes API does not serve a kind: it is asked for it now and then", "resource", w.kind.resource)
	default:
		w.log.Warn("the Kubernetes API can't be read, trying again", "err", err)
	}
	if w.trouble != nil {
		w.trouble(err)
	}
}

// pause waits before the next request, longer each time.
func (w *watcher) pause(ctx context.Context) {
	if !w.opened.IsZero() && time.Since(w.opened) > steady {
		w.backoff.Reset()
	}
	w.opened = time.Time{}
	d := w.backoff.Next()
	if w.absent {
		d = unservedPause/2 + rand.N(unservedPause)
	}
	_ = retry.Wait(ctx, d) // the caller checks the context
}

// logged returns a context in which client-go logs to the client's logger.
func (c *Client) logged(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(c.log.Handler()))
}
