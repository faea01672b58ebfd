// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/controllers/collector"
	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/garbage"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/store"
)

const (
	// idle is the time between two passes of garbage collection; busy is that time while there may be garbage.
	idle = 5 * time.Minute
	busy = time.Minute
)

// Live implements collector.API by asking the API server itself.
type Live struct{ *kube.Client }

// Pod implements collector.API.
func (l Live) Pod(ctx context.Context, p garbage.Pod) (garbage.Look, error) {
	return look(ctx, l.Client, p.Namespace, p.Name, uidsOf)
}

// Node implements collector.API.
func (l Live) Node(ctx context.Context, name string) (garbage.Look, error) {
	return look(ctx, l.Client, "", name, func(n *corev1.Node) []string { return []string{string(n.UID)} })
}

// look fetches an object. An object without UIDs counts as absent.
func look[T kube.Kind](ctx context.Context, c *kube.Client, namespace, name string, uids func(*T) []string) (garbage.Look, error) {
	o, err := kube.Get[T](ctx, c, namespace, name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return garbage.Look{Absent: true}, nil
	case err != nil:
		return garbage.Look{}, err
	}
	all := uids(o)
	return garbage.Look{UIDs: all, Absent: all == nil}, nil
}

// finished reports whether nothing of a pod runs or ever will again. Such a pod may stay in the API as long as its Job does.
func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// uidsOf returns the UIDs under which a pod's endpoints may know it, nil if it is finished.
func uidsOf(p *corev1.Pod) []string {
	if finished(p) {
		return nil
	}
	uids := []string{string(p.UID)}
	if other := p.Annotations[corev1.MirrorPodAnnotationKey]; other != "" {
		uids = append(uids, other)
	}
	return uids
}

// collection collects garbage while this process leads.
type collection struct {
	*controllers
	loop      *reconcile.Loop
	collector *collector.Collector // a new one each time this process starts to lead
	pods      atomic.Bool          // all of them are known
	nodes     atomic.Bool
}

func newCollection(c *controllers) *collection {
	g := &collection{controllers: c}
	g.loop = reconcile.New(reconcile.Timing{}, g.look)
	return g
}

// Pod and Node implement collector.Known.
func (g *collection) Pod(p garbage.Pod) []string { return g.endpoints.UIDs(p.Namespace, p.Name) }
func (g *collection) Node(name string) bool {
	return g.hosts.Has(writer.Object{Kind: kindNode, Name: name})
}

// run collects until the context ends.
func (g *collection) run(ctx context.Context) {
	defer g.metrics.ipam.forget()
	g.collector = collector.New(collector.Config{Etcd: g.etcd, API: Live{g.kube}, Known: g, Now: time.Now, Logger: g.log})
	_ = g.loop.Run(ctx) // the error is always nil
}

// look runs one pass. It waits until the watches have listed all pods and Nodes, or it would have to ask for each of them.
func (g *collection) look(ctx context.Context) (again time.Duration, err error) {
	if !g.pods.Load() || !g.nodes.Load() {
		return time.Second, nil
	}
	r, err := g.collector.Pass(ctx)
	if ctx.Err() != nil {
		return 0, err
	}
	g.ledger.Tell(problems.Host, "garbage collection", err)
	g.metrics.ipam.take(r)
	if err != nil || r.Candidates > 0 || len(r.Kept) > 0 || r.Blocked != "" {
		return busy, err
	}
	return idle, nil
}

// ListGarbage writes what a pass finds to out and deletes nothing: see collector. One pass can't tell what is really gone:
// that takes a second look.
func ListGarbage(ctx context.Context, cfg Config, env run.Env, out io.Writer) error {
	return withBoth(ctx, cfg, env, func(api *kube.Client, client *store.Client) error {
		known, err := listed(ctx, api)
		if err != nil {
			return err
		}
		c := collector.New(collector.Config{Etcd: client, API: Live{api}, Known: known, Now: time.Now, Logger: slog.New(slog.DiscardHandler), DryRun: true})
		r, err := c.Pass(ctx)
		for _, u := range r.Usage {
			_, _ = fmt.Fprintf(out, "pool %s: %.0f addresses are allocated, %.0f free\n", u.Pool, u.Allocated, u.Free)
		}
		for _, k := range r.Kept {
			_, _ = fmt.Fprintf(out, "%s: %s\n", k.What, k.Why)
		}
		for _, text := range r.Would {
			_, _ = fmt.Fprintln(out, "would", text)
		}
		if r.Blocked != "" {
			_, _ = fmt.Fprintln(out, "blocked:", r.Blocked)
		}
		_, _ = fmt.Fprintf(out, "%d addresses are of pods that are gone or finished\n", r.Candidates)
		return err
	})
}

// ResumeGarbage lifts the brake of garbage collection for the amount that the brake names.
func ResumeGarbage(ctx context.Context, cfg Config, env run.Env, out io.Writer) error {
	return withBoth(ctx, cfg, env, func(_ *kube.Client, client *store.Client) error {
		brake, err := collector.Resume(ctx, client)
		if err == nil {
			_, _ = fmt.Fprintln(out, "garbage collection goes on:", brake.Reason)
		}
		return err
	})
}

func withBoth(ctx context.Context, cfg Config, env run.Env, do func(*kube.Client, *store.Client) error) error {
	cfg.Kube.Name, cfg.Kube.Logger, cfg.Store.Logger = env.Name, env.Logger, env.Logger
	api, err := kube.New(cfg.Kube)
	if err != nil {
		return err
	}
	defer api.Close()
	client, err := store.Open(ctx, cfg.Store)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return do(api, client)
}

// listing is the result of listing pods and nodes once.
type listing struct {
	pods  map[garbage.Pod][]string
	nodes map[string]bool
}

func listed(ctx context.Context, api *kube.Client) (l listing, err error) {
	l = listing{map[garbage.Pod][]string{}, map[string]bool{}}
	pods, err := kube.List[corev1.Pod](ctx, api, kube.Select{})
	if err != nil {
		return l, err
	}
	for _, p := range pods {
		l.pods[garbage.Pod{Namespace: p.Namespace, Name: p.Name}] = uidsOf(p)
	}
	nodes, err := kube.List[corev1.Node](ctx, api, kube.Select{})
	for _, n := range nodes {
		l.nodes[n.Name] = true
	}
	return l, err
}

// Pod and Node implement collector.Known.
func (l listing) Pod(p garbage.Pod) []string { return l.pods[p] }
func (l listing) Node(name string) bool      { return l.nodes[name] }
