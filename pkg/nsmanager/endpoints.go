// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
)

// advertised is an advertised endpoint of this node.
type advertised struct {
	nsm.Endpoint
	silent int // consecutive checks without a listener at its socket
}

func (m *Manager) know(e nsm.Endpoint) {
	m.endpoints[e.Service+"\x00"+e.Name] = &advertised{Endpoint: e}
}

// Advertise adds an endpoint of this node. It may be repeated with other contents.
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
	if err := m.enterOwn(spaces, e); err != nil {
		return err
	}
	m.Logger.Info("advertised", "service", e.Service, "endpoint", e.Name, "socket", e.Socket)
	return m.register(ctx, e)
}

// enterOwn stores an endpoint, unless another live pod uses its name.
func (m *Manager) enterOwn(spaces crossconnect.Namespaces, e nsm.Endpoint) error {
	m.naming.Lock()
	defer m.naming.Unlock()
	m.mu.Lock()
	own := m.endpoints[e.Service+"\x00"+e.Name]
	m.mu.Unlock()
	if own != nil && own.Namespace != e.Namespace && spaces[own.Namespace] != "" {
		return fmt.Errorf("%w: endpoint %s of %s is another pod's of this node: choose another name", nsm.ErrExists, e.Name, e.Service)
	}
	if err := write(m.advertisedFile(e), e); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.know(e)
	return nil
}

// Remove removes an endpoint at the request of a pod in its namespace. It gets no new connections, and keeps existing
// ones.
func (m *Manager) Remove(ctx context.Context, e nsm.Endpoint) error {
	e.Host = m.cfg.Node
	m.mu.Lock()
	own := m.endpoints[e.Service+"\x00"+e.Name]
	m.mu.Unlock()
	if own != nil && own.Namespace != 0 && own.Namespace != e.Namespace {
		return fmt.Errorf("%w: endpoint %s is another pod's", nsm.ErrInvalid, e.Name)
	}
	if err := m.registry.remove(ctx, e); err != nil {
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

// find returns the endpoint of this node that another manager asks for: any of the service if it names none.
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

// offered returns the endpoints of a service: this node's, and those of others in the registry whose managers are
// present.
func (m *Manager) offered(ctx context.Context, service string) []nsm.Endpoint {
	m.mu.Lock()
	var own []nsm.Endpoint
	for _, e := range m.endpoints {
		if e.Service == service {
			own = append(own, e.Endpoint)
		}
	}
	m.mu.Unlock()
	others := m.known.those(func(e nsm.Endpoint) bool { return e.Service == service && e.Host != m.cfg.Node })
	if len(others) == 0 {
		return own
	}
	away := m.registry.away(ctx)
	return append(own, slices.DeleteFunc(others, func(e nsm.Endpoint) bool { return away[e.Host] })...)
}

// isOffered reports whether any endpoint's manager has this address.
func (m *Manager) isOffered(ctx context.Context, address string) bool {
	away := m.registry.away(ctx)
	return !m.known.isWhole() || len(m.known.those(func(e nsm.Endpoint) bool { return e.Address == address && !away[e.Host] })) > 0
}

// listed returns the connections whose endpoint is in the registry and whose manager is present.
func (m *Manager) listed(ctx context.Context, connections []nsm.Connection) (keys []nsm.Key) {
	away := m.registry.away(ctx)
	for _, c := range connections {
		if !m.known.isWhole() || !away[c.Endpoint.Host] && len(m.known.those(c.Endpoint.Same)) > 0 {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// lookAtEndpoints removes endpoints that have gone without notice, and registers those that the registry has lost.
func (m *Manager) lookAtEndpoints(ctx context.Context) {
	m.mu.Lock()
	var own []*advertised
	for _, e := range m.endpoints {
		own = append(own, e)
	}
	m.mu.Unlock()
	for _, e := range own {
		m.Health.Turn() // each may take its time
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
			m.list("endpoint "+e.Name+" of "+e.Service+", in the registry", m.register(ctx, e.Endpoint))
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
			m.Logger.Warn("an endpoint that has gone is still in the registry: it is tried again", "endpoint", e.Name, "error", err)
		}
	}
}

// withdraw removes endpoints of this node from the registry that this node doesn't know, as after losing its directory.
func (m *Manager) withdraw(ctx context.Context) {
	if !m.known.isWhole() {
		return
	}
	for _, e := range m.known.those(func(e nsm.Endpoint) bool { return e.Host == m.cfg.Node }) {
		m.mu.Lock()
		own := m.endpoints[e.Service+"\x00"+e.Name]
		m.mu.Unlock()
		if own == nil {
			m.list("endpoint "+e.Name+" of "+e.Service+", in the registry", m.registry.remove(ctx, e))
		}
	}
}

// learn records the namespace of an endpoint of a former run: that of the process listening at its socket.
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

// register adds an endpoint of this node to the registry.
func (m *Manager) register(ctx context.Context, e nsm.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	if err := m.registry.enter(ctx, e); err != nil {
		return fmt.Errorf("register endpoint %s: %w", e.Name, err)
	}
	return nil
}
