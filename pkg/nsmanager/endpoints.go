// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
	"github.com/calico-go/calico/pkg/store"
)

// An advertised endpoint of this node.
type advertised struct {
	nsm.Endpoint
	silent int // looks in a row at which nobody listened at its socket
}

// registry is what etcd has of all nodes' endpoints.
type registry struct {
	mu        sync.Mutex
	endpoints map[model.NetworkServiceEndpointKey]registered
}

type registered struct {
	nsm.Endpoint
	lease int64
}

const (
	// leaseTime is how long others know the endpoints of a manager that has gone: it may be back, with the same.
	leaseTime = time.Minute
	// registerTimeout bounds what is done for one endpoint while etcd doesn't answer.
	registerTimeout = 5 * time.Second
)

// holdLease returns the lease of this node's endpoints.
func (m *Manager) holdLease(ctx context.Context) (*store.Lease, error) {
	m.leasing.Lock()
	defer m.leasing.Unlock()
	if m.lease != nil {
		select {
		case <-m.lease.Lost():
		default:
			return m.lease, nil
		}
	}
	l, err := m.store.Lease(ctx, leaseTime)
	if err == nil {
		m.lease = l
	}
	return l, err
}

func (m *Manager) know(e nsm.Endpoint) {
	m.endpoints[e.Service+"\x00"+e.Name] = &advertised{Endpoint: e}
}

// Advertise enters an endpoint of this node. It may be repeated, with other contents.
func (m *Manager) Advertise(ctx context.Context, e nsm.Endpoint) error {
	if e.Host != "" && e.Host != m.cfg.Node {
		return fmt.Errorf("%w: network_service_host is %.100q, and this node is %q", nsm.ErrInvalid, e.Host, m.cfg.Node)
	}
	if err := m.checkSocket(e.Socket); err != nil {
		return err
	}
	spaces, err := crossconnect.Scan()
	if err != nil {
		return err
	}
	n, err := m.endpointNamespace(spaces, e)
	if err != nil {
		return err
	}
	n.Close()
	e.Host, e.Address = m.cfg.Node, m.address()
	if err := write(m.advertisedFile(e), e); err != nil {
		return err
	}
	m.mu.Lock()
	m.know(e)
	m.mu.Unlock()
	m.Logger.Info("advertised", "service", e.Service, "endpoint", e.Name, "socket", e.Socket)
	return m.register(ctx, e)
}

// register writes an endpoint to etcd.
func (m *Manager) register(ctx context.Context, e nsm.Endpoint) error {
	value := model.NetworkServiceEndpoint{Address: e.Address}
	for _, i := range e.Interfaces {
		value.Interfaces = append(value.Interfaces, model.NetworkServiceInterface{Type: i.Type.String(), Parameters: i.Parameters})
	}
	lease, err := m.holdLease(ctx)
	if err == nil {
		_, err = m.store.Transact(ctx, nil, func(*model.View) (model.Change, error) {
			return model.Change{Puts: []model.Put{{Key: keyOf(e), Value: value}}}, nil
		}, store.UnderLease(lease))
	}
	if err != nil {
		return fmt.Errorf("register endpoint %s: %w", e.Name, err)
	}
	return nil
}

func keyOf(e nsm.Endpoint) model.NetworkServiceEndpointKey {
	return model.NetworkServiceEndpointKey{Service: e.Service, Host: e.Host, Name: e.Name}
}

// Remove takes an endpoint away, for a pod that is in its namespace: it gets no new connections, and keeps those that it has.
func (m *Manager) Remove(ctx context.Context, e nsm.Endpoint) error {
	e.Host = m.cfg.Node
	m.mu.Lock()
	own := m.endpoints[e.Service+"\x00"+e.Name]
	m.mu.Unlock()
	if own != nil && own.Namespace != 0 && own.Namespace != e.Namespace {
		return fmt.Errorf("%w: endpoint %s is another pod's", nsm.ErrInvalid, e.Name)
	}
	if _, err := m.store.Commit(ctx, model.Change{Deletes: []model.Key{keyOf(e)}}); err != nil {
		return fmt.Errorf("remove endpoint %s: %w", e.Name, err)
	}
	if err := os.Remove(m.advertisedFile(e)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.endpoints, e.Service+"\x00"+e.Name)
	m.Logger.Info("removed", "service", e.Service, "endpoint", e.Name)
	return nil
}

// find is the endpoint of this node that another manager asks for: any of the service where it names none.
func (m *Manager) find(r nsm.RemoteRequest) (nsm.Endpoint, nsm.Interface, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var endpoints []nsm.Endpoint
	for _, e := range m.endpoints {
		if e.Service == r.Service && (r.Endpoint == "" || r.Endpoint == e.Name) {
			endpoints = append(endpoints, e.Endpoint)
		}
	}
	found, err := nsm.Candidates(nsm.Request{ID: r.ID, Service: r.Service}, endpoints, m.cfg.Node, func(nsm.Endpoint) int64 { return 0 })
	if err != nil {
		return nsm.Endpoint{}, nsm.Interface{}, err
	}
	return found[0].Endpoint, found[0].Offered, nil
}

