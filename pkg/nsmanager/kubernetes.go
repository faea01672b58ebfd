// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/nodecert"
	"github.com/calico-go/calico/pkg/nsm"
)

const (
	// kubeNamespace is the namespace of NetworkServices, NetworkServiceEndpoints and managers' Leases.
	kubeNamespace = "kube-system"
	// leasePrefix precedes a node's name in the name of its manager's Lease; leaseLabel selects these.
	leasePrefix = "calico-nsm-"
	leaseLabel  = "k8s-app"
	leaseOf     = "calico-nsm"
	// renewAfter is the age at which a Lease is renewed, lookAfter the age at which other managers' Leases are read
	// again, and lookTimeout how long a client waits for that.
	renewAfter  = 20 * time.Second
	lookAfter   = 10 * time.Second
	lookTimeout = 2 * time.Second
)

// kubernetesAPI is the registry with Kubernetes. A node's objects belong to its Node, and are deleted with it.
type kubernetesAPI struct {
	*known
	client *kube.Client
	node   string
	// certificate is nil if this manager's certificate is maintained by others.
	certificate *nodecert.Certificate

	now   func() time.Time
	ready func()
	list  func(about string, err error) // reports problems

	trouble atomic.Pointer[interruption]
	leasing sync.Mutex // held while writing this manager's Lease
	renewed time.Time  // zero if there is none yet
	looking sync.Mutex // held while reading other managers' Leases
	looked  time.Time
	leases  map[string]seen // by node
	gone    map[string]bool
}

// seen says when this process first saw a renewal time of a Lease: nodes' clocks may differ.
type seen struct{ renewed, at time.Time }

type interruption struct {
	since time.Time
	err   error
}

func openKubernetes(ctx context.Context, cfg Config, env run.Env, list func(string, error), k *known) (*kubernetesAPI, error) {
	client, err := kube.New(kube.Config{Kubeconfig: cfg.Kubeconfig, Name: "calico-nsm", Logger: env.Logger})
	if err != nil {
		return nil, err
	}
	r := &kubernetesAPI{known: k, client: client, node: cfg.Node, now: time.Now, ready: func() { env.Health.SetUnready("") }, list: list}
	if cfg.Certificate != "" {
		r.certificate = nodecert.NewNSM(nodecert.Config{Node: cfg.Node, File: cfg.Certificate, CAFile: cfg.TLS.CAFile, Kube: client, Problems: env.Problems, Logger: env.Logger})
		if err := r.certificate.Ensure(ctx); err != nil {
			client.Close()
			return nil, err
		}
	}
	env.Health.Interrupted = func() (time.Time, error) {
		if t := r.trouble.Load(); t != nil {
			return t.since, t.err
		}
		return time.Time{}, nil
	}
	env.Health.SetUnready("the Kubernetes API has not been read yet")
	return r, nil
}

// owner returns this node's Node as the owner of an object.
func (r *kubernetesAPI) owner(ctx context.Context) ([]metav1.OwnerReference, error) {
	n, err := kube.Get[corev1.Node](ctx, r.client, "", r.node)
	if err != nil {
		return nil, fmt.Errorf("%w: -node must be the name of this node's Node", err)
	}
	of := kube.Reference(n)
	return []metav1.OwnerReference{{APIVersion: of.APIVersion, Kind: of.Kind, Name: of.Name, UID: of.UID}}, nil
}

// hold renews this manager's Lease if due.
func (r *kubernetesAPI) hold(ctx context.Context) error {
	r.leasing.Lock()
	defer r.leasing.Unlock()
	now := r.now()
	if now.Sub(r.renewed) < renewAfter/2 {
		return nil
	}
	seconds, renewed := int32(leaseTime.Seconds()), metav1.NewMicroTime(now)
	spec := coordinationv1.LeaseSpec{HolderIdentity: &r.node, LeaseDurationSeconds: &seconds, RenewTime: &renewed}
	err := kube.Patch[coordinationv1.Lease](ctx, r.client, kubeNamespace, leasePrefix+r.node, map[string]any{"spec": spec})
	if errors.Is(err, os.ErrNotExist) {
		meta := metav1.ObjectMeta{Name: leasePrefix + r.node, Namespace: kubeNamespace, Labels: map[string]string{leaseLabel: leaseOf}}
		if meta.OwnerReferences, err = r.owner(ctx); err == nil {
			_, err = kube.Create(ctx, r.client, &coordinationv1.Lease{ObjectMeta: meta, Spec: spec})
		}
	}
	if err == nil {
		r.renewed = now
	}
	return err
}

// live keeps renewing this manager's Lease, once it has one, until the context ends.
func (r *kubernetesAPI) live(ctx context.Context) error {
	return reconcile.New(reconcile.Timing{Every: renewAfter}, func(ctx context.Context) (time.Duration, error) {
		r.leasing.Lock()
		has := !r.renewed.IsZero()
		r.leasing.Unlock()
		if !has {
			return 0, nil
		}
		call, cancel := context.WithTimeout(ctx, registerTimeout)
		defer cancel()
		err := r.hold(call)
		r.list("this manager's Lease", err)
		return 0, err
	}).Run(ctx)
}

// objectName returns the name of the object for a node's endpoint: names of services and endpoints may be invalid for
// objects. It ends in the node's name, and only that node's manager may write it.
func objectName(e nsm.Endpoint) string {
	return fmt.Sprintf("%x.%s", sha256.Sum224([]byte(e.Service+"\x00"+e.Name)), e.Host)
}

