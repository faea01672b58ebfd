// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
)

const (
	// endpointTimeout is how long an endpoint may take to answer, remoteTimeout another manager, which asks its
	// endpoint.
	endpointTimeout = 15 * time.Second
	remoteTimeout   = 20 * time.Second
	// mostTried is the maximum number of endpoints tried for a request.
	mostTried = 8
	// failedLately is how long an endpoint that failed is asked after the others.
	failedLately = 5 * time.Minute
)

// Connect makes a client's connection. Repeating a request gives the same answer.
func (m *Manager) Connect(ctx context.Context, r nsm.Request) (_ nsm.Reply, err error) {
	defer func() { m.asked("client", err) }()
	key := nsm.Key{ID: r.ID, Service: r.Service}
	release, err := m.hold(ctx, key)
	if err != nil {
		return nsm.Reply{}, err
	}
	defer release()
	m.mu.Lock()
	c, known, err := m.ledger.Known(r)
	m.mu.Unlock()
	switch {
	case known && c.Phase == nsm.Ready:
		return reply(c), err
	case known && c.Phase == nsm.Waiting && err != nil:
		return nsm.Reply{}, err
	case known && c.Phase != nsm.Waiting:
		if err := m.end(ctx, c); err != nil {
			return nsm.Reply{}, fmt.Errorf("%w: an earlier connection of the request is not closed yet: %w", nsm.ErrAborted, err)
		}
	}
	if known && c.Phase == nsm.Waiting {
		c, err = m.again(ctx, c)
	} else {
		c, err = m.connect(ctx, r, "")
	}
	if err == nil && ctx.Err() != nil {
		err = errors.Join(fmt.Errorf("%w: the client has gone: %w", nsm.ErrAborted, ctx.Err()), m.endSoon(ctx, c))
	}
	if err != nil {
		return nsm.Reply{}, err
	}
	m.Logger.Info("connected", "service", r.Service, "request", r.ID, "endpoint", c.Endpoint.Name, "host", c.Endpoint.Host, "vni", c.Tunnel.VNI)
	return reply(c), nil
}

// Disconnect ends a connection of a client in the namespace. If the endpoint's manager can't be reached, it is told
// later.
func (m *Manager) Disconnect(ctx context.Context, k nsm.Key, namespace uint64) error {
	release, err := m.hold(ctx, k)
	if err != nil {
		return err
	}
	defer release()
	c, known := m.get(k)
	switch {
	case !known:
		return nil
	case c.Request.Namespace != namespace:
		return fmt.Errorf("%w: request %s for network service %q is another pod's", nsm.ErrInvalid, k.ID, k.Service)
	}
	m.Logger.Info("closed by the client", "service", k.Service, "request", k.ID)
	err = m.end(ctx, c)
	if c, known := m.get(k); known && c.Phase == nsm.Closing {
		return nil
	}
	return err
}

// connect tries the endpoints in turn. The client's interface gets the name ifName unless it is empty. The caller holds
// the connection.
func (m *Manager) connect(ctx context.Context, r nsm.Request, ifName string) (nsm.Connection, error) {
	spaces, err := crossconnect.Scan()
	if err != nil {
		return nsm.Connection{}, err
	}
	pod, err := m.open(spaces, r.Namespace)
	if err != nil {
		return nsm.Connection{}, err
	}
	defer pod.Close()
	if err := m.pin(r.Namespace, pod); err != nil {
		return nsm.Connection{}, err
	}
	candidates, err := nsm.Candidates(r, m.offered(ctx, r.Service), m.cfg.Node, m.failed)
	if err != nil {
		return nsm.Connection{}, err
	}
	var errs []error
	away := map[string]bool{} // managers that couldn't be reached
	for _, candidate := range candidates {
		if away[candidate.Endpoint.Address] {
			continue
		}
		if len(errs) == mostTried {
			break
		}
		a := attempt{Manager: m, request: r, candidate: candidate, spaces: spaces, pod: pod, name: ifName}
		c, err := a.run(ctx)
		if err == nil {
			m.hear(c.Endpoint.Host)
			return c, nil
		}
		errs = append(errs, fmt.Errorf("endpoint %s on %s: %w", candidate.Endpoint.Name, candidate.Endpoint.Host, err))
		if errors.Is(err, nsm.ErrInvalid) || ctx.Err() != nil {
			break // the request itself is at fault
		}
		m.fail(candidate.Endpoint, err)
		if now, known := m.get(nsm.Key{ID: r.ID, Service: r.Service}); known && now.Phase == nsm.Closing {
			break // the other manager may have it, and must be told first
		}
		away[candidate.Endpoint.Address] = errors.Is(err, nsmgrpc.ErrUnreachable)
	}
	return nsm.Connection{}, errors.Join(errs...)
}