// offered are the endpoints of a service: this node's, and what etcd has of others.
func (m *Manager) offered(service string) []nsm.Endpoint {
	m.mu.Lock()
	var list []nsm.Endpoint
	for _, e := range m.endpoints {
		if e.Service == service {
			list = append(list, e.Endpoint)
		}
	}
	m.mu.Unlock()
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	for k, e := range m.registry.endpoints {
		if k.Service == service && k.Host != m.cfg.Node {
			list = append(list, e.Endpoint)
		}
	}
	return list
}

// isOffered says whether an endpoint's manager has this address.
func (m *Manager) isOffered(address string) bool {
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	for _, e := range m.registry.endpoints {
		if e.Address == address {
			return true
		}
	}
	return m.registry.endpoints == nil // nothing is known yet
}

// listed are those connections whose endpoint is in the registry.
func (m *Manager) listed(connections []nsm.Connection) (keys []nsm.Key) {
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	for _, c := range connections {
		if _, is := m.registry.endpoints[keyOf(c.Endpoint)]; is || m.registry.endpoints == nil {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// watch keeps the registry.
func (m *Manager) watch(ctx context.Context) error {
	return m.store.Watch(ctx, []string{model.NetworkServicePrefix()}, func(u model.Update) error {
		m.Health.SetUnready("")
		m.registry.mu.Lock()
		defer m.registry.mu.Unlock()
		if u.Resync || m.registry.endpoints == nil {
			m.registry.endpoints = map[model.NetworkServiceEndpointKey]registered{}
		}
		for _, e := range u.Entries {
			key, ok := e.Key.(model.NetworkServiceEndpointKey)
			value, valid := e.Value.(model.NetworkServiceEndpoint)
			if !ok {
				continue
			}
			delete(m.registry.endpoints, key)
			m.list(e.Path, e.Err)
			if e.Err == nil && valid && e.Exists() {
				m.registry.endpoints[key] = registered{endpoint(key, value), e.Lease}
			}
		}
		return nil
	})
}

// endpoint is what etcd has of one. An interface of a type that isn't known is of no use.
func endpoint(k model.NetworkServiceEndpointKey, v model.NetworkServiceEndpoint) nsm.Endpoint {
	e := nsm.Endpoint{Service: k.Service, Host: k.Host, Name: k.Name, Address: v.Address}
	for _, i := range v.Interfaces {
		kind, err := nsm.ParseInterfaceType(i.Type)
		if err == nil {
			e.Interfaces = append(e.Interfaces, nsm.Interface{Type: kind, Parameters: i.Parameters})
		}
	}
	return e
}

// lookAtEndpoints takes away those that have gone without a word, and enters those that etcd has lost.
func (m *Manager) lookAtEndpoints(ctx context.Context) {
	m.mu.Lock()
	var own []*advertised
	for _, e := range m.endpoints {
		own = append(own, e)
	}
	m.mu.Unlock()
	for _, e := range own {
		var conn net.Conn
		err := m.checkSocket(e.Socket)
		if err == nil {
			conn, err = (&net.Dialer{Timeout: endpointTimeout}).DialContext(ctx, "unix", e.Socket)
		}
		if err == nil {
			err = m.learn(e, conn)
			_ = conn.Close()
		}
		if err == nil {
			e.silent = 0
			m.list("endpoint "+e.Name+" of "+e.Service+", in etcd", m.restore(ctx, e.Endpoint))
			continue
		}
		m.mu.Lock()
		again := m.endpoints[e.Service+"\x00"+e.Name] != e // advertised anew meanwhile
		m.mu.Unlock()
		if e.silent++; e.silent < silentLooks || again || ctx.Err() != nil {
			continue
		}
		m.Logger.Warn("an endpoint has gone: nobody listens at its socket", "service", e.Service, "endpoint", e.Name, "error", err)
		if err := m.Remove(ctx, e.Endpoint); err != nil {
			m.Logger.Warn("an endpoint that has gone is still in etcd: it is tried again", "endpoint", e.Name, "error", err)
		}
	}
}

// learn notes in which namespace an endpoint of a former run is: that of who listens at its socket.
func (m *Manager) learn(e *advertised, conn net.Conn) error {
	m.mu.Lock()
	known := e.Namespace != 0
	m.mu.Unlock()
	if known {
		return nil
	}
	namespace, err := nsmgrpc.NamespaceOf(conn)
	m.mu.Lock()
	defer m.mu.Unlock()
	e.Namespace = namespace
	return err
}

// restore registers an endpoint that etcd doesn't have as it is, or by the lease of a former run.
func (m *Manager) restore(ctx context.Context, e nsm.Endpoint) error {
	m.registry.mu.Lock()
	there, known := m.registry.endpoints[keyOf(e)]
	ready := m.registry.endpoints != nil
	m.registry.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	lease, err := m.holdLease(ctx)
	if err != nil || !ready || known && there.Address == e.Address && there.lease == lease.ID() {
		return err
	}
	return m.register(ctx, e)
}
