// SPDX-License-Identifier: Apache-2.0

// Package pods caches what the Kubernetes API says about this host's pods, their namespaces and the host's Node. It watches, so that the
// plugin gets an answer without a request to the API, and needs no access of its own.
package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// patience is how long to wait for an unknown pod before asking the API for it: kubelet, which knew it before it told the runtime, watches
// as this package does.
const patience = 2 * time.Second

// answerTimeout is how long the API then has to answer: with patience 5 s, so that a plugin that waits for 10 s can ask twice.
const answerTimeout = 3 * time.Second

// Pod is a pod in the API.
type Pod struct {
	Namespace, Name, UID string
	Node                 string // where it should run
	// StaticUID is kubelet's uid of a static pod, whose pod in the API is a mirror; else "".
	StaticUID      string
	ServiceAccount string
	Labels         map[string]string
	Annotations    map[string]string // those that plugins use
	Ports          []model.EndpointPort
}

// known returns the annotations that plugins read, or refuse.
func known(all map[string]string) (some map[string]string) {
	for name, value := range all {
		if strings.HasPrefix(name, "cni.projectcalico.org/") || strings.HasPrefix(name, "qos.projectcalico.org/") ||
			name == "kubernetes.io/ingress-bandwidth" || name == "kubernetes.io/egress-bandwidth" {
			if some == nil {
				some = map[string]string{}
			}
			some[name] = value
		}
	}
	return some
}

// API is the Kubernetes API.
type API interface {
	// Watch reports the pods of a node, the Node, and all namespaces to k until the context ends.
	Watch(ctx context.Context, node string, k *Cache) error
	// Pod and Namespace read from the API; the error wraps os.ErrNotExist if it has none. Namespace returns the annotations that plugins
	// use.
	Pod(ctx context.Context, namespace, name string) (Pod, error)
	Namespace(ctx context.Context, name string) (map[string]string, error)
}

// Config configures a Cache.
type Config struct {
	Node string // the name of this host's Node
	API  API
	// Unshaped: see gate.Pod.
	Unshaped func() bool
	// PodCIDRs is called with the Node's; nil = not wanted.
	PodCIDRs func([]netip.Prefix)
}

// Cache knows the pods. Run fills it.
type Cache struct {
	cfg Config

	mu         sync.Mutex
	pods       map[podName]Pod
	namespaces map[string]map[string]string
	podCIDRs   []netip.Prefix
	synced     map[string]bool  // by kind
	trouble    map[string]error // by kind
	changed    chan struct{}    // closed at the next change
}

type podName struct{ namespace, name string }

// The kinds of objects in a Cache.
const (
	KindPod       = "Pod"
	KindNamespace = "Namespace"
	KindNode      = "Node"
)

// New returns an empty Cache.
func New(cfg Config) *Cache {
	return &Cache{
		cfg: cfg, pods: map[podName]Pod{}, namespaces: map[string]map[string]string{}, synced: map[string]bool{}, trouble: map[string]error{},
		changed: make(chan struct{}),
	}
}

// Run watches until the context ends.
func (k *Cache) Run(ctx context.Context) error { return k.cfg.API.Watch(ctx, k.cfg.Node, k) }

// change changes the cache, and wakes those that wait for a change.
func (k *Cache) change(how func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	how()
	close(k.changed)
	k.changed = make(chan struct{})
}

// SetPod adds or changes a pod.
func (k *Cache) SetPod(p Pod) {
	k.change(func() { k.pods[podName{p.Namespace, p.Name}] = p })
}

// DeletePod removes a pod.
func (k *Cache) DeletePod(namespace, pod string) {
	k.change(func() { delete(k.pods, podName{namespace, pod}) })
}

// UID returns the uid of a pod of the node in the API; "" if there is no such pod.
func (k *Cache) UID(namespace, pod string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[podName{namespace, pod}].UID
}

// SetNamespace sets a namespace's annotations that plugins use.
func (k *Cache) SetNamespace(namespace string, annotations map[string]string) {
	k.change(func() { k.namespaces[namespace] = annotations })
}

// DeleteNamespace removes a namespace.
func (k *Cache) DeleteNamespace(namespace string) {
	k.change(func() { delete(k.namespaces, namespace) })
}

