// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Key identifies a request. Peer is the other manager if the client is there: two clients may use the same ID.
type Key struct {
	ID      string `json:"id"`
	Service string `json:"service"`
	Peer    string `json:"peer,omitempty"`
}

// Compare orders keys.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Service, o.Service), cmp.Compare(k.ID, o.ID), cmp.Compare(k.Peer, o.Peer))
}

// Phase is the progress of a connection.
type Phase string

const (
	// Pending is stored before the first change: a connection found in this phase after a crash is undone.
	Pending Phase = "pending"
	// Ready is stored once the links exist.
	Ready Phase = "ready"
	// Waiting has lost its endpoint, and gets another when one is available.
	Waiting Phase = "waiting"
	// Closing has no links here, but the other manager has not been told yet.
	Closing Phase = "closing"
)

// An End is an interface in a pod. The zero value means that there is none on this node.
type End struct {
	Namespace uint64 `json:"namespace"`
	Name      string `json:"name"`
}

// A Connection is everything that a manager stores about a connection.
type Connection struct {
	Key      Key      `json:"key"`
	Phase    Phase    `json:"phase"`
	Request  Request  `json:"request"` // of the client; another manager's request is in Remote
	Remote   string   `json:"remote"`  // another manager's request, to detect a changed one
	Endpoint Endpoint `json:"endpoint"`
	Client   End      `json:"client,omitzero"`
	Server   End      `json:"server,omitzero"` // the endpoint's
	Context  Context  `json:"context"`
	Payload  string   `json:"payload,omitempty"` // of the service
	Tunnel   Tunnel   `json:"tunnel,omitzero"`
	Window   VNIs     `json:"window,omitzero"` // from which another manager may choose
	Made     int64    `json:"made"`            // Unix seconds
}

// UnmarshalJSON also reads the format of former versions, in which the peer was not part of the key.
func (c *Connection) UnmarshalJSON(data []byte) error {
	type plain Connection
	var former struct {
		Key       struct{ Remote bool }
		Requestor string
	}
	if err := errors.Join(json.Unmarshal(data, (*plain)(c)), json.Unmarshal(data, &former)); err != nil {
		return err
	}
	if former.Key.Remote {
		c.Key.Peer = cmp.Or(former.Requestor, c.Tunnel.Remote.String())
	}
	return nil
}

// Alias returns the alias of the links of a connection.
func (c Connection) Alias() string {
	return fmt.Sprintf("calico nsm %.100s %.100s", c.Key.Service, c.Key.ID)
}

// Ledger is a manager's set of connections.
type Ledger struct{ connections map[Key]Connection }

// Get returns a connection.
func (l *Ledger) Get(k Key) (Connection, bool) {
	c, ok := l.connections[k]
	return c, ok
}

// Put adds or replaces a connection.
func (l *Ledger) Put(c Connection) {
	if l.connections == nil {
		l.connections = map[Key]Connection{}
	}
	l.connections[c.Key] = c
}

// Delete removes a connection.
func (l *Ledger) Delete(k Key) { delete(l.connections, k) }

// All returns the connections sorted by key.
func (l *Ledger) All() []Connection {
	list := make([]Connection, 0, len(l.connections))
	for _, c := range l.connections {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Connection) int { return a.Key.Compare(b.Key) })
	return list
}

// Known returns the connection of an earlier identical request, if any. It rejects a changed request; then the error
// wraps ErrExists.
func (l *Ledger) Known(r Request) (c Connection, known bool, err error) {
	c, known = l.connections[Key{ID: r.ID, Service: r.Service}]
	if known && !c.Request.Equal(r) {
		return c, true, fmt.Errorf("%w: request %s for network service %q was made before with another namespace or other interfaces: use another request_id", ErrExists, r.ID, r.Service)
	}
	return c, known, nil
}

// VNIs returns those that this node uses or has left for others to choose from. A VXLAN device's VNI is unique on a
// node, whatever the other end (drivers/net/vxlan/vxlan_core.c, vxlan_vni_in_use).
func (l *Ledger) VNIs() []VNIs {
	var list []VNIs
	for _, c := range l.connections {
		if c.Tunnel.VNI != 0 {
			list = append(list, VNIs{c.Tunnel.VNI, 1})
		}
		if c.Window.Count != 0 {
			list = append(list, c.Window)
		}
	}
	return list
}

// Prefixes returns the prefixes of connections to this node's endpoints.
func (l *Ledger) Prefixes() []netip.Prefix {
	var list []netip.Prefix
	for _, c := range l.connections {
		if c.Server.Namespace != 0 {
			list = append(list, c.Context.Prefixes()...)
		}
	}
	return list
}
