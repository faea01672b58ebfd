// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"context"
	"fmt"
	"sync"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/store"
)

// etcd is the registry without Kubernetes. Endpoints are attached to a lease of their manager.
type etcd struct {
	*known
	store *store.Client
	ready func()
	list  func(about string, err error) // reports problems

	leasing sync.Mutex   // held while obtaining a lease
	lease   *store.Lease // of this node's endpoints; nil: none yet
}

func openEtcd(ctx context.Context, cfg store.Config, env run.Env, list func(string, error), k *known) (*etcd, error) {
	cfg.Logger = env.Logger
	client, err := store.Open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd (ETCD_ENDPOINTS and its like): %w", err)
	}
	env.Health.Reads(client)
	return &etcd{known: k, store: client, ready: func() { env.Health.SetUnready("") }, list: list}, nil
}

// hold returns the lease of this node's endpoints.
func (r *etcd) hold(ctx context.Context) (*store.Lease, error) {
	r.leasing.Lock()
	defer r.leasing.Unlock()
	if r.lease != nil {
		select {
		case <-r.lease.Lost():
		default:
			return r.lease, nil
		}
	}
	l, err := r.store.Lease(ctx, leaseTime)
	if err == nil {
		r.lease = l
	}
	return l, err
}

func (r *etcd) enter(ctx context.Context, e nsm.Endpoint) error {
	lease, err := r.hold(ctx)
	if err != nil {
		return err
	}
	if _, is := r.payload(e.Service); !is {
		key, service := model.NetworkServiceKey{Name: e.Service}, model.NetworkService{Payload: ethernet}
		_, err := r.store.Transact(ctx, []model.Range{model.KeyRange(key)}, func(v *model.View) (c model.Change, err error) {
			if e := v.Get(key); e.Exists() {
				service, _ = e.Value.(model.NetworkService)
				return c, nil
			}
			return model.Change{Puts: []model.Put{{Key: key, Value: service}}}, nil
		})
		if err != nil {
			return err
		}
		r.change(func() { r.payloads[e.Service] = service.Payload })
	}
	key := keyOf(e)
	if r.has(key.Path(), e, lease.ID()) {
		return nil
	}
	value := model.NetworkServiceEndpoint{Address: e.Address}
	for _, i := range e.Interfaces {
		value.Interfaces = append(value.Interfaces, model.NetworkServiceInterface{Type: i.Type.String(), Parameters: i.Parameters})
	}
	_, err = r.store.Transact(ctx, nil, func(*model.View) (model.Change, error) {
		return model.Change{Puts: []model.Put{{Key: key, Value: value}}}, nil
	}, store.UnderLease(lease))
	if err == nil {
		r.change(func() { r.endpoints[key.Path()] = registered{e, lease.ID()} })
	}
	return err
}

func (r *etcd) remove(ctx context.Context, e nsm.Endpoint) error {
	key := keyOf(e)
	_, err := r.store.Commit(ctx, model.Change{Deletes: []model.Key{key}})
	if err == nil {
		r.change(func() { delete(r.endpoints, key.Path()) })
	}
	return err
}

func keyOf(e nsm.Endpoint) model.NetworkServiceEndpointKey {
	return model.NetworkServiceEndpointKey{Service: e.Service, Host: e.Host, Name: e.Name}
}

func (r *etcd) watch(ctx context.Context) error {
	return r.store.Watch(ctx, []string{model.NetworkServicePrefix(), model.NetworkServiceEndpointPrefix()}, func(u model.Update) error {
		r.change(func() {
			if u.Resync {
				clear(r.endpoints)
				clear(r.payloads)
			}
			for _, e := range u.Entries {
				r.list(e.Path, e.Err)
				r.take(e)
			}
			r.whole = true
		})
		r.ready()
		return nil
	})
}

// take processes an entry. A service that can't be read still exists.
func (r *etcd) take(e model.Entry) {
	switch key := e.Key.(type) {
	case model.NetworkServiceKey:
		delete(r.payloads, key.Name)
		if e.Exists() {
			service, _ := e.Value.(model.NetworkService)
			r.payloads[key.Name] = service.Payload
		}
	case model.NetworkServiceEndpointKey:
		delete(r.endpoints, e.Path)
		if value, valid := e.Value.(model.NetworkServiceEndpoint); valid && e.Exists() {
			r.endpoints[e.Path] = registered{endpointOf(key, value), e.Lease}
		}
	}
}

// endpointOf converts an endpoint in etcd. It drops interfaces of an unknown type, which are of no use.
func endpointOf(k model.NetworkServiceEndpointKey, v model.NetworkServiceEndpoint) nsm.Endpoint {
	e := nsm.Endpoint{Service: k.Service, Host: k.Host, Name: k.Name, Address: v.Address}
	for _, i := range v.Interfaces {
		offer(&e, i.Type, i.Parameters)
	}
	return e
}

// away returns none: etcd deletes what is attached to a lease.
func (r *etcd) away(context.Context) map[string]bool { return nil }

func (r *etcd) close() error { return r.store.Close() }
