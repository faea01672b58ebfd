// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
)

const (
	// auditInterval is how often the manager looks for what has gone; every auditsOfLinks-th time it checks each link.
	auditInterval = 10 * time.Second
	auditsOfLinks = 6
	// silentLooks is the number of checks without a listener at its socket after which an endpoint counts as gone.
	silentLooks  = 2
	closeTimeout = 5 * time.Second
	// graceOfLists is the age from which a connection is ended, or connected anew, if another manager's list lacks it.
	graceOfLists = time.Minute
	// forgetAfter is how long a requestor may be silent before its connections are ended: by then its node is gone.
	forgetAfter = time.Hour
	// quietAfter is how long a node must have been silent, while its manager isn't reachable and its endpoints aren't
	// in the registry any more, until its clients get other endpoints. Packets are checked once a minute.
	quietAfter = 3 * time.Minute
)

// recover undoes what was under way when the manager died, before it serves any request.
func (m *Manager) recover(ctx context.Context) error {
	for _, c := range m.all() {
		m.hear(other(c))
		if c.Phase == nsm.Closing || c.Phase == nsm.Ready && m.resume(c) {
			continue
		}
		if c.Phase == nsm.Waiting && m.resume(nsm.Connection{Key: c.Key, Client: nsm.End{Namespace: c.Client.Namespace}}) {
			continue
		}
		if err := m.end(ctx, c); err != nil {
			m.Logger.Warn("what was under way is not undone: it is tried again", "service", c.Key.Service, "request", c.Key.ID, "error", err)
		}
	}
	return ctx.Err()
}

// resume pins the namespaces of a connection that existed when the manager ended. If a link is missing, the namespace
// may be another one that has reused the inode: nothing is made in it.
func (m *Manager) resume(c nsm.Connection) bool {
	spaces, err := crossconnect.Scan()
	if err != nil {
		return true // the audits will notice
	}
	for _, end := range []nsm.End{c.Client, c.Server} {
		if end.Namespace == 0 {
			continue
		}
		n, err := spaces.Open(end.Namespace)
		if err != nil {
			return end == c.Server && c.Key.Peer == "" // the client gets another endpoint
		}
		has, err := n.Has(end.Name, c.Alias())
		if err == nil && (has || end.Name == "") {
			err = m.pin(end.Namespace, n)
		}
		n.Close()
		if err != nil || !has && end.Name != "" {
			return false
		}
	}
	return true
}

func (m *Manager) all() []nsm.Connection {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger.All()
}

func (m *Manager) audits(ctx context.Context) error {
	n := -1
	return reconcile.New(reconcile.Timing{Every: auditInterval}, func(ctx context.Context) (time.Duration, error) {
		n++
		m.audit(ctx, n%auditsOfLinks == 0)
		return 0, nil
	}).Run(ctx)
}

// audit checks everything once.
func (m *Manager) audit(ctx context.Context, links bool) {
	m.Health.Turn()
	m.lookAtEndpoints(ctx)
	m.withdraw(ctx)
	m.list("rules that keep strangers from tunnels", m.guard())
	began := m.now().Unix()
	spaces, err := crossconnect.Scan()
	m.list("network namespaces", err)
	if err != nil {
		return
	}
	for _, c := range m.all() {
		m.Health.Turn()     // each may take its time
		if c.Made < began { // spaces may lack the pod of a newer one
			m.look(ctx, c.Key, began, spaces, links)
		}
	}
	m.unpinIdle()
	m.askPeers(ctx)
}

// unpinIdle releases the namespaces of no connection.
func (m *Manager) unpinIdle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := map[uint64]bool{}
	for _, e := range m.endpoints {
		used[e.Namespace] = true
	}
	for _, c := range m.ledger.All() {
		used[c.Client.Namespace], used[c.Server.Namespace] = true, true
	}
	for inode, file := range m.pins {
		if !used[inode] && len(m.busy) == 0 { // an attempt under way will record its namespace later
			_ = file.Close()
			delete(m.pins, inode)
		}
	}
}

