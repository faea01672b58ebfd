// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/controllers/endpoints"
	"github.com/calico-go/calico/pkg/controllers/owned"
	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

// translation is what is kept of an object that becomes keys of etcd.
type translation struct {
	about    corev1.ObjectReference
	puts     []model.Put
	problems []string
}

func texts(problems []kubepolicy.Problem) (all []string) {
	for _, p := range problems {
		all = append(all, p.String())
	}
	return all
}

func translate(np *networkingv1.NetworkPolicy, raw kube.Raw) translation {
	key, policy, problems := kubepolicy.Policy(np, raw.Unknown...)
	return translation{kube.Reference(np), []model.Put{{Key: key, Value: policy}}, texts(problems)}
}

// set takes in what an object becomes, and returns everything that is wrong with it.
func (c *controllers) set(t translation) (problems []string) { return c.setIn(c.owned, t) }

func (c *controllers) setIn(keeper *owned.Keeper, t translation) (problems []string) {
	o := writer.Object{Kind: t.about.Kind, Namespace: t.about.Namespace, Name: t.about.Name, UID: string(t.about.UID)}
	err := keeper.Set(o, t.puts)
	if err != nil {
		t.problems = append(t.problems, err.Error()+": what is in etcd of it stays as it is")
		var keys []model.Key
		for _, p := range t.puts {
			keys = append(keys, p.Key)
		}
		keeper.Hold(o, keys...)
	}
	c.invalid.Report(t.about, t.problems...)
	return t.problems
}

// living reports whether the API has an object that makes the key.
func (c *controllers) living(ctx context.Context, k model.Key) (bool, error) {
	if _, is := k.(model.HostEndpointKey); is || strings.HasPrefix(k.Path(), protectionPrefix) {
		return false, nil // no object does
	}
	if of, is := k.(model.ServiceKey); is {
		return c.services.names(of.Name), nil
	}
	if policy, is := k.(model.PolicyKey); is {
		if name, cluster := strings.CutPrefix(policy.Policy, kubepolicy.ClusterPolicyPrefix); cluster {
			return lives(ctx, c, func(p *v1alpha2.ClusterNetworkPolicy) []model.Put {
				key, _, _ := kubepolicy.ClusterPolicy(p, nil)
				return []model.Put{{Key: key}}
			}, "", name, k)
		}
		namespace, name, _ := strings.Cut(strings.TrimPrefix(policy.Policy, kubepolicy.PolicyPrefix), ".")
		return lives(ctx, c, func(*networkingv1.NetworkPolicy) []model.Put { return []model.Put{{Key: k}} }, namespace, name, k)
	}
	profile, is := profileOf(k)
	if !is {
		return true, nil
	}
	if namespace, is := strings.CutPrefix(profile, model.NamespaceProfile("")); is {
		return lives(ctx, c, kubepolicy.Namespace, "", namespace, k)
	}
	namespace, name, _ := strings.Cut(strings.TrimPrefix(profile, serviceAccountPrefix), ".")
	return lives(ctx, c, kubepolicy.ServiceAccount, namespace, name, k)
}

// lives reports whether the object of that name exists and makes the key. If the API doesn't serve the kind, lives returns
// true, as the object's fate isn't known.
func lives[T kube.Kind](ctx context.Context, c *controllers, puts func(*T) []model.Put, namespace, name string, key model.Key) (bool, error) {
	if name == "" {
		return false, nil // no object has such a key
	}
	o, err := kube.Get[T](ctx, c.kube, namespace, name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case errors.Is(err, kube.ErrNotServed):
		return true, nil
	case err != nil:
		return false, err
	}
	return slices.ContainsFunc(puts(o), func(p model.Put) bool { return p.Key == key }), nil
}

// watchOwned returns a watch of a kind whose objects each become keys of etcd on their own.
func watchOwned[T kube.Kind](c *controllers, kind string, puts func(*T) []model.Put) func(context.Context) error {
	keep := func(o *T) translation { return translation{about: kube.Reference(o), puts: puts(o)} }
	return func(ctx context.Context) error {
		return kube.Watch(ctx, c.kube, kube.Select{}, keep, handler(c, kind, ownedHandler(c, kind)))
	}
}

func ownedHandler(c *controllers, kind string) kube.Handler[translation] {
	return kube.Handler[translation]{
		Set: func(t translation) { c.set(t) },
		Deleted: func(namespace, name string) {
			c.owned.Remove(writer.Object{Kind: kind, Namespace: namespace, Name: name})
		},
		Synced: func() { c.owned.Synced(kind) },
	}
}