// SetPodCIDRs sets the Node's podCIDRs.
func (k *Cache) SetPodCIDRs(cidrs []netip.Prefix) {
	k.change(func() { k.podCIDRs = cidrs })
	if k.cfg.PodCIDRs != nil {
		k.cfg.PodCIDRs(cidrs)
	}
}

// Synced records that all objects of a kind have been passed once.
func (k *Cache) Synced(kind string) {
	k.change(func() { k.synced[kind] = true })
}

// Trouble records why a kind can't be read now; nil = it can again.
func (k *Cache) Trouble(kind string, err error) {
	k.change(func() { k.trouble[kind] = err })
}

// look returns the answer known so far, and a channel that is closed at the next change.
func (k *Cache) look(r gate.PodRequest) (p gate.Pod, more <-chan struct{}, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, kind := range []string{KindNode, KindNamespace, KindPod} {
		if !k.synced[kind] {
			err := cmp.Or(k.trouble[kind], errors.New("no answer yet"))
			return p, k.changed, fmt.Errorf("the Kubernetes API can't be read: %w", err)
		}
	}
	p.PodCIDRs = k.podCIDRs
	if r.Name == "" {
		return p, nil, nil
	}
	pod, ok := k.pods[podName{r.Namespace, r.Name}]
	defaults, there := k.namespaces[r.Namespace]
	if !ok || !there || !pod.is(r.UID) {
		return p, k.changed, errUnknown
	}
	k.cfg.complete(&p, pod, defaults)
	return p, nil, nil
}

// errUnknown: the watch hasn't shown a pod, or not with the requested uid.
var errUnknown = errors.New("the watch hasn't shown it")

// is reports whether kubelet means this pod.
func (p Pod) is(uid string) bool { return uid == "" || uid == p.UID || uid == p.StaticUID }

// complete adds a pod to an answer. A static pod gets its lasting uid: its mirror in the API may be recreated, with another uid, while it
// runs.
func (c Config) complete(out *gate.Pod, p Pod, defaults map[string]string) {
	out.UID, out.ServiceAccount, out.Labels, out.Ports = cmp.Or(p.StaticUID, p.UID), p.ServiceAccount, p.Labels, p.Ports
	out.Annotations = maps.Clone(defaults)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	maps.Copy(out.Annotations, p.Annotations)
	out.Unshaped = c.Unshaped != nil && c.Unshaped()
}

// Pod implements gate.Waiter's method of that name. If the watch doesn't show the pod in time, Pod asks the API, once.
func (k *Cache) Pod(ctx context.Context, r gate.PodRequest) (gate.Pod, error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		p, more, why := k.look(r)
		if why == nil {
			return p, nil
		}
		select {
		case <-more:
			continue
		case <-waiting.Done():
		}
		if ctx.Err() != nil || !errors.Is(why, errUnknown) {
			return gate.Pod{}, why
		}
		return k.ask(ctx, r, p)
	}
}

// ask asks the API.
func (k *Cache) ask(ctx context.Context, r gate.PodRequest, out gate.Pod) (gate.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	p, err := k.cfg.API.Pod(ctx, r.Namespace, r.Name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return gate.Pod{}, fmt.Errorf("%w: the Kubernetes API has no pod %s/%s", gate.ErrNoPod, r.Namespace, r.Name)
	case err != nil:
		return gate.Pod{}, fmt.Errorf("the Kubernetes API can't be read: %w", err)
	case !p.is(r.UID):
		return gate.Pod{}, fmt.Errorf("%w: pod %s/%s has the uid %s by now, not %s", gate.ErrNoPod, r.Namespace, r.Name, p.UID, r.UID)
	case p.Node != k.cfg.Node:
		return gate.Pod{}, &gate.RejectedError{Reason: fmt.Sprintf("pod %s/%s is to run on node %q, and this agent is node %q's: "+
			"give it the Node's name as NODENAME", r.Namespace, r.Name, p.Node, k.cfg.Node)}
	}
	defaults, err := k.cfg.API.Namespace(ctx, r.Namespace)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return gate.Pod{}, fmt.Errorf("the Kubernetes API can't be read: %w", err)
	}
	k.cfg.complete(&out, p, defaults)
	return out, nil
}