// fail records that an endpoint has failed, or all endpoints of a manager that can't be reached.
func (m *Manager) fail(e nsm.Endpoint, err error) {
	about := e.Host + "\x00" + e.Name
	if errors.Is(err, nsmgrpc.ErrUnreachable) {
		about = e.Address
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.failures, func(_ string, at time.Time) bool { return m.now().Sub(at) > failedLately })
	m.failures[about] = m.now()
}

// failed returns when an endpoint last failed, in Unix nanoseconds; 0 = not lately.
func (m *Manager) failed(e nsm.Endpoint) (at int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, about := range []string{e.Address, e.Host + "\x00" + e.Name} {
		if t := m.failures[about]; m.now().Sub(t) < failedLately {
			at = max(at, t.UnixNano())
		}
	}
	return at
}

// An attempt is one request to one endpoint.
type attempt struct {
	*Manager
	request   nsm.Request
	candidate nsm.Candidate
	spaces    crossconnect.Namespaces
	pod       *crossconnect.Namespace // the client's
	name      string
	context   nsm.ContextRequest
}

func (a attempt) run(ctx context.Context) (nsm.Connection, error) {
	var err error
	if a.context, err = nsm.ParseContextRequest(a.candidate.Wanted.Parameters); err != nil {
		return nsm.Connection{}, err
	}
	routes, err := a.pod.Routes()
	if err != nil {
		return nsm.Connection{}, err
	}
	if a.context.DefaultRoute && a.cfg.KeepDefaultRoutes {
		if has, err := a.pod.HasDefaultRoute(); err != nil || has {
			return nsm.Connection{}, cmp.Or(err, fmt.Errorf("%w: the pod has a default route, which this manager was told to leave alone (-keep-default-routes)", nsm.ErrInvalid))
		}
	}
	a.context.Excluded = append(a.context.Excluded, routes...)
	if a.name == "" {
		a.name = a.candidate.Wanted.Parameters[nsm.ParamName]
	}
	c := nsm.Connection{
		Key: nsm.Key{ID: a.request.ID, Service: a.request.Service}, Phase: nsm.Pending, Request: a.request,
		Endpoint: a.candidate.Endpoint, Made: a.now().Unix(),
	}
	c.Payload, _ = a.known.payload(a.request.Service)
	if c.Endpoint.Host == a.cfg.Node {
		return a.local(ctx, c)
	}
	return a.remote(ctx, c)
}

// local makes a veth between two pods of this node.
func (a attempt) local(ctx context.Context, c nsm.Connection) (nsm.Connection, error) {
	server, err := a.endpointNamespace(a.spaces, c.Endpoint)
	if err != nil {
		return c, err
	}
	defer server.Close()
	taken, err := server.Routes()
	if err != nil {
		return c, err
	}
	err = a.reserve(&c, func(l *nsm.Ledger) (err error) {
		if c.Client, err = place(l, a.pod, nsm.End{Namespace: a.request.Namespace, Name: a.name}, c); err == nil {
			c.Server, err = place(l, server, nsm.End{Namespace: c.Endpoint.Namespace}, c)
		}
		if err == nil {
			c.Context, err = allot(l, a.candidate.Offered, a.context, taken)
		}
		return err
	})
	if err == nil {
		err = a.ask(ctx, c.Endpoint, c.Key)
	}
	if err != nil {
		return c, errors.Join(err, a.forget(c.Key))
	}
	killpoint.Step("reserved")
	client, end := ends(c)
	if err := crossconnect.Veth(a.pod, client, server, end); err != nil {
		return c, errors.Join(fmt.Errorf("%w: %w", nsm.ErrAborted, err), a.undo(c))
	}
	killpoint.Step("linked")
	c.Phase = nsm.Ready
	if err := a.save(c); err != nil {
		return c, errors.Join(fmt.Errorf("%w: %w", nsm.ErrAborted, err), a.undo(c))
	}
	killpoint.Step("ready")
	return c, nil
}

