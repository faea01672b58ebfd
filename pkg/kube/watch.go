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
	// firstPause and longestPause are between two tries where the API is away; an API that is back is found soon.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// steady is how long a watch has lasted where all is well.
	steady = time.Minute
	// unservedPause is between two tries of a kind that the API doesn't know. Nothing of it is in force before.
	unservedPause = 10 * time.Second
)

// Handler takes what a watch brings, one call at a time. A nil function is not called.
type Handler[U any] struct {
	// Set tells of an object: it is there, has changed, or is told of again.
	Set func(U)
	// Deleted tells that there is no such object any more.
	Deleted func(namespace, name string)
	// Synced tells that everything that the API holds has been told, and that what isn't there has been deleted. It is
	// called after each whole list, the first of which is when a reader may take what it knows for everything.
	Synced func()
	// Bad tells of an object that can't be read as its kind, instead of Set.
	Bad func(about corev1.ObjectReference, err error)
	// Trouble tells why nothing can be read of the API now; nil = it can again.
	Trouble func(error)
}

// Watch hands on every object that is selected, and every change after that, until the context ends, when it returns nil.
// keep makes of an object what the handler needs of it, the rest is not kept; it may be called twice for one object.
//
// A list that fails, or of which a part is missing, changes nothing; it is tried again until it is whole. Where the API
// is away, nothing changes either. The watch goes on from where it was, or from another whole list.
func Watch[T Kind, U any](ctx context.Context, c *Client, s Select, keep func(*T) U, h Handler[U]) error {
	return WatchRaw(ctx, c, s, func(o *T, _ Raw) U { return keep(o) }, h)
}

// Raw is an object of a custom kind as the API has it, or a NetworkPolicy that has such fields; of others it is empty.
type Raw struct {
	Object map[string]any
	// Unknown are the paths of the fields that the Go type doesn't have, in order, like spec.ingress[0].x.
	Unknown []string
}

// WatchRaw is Watch for who has to know of fields that a later version of the API has.
func WatchRaw[T Kind, U any](ctx context.Context, c *Client, s Select, keep func(*T, Raw) U, h Handler[U]) error {
	k := kindOf[T]()
	w := &watcher{client: c, kind: k, selected: s, raw: k.custom, trouble: h.Trouble, log: c.log.With("kind", k.name), backoff: retry.Backoff{First: firstPause, Longest: longestPause}}
	m := &mirror[T, U]{keep: keep, handler: h, there: map[cache.ObjectName]struct{}{}}
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
		w.pause(ctx) // it may end as soon as it begins
	}
	return nil
}

// watcher asks the API for one watch. It is used by one goroutine at a time.
type watcher struct {
	client   *Client
	kind     kind
	selected Select
	trouble  func(error)
	log      *slog.Logger

	news     retry.News
	troubled bool // by what was told last
	backoff  retry.Backoff
	opened   time.Time // a watch, since the last pause
	absent   bool      // the kind
	raw      bool      // it is read as JSON: of a NetworkPolicy once errLater was met
}

// list reads a page, and keeps of it what is needed.
func (w *watcher) list(ctx context.Context, o metav1.ListOptions, convert func(runtime.Object) *kept) (runtime.Object, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = "" // what another API server's cache holds may be older than what was known before
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

// page reads a page and hands on each of its objects.
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
		return nil, err // an API that can't send a list as a watch: the reflector lists
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

// tell tells what is wrong once, however often it happens.
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

// pause waits, each time longer, until the API could be asked again.
func (w *watcher) pause(ctx context.Context) {
	if !w.opened.IsZero() && time.Since(w.opened) > steady {
		w.backoff.Reset()
	}
	w.opened = time.Time{}
	d := w.backoff.Next()
	if w.absent {
		d = unservedPause/2 + rand.N(unservedPause)
	}
	_ = retry.Wait(ctx, d) // the caller asks the context
}

// logged is a context in which client-go logs to the client's logger.
func (c *Client) logged(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(c.log.Handler()))
}