// look checks one connection.
func (m *Manager) look(ctx context.Context, k nsm.Key, began int64, spaces crossconnect.Namespaces, links bool) {
	release, ok := m.tryHold(k)
	if !ok {
		return // the current holder knows better
	}
	defer release()
	c, known := m.get(k)
	if !known || ctx.Err() != nil || c.Made >= began {
		return
	}
	if err := m.mend(ctx, c, spaces, links); ctx.Err() == nil {
		m.list(about(k), err)
	}
}

// about returns the name of a connection in lists.
func about(k nsm.Key) string {
	if k.Peer != "" {
		return fmt.Sprintf("request %s of manager %s for %s", k.ID, k.Peer, k.Service)
	}
	return fmt.Sprintf("request %s for %s", k.ID, k.Service)
}

func (m *Manager) mend(ctx context.Context, c nsm.Connection, spaces crossconnect.Namespaces, links bool) error {
	gone := func(e nsm.End) bool { return e.Namespace != 0 && spaces[e.Namespace] == "" }
	switch {
	case c.Phase == nsm.Pending || c.Phase == nsm.Closing || gone(c.Client):
		return m.end(ctx, c)
	case c.Key.Peer != "" && (gone(c.Server) || m.silence(c.Key.Peer) > forgetAfter):
		m.Logger.Info("ended: the endpoint has gone, or its client's manager", "service", c.Key.Service, "request", c.Key.ID)
		return m.undo(c)
	case c.Phase == nsm.Waiting:
		_, err := m.again(ctx, c)
		return err
	case gone(c.Server):
		return m.lose(ctx, c)
	case links:
		return m.relink(c, spaces)
	}
	return nil
}