// endpointNamespace opens the namespace of an endpoint of this node, and prevents its inode from being reused.
func (m *Manager) endpointNamespace(spaces crossconnect.Namespaces, e nsm.Endpoint) (*crossconnect.Namespace, error) {
	if e.Namespace == 0 {
		return nil, fmt.Errorf("%w: it isn't known yet in which network namespace it is", nsm.ErrAborted)
	}
	n, err := m.open(spaces, e.Namespace)
	if err != nil {
		return nil, fmt.Errorf("%w: the endpoint's namespace: %s", nsm.ErrAborted, err)
	}
	if err := m.pin(e.Namespace, n); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// ask asks an endpoint of this node whether it accepts a connection.
func (m *Manager) ask(ctx context.Context, e nsm.Endpoint, k nsm.Key) error {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	if err := m.checkSocket(e.Socket); err != nil {
		return fmt.Errorf("%w: %s", nsm.ErrAborted, err) // the endpoint is at fault, not the request
	}
	inode, err := nsmgrpc.AskEndpoint(ctx, e.Socket, k.ID, k.Service)
	if err == nil && inode != e.Namespace {
		err = fmt.Errorf("it answers with network namespace %d, and has advertised from %d", inode, e.Namespace)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", nsm.ErrAborted, err)
	}
	return nil
}

// place chooses a name for an interface of a connection that neither the pod nor another connection in progress uses.
// The wanted end may have a name.
func place(l *nsm.Ledger, n *crossconnect.Namespace, wanted nsm.End, own nsm.Connection) (nsm.End, error) {
	taken, err := n.Names()
	if err != nil {
		return nsm.End{}, err
	}
	for _, c := range l.All() {
		if c.Key == own.Key {
			c = own
		}
		for _, end := range []nsm.End{c.Client, c.Server} {
			if end.Namespace == wanted.Namespace {
				taken[end.Name] = true
			}
		}
	}
	if own.Client.Namespace == wanted.Namespace { // the client and the endpoint may be the same pod
		taken[own.Client.Name] = true
	}
	wanted.Name, err = nsm.InterfaceName(wanted.Name, func(name string) bool { return taken[name] })
	return wanted, err
}

// allot assigns addresses to the connection that neither pod routes elsewhere.
func allot(l *nsm.Ledger, offered nsm.Interface, want nsm.ContextRequest, endpointRoutes []netip.Prefix) (nsm.Context, error) {
	offer, err := nsm.ParseOffer(offered.Parameters)
	if err != nil {
		return nsm.Context{}, err
	}
	return nsm.Allot(offer, want, append(l.Prefixes(), endpointRoutes...))
}

// ends returns the interfaces as the kernel should have them.
func ends(c nsm.Connection) (client, server crossconnect.End) {
	client = crossconnect.End{Name: c.Client.Name, Alias: c.Alias(), Address: c.Context.Client, Routes: c.Context.Routes}
	if c.Context.Endpoint.IsValid() {
		client.Gateway = c.Context.Endpoint.Addr()
	}
	server = crossconnect.End{Name: c.Server.Name, Alias: c.Alias(), Address: c.Context.Endpoint, Routes: c.Context.Additional}
	if c.Context.Client.IsValid() {
		server.Gateway = c.Context.Client.Addr()
	}
	return client, server
}

// reply returns the answer to a client.
func reply(c nsm.Connection) nsm.Reply {
	p := map[string]string{"endpoint": c.Endpoint.Name, "endpoint_host": c.Endpoint.Host, "mechanism": "veth"}
	if c.Payload != "" {
		p["payload"] = c.Payload
	}
	if c.Tunnel.VNI != 0 {
		p["mechanism"], p["vni"] = "vxlan", strconv.Itoa(int(c.Tunnel.VNI))
	}
	if c.Context.Client.IsValid() {
		p["address"], p["peer_address"] = c.Context.Client.String(), c.Context.Endpoint.String()
	}
	for name, list := range map[string][]netip.Prefix{"routes": c.Context.Routes, "additional_prefixes": c.Context.Additional} {
		var texts []string
		for _, prefix := range list {
			texts = append(texts, prefix.String())
		}
		if len(texts) > 0 {
			p[name] = strings.Join(texts, ",")
		}
	}
	return nsm.Reply{Interface: nsm.Interface{Type: nsm.Kernel, Parameters: map[string]string{nsm.ParamName: c.Client.Name}}, Parameters: p}
}