// handler adds to h what all handlers have in common.
func handler[U any](c *controllers, kind string, h kube.Handler[U]) kube.Handler[U] {
	deleted, synced, trouble := h.Deleted, h.Synced, h.Trouble
	h.Deleted = func(namespace, name string) {
		deleted(namespace, name)
		c.invalid.Report(corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name})
	}
	h.Synced = func() {
		synced()
		c.health.Set(kind, "")
	}
	h.Trouble = func(err error) {
		if trouble != nil {
			trouble(err)
		}
		switch {
		case err == nil, errors.Is(err, kube.ErrNotServed):
			c.health.Set(kind, "")
		default:
			c.health.Set(kind, err.Error())
		}
	}
	if h.Bad == nil {
		h.Bad = func(about corev1.ObjectReference, err error) { c.invalid.Report(about, err.Error()) }
	}
	c.health.Set(kind, "the "+kind+"s of Kubernetes have not been read yet")
	return h
}

// pod is what is kept of a Pod.
type pod struct {
	endpoints.Pod
	about    corev1.ObjectReference
	network  bool // it has its own network, hence endpoints, and isn't finished
	problems []string
}

func keepPod(p *corev1.Pod) pod {
	kept := pod{Pod: endpoints.Pod{Namespace: p.Namespace, Name: p.Name}}
	if p.Spec.HostNetwork || finished(p) {
		return kept
	}
	w, problems := kubepolicy.Pod(p)
	kept.Pod = endpoints.NewPod(p.Namespace, p.Name, uidsOf(p), endpoints.Spec{Labels: w.Labels, Ports: w.Ports, Profiles: w.Profiles})
	kept.network, kept.problems = true, texts(problems)
	if len(problems) > 0 {
		kept.about = kube.Reference(p)
	}
	return kept
}

func (c *controllers) watchPods(ctx context.Context) error {
	return kube.Watch(ctx, c.kube, kube.Select{}, keepPod, handler(c, kindPod, kube.Handler[pod]{
		Set: func(p pod) {
			if p.network {
				c.endpoints.Set(p.Pod)
			} else {
				c.endpoints.Remove(p.Namespace, p.Name)
			}
			p.about.Kind, p.about.Namespace, p.about.Name = kindPod, p.Namespace, p.Name
			c.invalid.Report(p.about, p.problems...)
		},
		Deleted: c.endpoints.Remove,
		Synced:  func() { c.garbage.pods.Store(true) },
	}))
}

// clusterPolicy is what is kept of a ClusterNetworkPolicy: all that decides its form in etcd.
type clusterPolicy struct {
	*v1alpha2.ClusterNetworkPolicy
	unknown    []string // fields
	noPriority bool
}

func keepClusterPolicy(p *v1alpha2.ClusterNetworkPolicy, raw kube.Raw) clusterPolicy {
	kept := &v1alpha2.ClusterNetworkPolicy{Spec: p.Spec, Status: p.Status}
	kept.Name, kept.UID, kept.ResourceVersion, kept.Generation = p.Name, p.UID, p.ResourceVersion, p.Generation
	spec, _ := raw.Object["spec"].(map[string]any)
	return clusterPolicy{kept, raw.Unknown, spec["priority"] == nil}
}

// translate returns what the policy becomes with these nodes.
func (p clusterPolicy) translate(nodes []kubepolicy.Node) translation {
	key, policy, problems := kubepolicy.ClusterPolicy(p.ClusterNetworkPolicy, nodes, p.unknown...)
	if p.noPriority {
		problems = append(problems, kubepolicy.Problem{
			Object: kindClusterPolicy + " " + p.Name, Field: "spec.priority", Reason: "it is absent, and taken for 0", Remedy: "write 0 to 1000",
		})
	}
	return translation{kube.Reference(p.ClusterNetworkPolicy), []model.Put{{Key: key, Value: policy}}, texts(problems)}
}

// watchFormer returns a watch of a kind that is no longer applied, which reports each object as a problem.
func watchFormer[T kube.Kind](c *controllers, kind string) func(context.Context) error {
	return func(ctx context.Context) error {
		return kube.Watch(ctx, c.kube, kube.Select{}, kube.Reference[T], handler(c, kind, kube.Handler[corev1.ObjectReference]{
			Set: func(about corev1.ObjectReference) {
				c.invalid.Report(about, "nothing of it is acted upon: write it as a ClusterNetworkPolicy of "+v1alpha2.GroupVersion.String()+", which has replaced its kind")
			},
			Deleted: func(string, string) {},
			Synced:  func() {},
		}))
	}
}

func (c *controllers) watchClusterPolicies(ctx context.Context) error {
	return kube.WatchRaw(ctx, c.kube, kube.Select{}, keepClusterPolicy, handler(c, kindClusterPolicy, kube.Handler[clusterPolicy]{
		Set:     c.cluster.set,
		Deleted: func(_, name string) { c.cluster.remove(name) },
		Synced:  c.cluster.synced,
		Bad: func(about corev1.ObjectReference, err error) {
			c.cluster.hold(about.Name)
			c.invalid.Report(about, err.Error()+": what is in etcd of it stays as it is")
		},
	}))
}