// tryHold is hold without waiting.
func (m *Manager) tryHold(k nsm.Key) (release func(), ok bool) {
	m.mu.Lock()
	_, taken := m.busy[k]
	m.mu.Unlock()
	if taken {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	release, err := m.hold(ctx, k)
	return release, err == nil
}

// lose removes the link of a connection whose endpoint has gone, and looks for another endpoint.
func (m *Manager) lose(ctx context.Context, c nsm.Connection) error {
	m.Logger.Info("the endpoint has gone", "service", c.Key.Service, "request", c.Key.ID, "endpoint", c.Endpoint.Name, "host", c.Endpoint.Host)
	if err := m.unlink(c); err != nil {
		return err
	}
	c.Phase, c.Server, c.Tunnel, c.Context, c.Window = nsm.Waiting, nsm.End{}, nsm.Tunnel{}, nsm.Context{}, nsm.VNIs{}
	if err := m.save(c); err != nil {
		return err
	}
	_, err := m.again(ctx, c)
	return err
}

// again connects a client whose endpoint has gone to another one.
func (m *Manager) again(ctx context.Context, waiting nsm.Connection) (nsm.Connection, error) {
	c, err := m.connect(ctx, waiting.Request, waiting.Client.Name)
	if err != nil {
		if now, known := m.get(waiting.Key); known && now.Phase == nsm.Closing {
			return c, err // the other side of the attempt must be told first
		}
		return c, errors.Join(err, m.save(waiting))
	}
	m.Logger.Info("connected to another endpoint", "service", c.Key.Service, "request", c.Key.ID, "endpoint", c.Endpoint.Name, "host", c.Endpoint.Host)
	return c, nil
}

// relink recreates the links of a connection if one is missing.
func (m *Manager) relink(c nsm.Connection, spaces crossconnect.Namespaces) error {
	var open [2]*crossconnect.Namespace
	whole := true
	for i, end := range []nsm.End{c.Client, c.Server} {
		if end.Namespace == 0 {
			continue
		}
		n, err := spaces.Open(end.Namespace)
		if err != nil {
			return err
		}
		defer n.Close()
		has, err := n.Has(end.Name, c.Alias())
		if err != nil {
			return err
		}
		open[i], whole = n, whole && has
		if c.Tunnel.VNI != 0 && has {
			if err := m.hearPackets(c, n, end.Name); err != nil {
				return err
			}
		}
	}
	if whole {
		return nil
	}
	m.Logger.Warn("a link was missing: it is made again", "service", c.Key.Service, "request", c.Key.ID)
	if err := m.unlink(c); err != nil {
		return err
	}
	client, server := ends(c)
	switch {
	case c.Tunnel.VNI == 0:
		return crossconnect.Veth(open[0], client, open[1], server)
	case c.Key.Peer != "":
		return m.link(open[1], server, c.Tunnel)
	}
	return m.link(open[0], client, c.Tunnel)
}

// other returns the node of a connection's other end.
func other(c nsm.Connection) string { return cmp.Or(c.Key.Peer, c.Endpoint.Host) }

// hearPackets counts packets from another node as a sign of life: the protocol has no other for a client's manager.
func (m *Manager) hearPackets(c nsm.Connection, n *crossconnect.Namespace, name string) error {
	packets, err := n.Received(name)
	m.mu.Lock()
	before := m.received[c.Key]
	m.received[c.Key] = packets
	m.mu.Unlock()
	if err == nil && packets != before {
		m.hear(other(c))
	}
	return err
}

// askPeers tells every manager with endpoints of our connections which these are, and learns which ones it has.
func (m *Manager) askPeers(ctx context.Context) {
	byAddress := map[string][]nsm.Connection{}
	for _, c := range m.all() {
		if c.Key.Peer == "" && c.Endpoint.Host != m.cfg.Node && c.Phase != nsm.Waiting {
			byAddress[c.Endpoint.Address] = append(byAddress[c.Endpoint.Address], c)
		}
	}
	before := m.unreached
	m.unreached = map[string]bool{}
	for address, list := range byAddress {
		about := "manager " + list[0].Endpoint.Host + " at " + address
		if err := m.askPeer(ctx, list); ctx.Err() == nil {
			m.list(about, err)
			m.unreached[about] = err != nil
		}
	}
	for about := range before {
		if !m.unreached[about] { // there is no connection with it any more
			m.list(about, nil)
		}
	}
}

func (m *Manager) askPeer(ctx context.Context, list []nsm.Connection) error {
	var held []nsm.Key
	for _, c := range list {
		held = append(held, c.Key)
	}
	call, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	has, err := m.peer(list[0].Endpoint).Held(call, m.cfg.Node, held)
	var errs error
	switch {
	case errors.Is(err, nsmgrpc.ErrUnknownCall): // the registry says what it has
		has = m.listed(ctx, list)
	case errors.Is(err, nsmgrpc.ErrUnreachable) && m.silence(list[0].Endpoint.Host) > quietAfter:
		errs = err
		for _, c := range list { // a connection that may still work is better than none
			if len(m.listed(ctx, []nsm.Connection{c})) > 0 || len(m.offered(ctx, c.Key.Service)) == 0 {
				has = append(has, c.Key)
			}
		}
	case err != nil:
		return err
	default:
		m.hear(list[0].Endpoint.Host)
	}
	for _, c := range list {
		if c.Phase != nsm.Ready || slices.Contains(has, c.Key) {
			continue
		}
		if release, ok := m.tryHold(c.Key); ok {
			if now, known := m.get(c.Key); known && now.Phase == nsm.Ready && now.Made == c.Made {
				if err := m.lose(ctx, now); err != nil {
					errs = errors.Join(errs, fmt.Errorf("request %s for %s: %w", c.Key.ID, c.Key.Service, err))
				}
			}
			release()
		}
	}
	return errs
}

// silence returns how long nothing has been received from a node.
func (m *Manager) silence(node string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now().Sub(m.heard[node])
}
