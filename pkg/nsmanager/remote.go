// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/nft/guard"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
)

// guard blocks strangers from all tunnels.
func (m *Manager) guard() error {
	m.guarding.Lock()
	defer m.guarding.Unlock()
	var tunnels []guard.Tunnel
	for _, c := range m.all() {
		if c.Tunnel.VNI != 0 {
			tunnels = append(tunnels, guard.Tunnel{Remote: c.Tunnel.Remote, Port: c.Tunnel.Port, VNI: c.Tunnel.VNI})
		}
	}
	return guard.Apply(tunnels)
}

// link makes the device of a tunnel in the ledger.
func (m *Manager) link(n *crossconnect.Namespace, end crossconnect.End, t nsm.Tunnel) error {
	if err := m.guard(); err != nil {
		return err
	}
	return crossconnect.VXLAN(n, end, crossconnect.Tunnel(t))
}

// remote makes a connection with the manager of another node.
func (a attempt) remote(ctx context.Context, c nsm.Connection) (nsm.Connection, error) {
	err := a.reserve(&c, func(l *nsm.Ledger) (err error) {
		if c.Client, err = place(l, a.pod, nsm.End{Namespace: a.request.Namespace, Name: a.name}, c); err == nil {
			c.Window, err = nsm.Window(a.seed(), l.VNIs())
		}
		return err
	})
	if err != nil {
		return c, errors.Join(err, a.forget(c.Key))
	}
	killpoint.Step("remote reserved")
	if c, err = a.negotiate(ctx, c); err != nil {
		if errors.Is(err, nsmgrpc.ErrNeverReached) { // the other manager has nothing
			return c, errors.Join(err, a.undo(c))
		}
		if !errors.Is(err, nsmgrpc.ErrRefused) { // it may have an earlier one
			err = fmt.Errorf("%w: %w", nsm.ErrAborted, err)
		}
		return c, errors.Join(err, a.endSoon(ctx, c))
	}
	killpoint.Step("remote agreed")
	client, _ := ends(c)
	if err = a.link(a.pod, client, c.Tunnel); err == nil {
		killpoint.Step("remote linked")
		c.Phase = nsm.Ready
		err = a.save(c)
	}
	if err != nil {
		return c, errors.Join(fmt.Errorf("%w: %w", nsm.ErrAborted, err), a.endSoon(ctx, c))
	}
	killpoint.Step("remote ready")
	return c, nil
}

// negotiate asks the other manager, and stores what it has chosen.
func (a attempt) negotiate(ctx context.Context, c nsm.Connection) (nsm.Connection, error) {
	call, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	answer, err := a.peer(c.Endpoint).Request(call, nsm.RemoteRequest{
		ID: c.Key.ID, Service: c.Key.Service, Endpoint: c.Endpoint.Name, Requestor: a.cfg.Node, Context: a.context,
		VXLAN: []nsm.VXLANOffer{{IP: a.cfg.Address, Port: a.cfg.VXLANPort, Excluded: c.Window.Outside()}},
	})
	if err != nil {
		return c, err
	}
	c.Tunnel, c.Context = answer.Tunnel, answer.Context
	switch t := c.Tunnel; {
	case !c.Window.Has(t.VNI) || t.Local != a.cfg.Address || t.Port != a.cfg.VXLANPort || t.Remote == t.Local:
		c.Tunnel.Local = a.cfg.Address
		return c, fmt.Errorf("the other manager has chosen what was not offered: VNI %d, address %v, port %d", t.VNI, t.Local, t.Port)
	case a.context.Addressed && !c.Context.Client.IsValid():
		return c, errors.New("the other manager has given no address")
	}
	for _, p := range append(slices.Clone(c.Context.Routes), c.Context.Prefixes()...) {
		if slices.ContainsFunc(a.context.Excluded, p.Overlaps) && p.Bits() != 0 {
			return c, fmt.Errorf("the other manager has chosen %v, which was excluded", p)
		}
	}
	c.Context.Routes = slices.DeleteFunc(c.Context.Routes, func(p netip.Prefix) bool { return nsm.IsDefault(p) && !a.context.DefaultRoute })
	c.Window = nsm.VNIs{}
	return c, a.save(c)
}