func (r *kubernetesAPI) enter(ctx context.Context, e nsm.Endpoint) error {
	if err := r.hold(ctx); err != nil {
		return err
	}
	if _, is := r.payload(e.Service); !is {
		_, err := kube.Create(ctx, r.client, &kube.NetworkService{
			ObjectMeta: metav1.ObjectMeta{Name: e.Service, Namespace: kubeNamespace}, Spec: kube.NetworkServiceSpec{Payload: ethernet},
		})
		switch {
		case err == nil:
			r.change(func() { r.payloads[e.Service] = ethernet })
		case !errors.Is(err, os.ErrExist):
			return err
		}
	}
	name := objectName(e)
	if r.has(name, e, 0) {
		return nil
	}
	owner, err := r.owner(ctx)
	if err != nil {
		return err
	}
	o := &kube.NetworkServiceEndpoint{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: kubeNamespace, OwnerReferences: owner}, Spec: specOf(e)}
	if _, err = kube.Create(ctx, r.client, o); errors.Is(err, os.ErrExist) {
		err = kube.Patch[kube.NetworkServiceEndpoint](ctx, r.client, kubeNamespace, name, map[string]any{"metadata": map[string]any{"ownerReferences": owner}, "spec": o.Spec})
	}
	if err == nil {
		r.change(func() { r.endpoints[name] = registered{Endpoint: e} })
	}
	return err
}

func (r *kubernetesAPI) remove(ctx context.Context, e nsm.Endpoint) error {
	name := objectName(e)
	err := kube.Delete[kube.NetworkServiceEndpoint](ctx, r.client, kubeNamespace, name, "")
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err == nil {
		r.change(func() { delete(r.endpoints, name) })
	}
	return err
}

func specOf(e nsm.Endpoint) kube.NetworkServiceEndpointSpec {
	s := kube.NetworkServiceEndpointSpec{Service: e.Service, Host: e.Host, Name: e.Name, Address: e.Address, Interfaces: []kube.NetworkInterface{}}
	for _, i := range e.Interfaces {
		s.Interfaces = append(s.Interfaces, kube.NetworkInterface{Type: i.Type.String(), Parameters: kube.NetworkParameters{Parameters: i.Parameters}})
	}
	return s
}

// told is what the API reported about an endpoint.
type told struct {
	name string
	nsm.Endpoint
	err error
}

// toldOf keeps what is needed of an endpoint. It drops interfaces of an unknown type, which are of no use.
func toldOf(o *kube.NetworkServiceEndpoint) told {
	s := o.Spec
	e := nsm.Endpoint{Service: s.Service, Host: s.Host, Name: s.Name, Address: s.Address}
	for _, i := range s.Interfaces {
		offer(&e, i.Type, i.Parameters.Parameters)
	}
	return told{o.Name, e, e.Check()}
}

func (r *kubernetesAPI) watch(ctx context.Context) error {
	unread := 2
	read := func() func() { // of one kind, called once
		return sync.OnceFunc(func() {
			r.change(func() {
				if unread--; unread == 0 {
					r.whole = true
					r.ready()
				}
			})
		})
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.live(ctx) })
	if r.certificate != nil {
		group.Go(func() error { return r.certificate.Run(ctx) })
	}
	service := func(o *kube.NetworkService) [2]string { return [2]string{o.Name, o.Spec.Payload} }
	group.Go(func() error {
		return kube.Watch(ctx, r.client, kube.Select{Namespace: kubeNamespace}, service, kube.Handler[[2]string]{
			Set:     func(s [2]string) { r.change(func() { r.payloads[s[0]] = s[1] }) },
			Deleted: func(_, name string) { r.change(func() { delete(r.payloads, name) }) },
			Synced:  read(), Trouble: r.note,
		})
	})
	group.Go(func() error {
		return kube.Watch(ctx, r.client, kube.Select{Namespace: kubeNamespace}, toldOf, kube.Handler[told]{
			Set: func(e told) {
				r.list("NetworkServiceEndpoint "+e.name, e.err)
				r.change(func() {
					if delete(r.endpoints, e.name); e.err == nil {
						r.endpoints[e.name] = registered{Endpoint: e.Endpoint}
					}
				})
			},
			Deleted: func(_, name string) {
				r.list("NetworkServiceEndpoint "+name, nil)
				r.change(func() { delete(r.endpoints, name) })
			},
			Bad:    func(about corev1.ObjectReference, err error) { r.list("NetworkServiceEndpoint "+about.Name, err) },
			Synced: read(), Trouble: r.note,
		})
	})
	return group.Wait()
}

func (r *kubernetesAPI) note(err error) {
	if err == nil {
		r.trouble.Store(nil)
	} else {
		r.trouble.Store(&interruption{r.now(), err})
	}
}

// away returns nodes whose managers have not renewed their Leases. A manager without a Lease, such as one outside of
// the cluster, counts as present.
func (r *kubernetesAPI) away(ctx context.Context) map[string]bool {
	r.looking.Lock()
	defer r.looking.Unlock()
	now := r.now()
	if now.Sub(r.looked) < lookAfter {
		return r.gone
	}
	r.looked = now
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	list, err := kube.List[coordinationv1.Lease](ctx, r.client, kube.Select{Namespace: kubeNamespace, Labels: leaseLabel + "=" + leaseOf})
	r.list("managers' Leases", err)
	if err != nil {
		return r.gone
	}
	before := r.leases
	r.leases, r.gone = map[string]seen{}, map[string]bool{}
	for _, l := range list {
		node := strings.TrimPrefix(l.Name, leasePrefix)
		s := seen{at: now}
		if l.Spec.RenewTime != nil {
			s.renewed = l.Spec.RenewTime.Time
		}
		if was, is := before[node]; is && was.renewed.Equal(s.renewed) {
			s = was
		}
		r.leases[node], r.gone[node] = s, now.Sub(s.at) > leaseTime
	}
	return r.gone
}

func (r *kubernetesAPI) close() error {
	r.client.Close()
	return nil
}