// Accept makes this side of a connection for another manager's client.
func (m *Manager) Accept(ctx context.Context, r nsm.RemoteRequest) (_ nsm.RemoteReply, err error) {
	defer func() { m.asked("manager", err) }()
	key := nsm.Key{ID: r.ID, Service: r.Service, Peer: r.Requestor}
	release, err := m.hold(ctx, key)
	if err != nil {
		return nsm.RemoteReply{}, err
	}
	defer release()
	m.hear(r.Requestor)
	if c, known := m.get(key); known {
		if c.Phase == nsm.Ready && (c.Remote != r.Text() || excludes(r, c.Tunnel.VNI)) {
			return nsm.RemoteReply{}, fmt.Errorf("%w: request %s for network service %q was made before with other contents, or excludes its VNI %d now: close it first", nsm.ErrExists, r.ID, r.Service, c.Tunnel.VNI)
		}
		if c.Phase == nsm.Ready {
			return nsm.RemoteReply{Tunnel: c.Tunnel, Context: c.Context}, nil
		}
		if err := m.undo(c); err != nil {
			return nsm.RemoteReply{}, err
		}
	}
	endpoint, offered, err := m.find(r)
	if err != nil {
		return nsm.RemoteReply{}, err
	}
	c := nsm.Connection{
		Key: key, Phase: nsm.Pending, Remote: r.Text(), Endpoint: endpoint, Made: m.now().Unix(),
	}
	spaces, err := crossconnect.Scan()
	if err != nil {
		return nsm.RemoteReply{}, err
	}
	server, err := m.endpointNamespace(spaces, endpoint)
	if err != nil {
		return nsm.RemoteReply{}, err
	}
	defer server.Close()
	taken, err := server.Routes()
	if err != nil {
		return nsm.RemoteReply{}, err
	}
	err = m.reserve(&c, func(l *nsm.Ledger) (err error) {
		if c.Tunnel, err = l.Answer(r, m.cfg.Address); err == nil {
			c.Server, err = place(l, server, nsm.End{Namespace: endpoint.Namespace}, c)
		}
		if err == nil {
			c.Context, err = allot(l, offered, r.Context, taken)
		}
		return err
	})
	if err == nil {
		err = m.ask(ctx, endpoint, key)
	}
	if err != nil {
		return nsm.RemoteReply{}, errors.Join(err, m.forget(key))
	}
	killpoint.Step("accept reserved")
	_, end := ends(c)
	if err := m.link(server, end, c.Tunnel); err != nil {
		return nsm.RemoteReply{}, errors.Join(fmt.Errorf("%w: %w", nsm.ErrAborted, err), m.undo(c))
	}
	killpoint.Step("accept linked")
	c.Phase = nsm.Ready
	if err := cmp.Or(m.save(c), ctx.Err()); err != nil {
		return nsm.RemoteReply{}, errors.Join(fmt.Errorf("%w: %w", nsm.ErrAborted, err), m.undo(c))
	}
	killpoint.Step("accept ready")
	m.Logger.Info("accepted", "service", r.Service, "request", r.ID, "requestor", r.Requestor, "endpoint", endpoint.Name, "vni", c.Tunnel.VNI)
	return nsm.RemoteReply{Tunnel: c.Tunnel, Context: c.Context}, nil
}

// excludes reports whether every offer of the request excludes the VNI.
func excludes(r nsm.RemoteRequest, vni uint32) bool {
	return !slices.ContainsFunc(r.VXLAN, func(o nsm.VXLANOffer) bool {
		return !slices.ContainsFunc(o.Excluded, func(x nsm.VNIs) bool { return x.Has(vni) })
	})
}

// End ends this side of a connection of another manager's client.
func (m *Manager) End(ctx context.Context, k nsm.Key) error {
	release, err := m.hold(ctx, k)
	if err != nil {
		return err
	}
	defer release()
	if c, known := m.get(k); known {
		m.Logger.Info("closed by the client's manager", "service", k.Service, "request", k.ID, "requestor", k.Peer)
		return m.undo(c)
	}
	return nil
}

// Held returns a peer's connections here.
func (m *Manager) Held(peer string) []nsm.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []nsm.Key
	for _, c := range m.ledger.All() {
		if c.Key.Peer == peer && c.Phase == nsm.Ready {
			keys = append(keys, nsm.Key{ID: c.Key.ID, Service: c.Key.Service})
		}
	}
	return keys
}

// Lost ends the connections of a peer that it doesn't hold any more.
func (m *Manager) Lost(ctx context.Context, peer string, held []nsm.Key) {
	m.hear(peer)
	m.mu.Lock()
	lost := m.ledger.Lost(peer, held, m.now().Add(-graceOfLists).Unix())
	m.mu.Unlock()
	for _, c := range lost {
		if err := m.End(ctx, c.Key); err != nil {
			m.Logger.Warn("a connection that its client's manager has lost can't be ended: it is tried again", "service", c.Key.Service, "request", c.Key.ID, "error", err)
		}
	}
}

func (m *Manager) hear(peer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard[peer] = m.now()
}

// end ends a connection of a client of this node, on both sides. It stays in phase Closing until the other side has
// been told.
func (m *Manager) end(ctx context.Context, c nsm.Connection) error {
	if err := m.unlink(c); err != nil {
		return err
	}
	if c.Endpoint.Host == m.cfg.Node || c.Key.Peer != "" || c.Phase == nsm.Waiting {
		return m.forget(c.Key)
	}
	if c.Phase != nsm.Closing {
		c.Phase = nsm.Closing
		if err := m.save(c); err != nil {
			return err
		}
		killpoint.Step("closing")
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	err := m.peer(c.Endpoint).Close(ctx, m.cfg.Node, c.Key)
	switch {
	case errors.Is(err, nsmgrpc.ErrUnreachable) && !m.isOffered(ctx, c.Endpoint.Address):
		m.Logger.Warn("a connection is forgotten whose other manager is gone, with all of its endpoints", "service", c.Key.Service, "request", c.Key.ID, "address", c.Endpoint.Address)
	case errors.Is(err, nsmgrpc.ErrUnknownCall) || errors.Is(err, nsm.ErrNotFound): // it doesn't know the call, or has nothing
	case err != nil:
		return err
	}
	return m.forget(c.Key)
}

// endSoon ends a failed connection even if the client has gone; if the other side can't be told now, it is told later.
func (m *Manager) endSoon(ctx context.Context, c nsm.Connection) error {
	if err := m.end(context.WithoutCancel(ctx), c); err != nil {
		return fmt.Errorf("the other side is told later: %w", err)
	}
	return nil
}
