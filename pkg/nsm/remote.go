// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// A Reply is the answer to a client: its interface, and details of the connection.
type Reply struct {
	Interface  Interface
	Parameters map[string]string
}

// A RemoteRequest asks another manager for a connection to one of its endpoints. Requestor is the asking manager: its
// node, or its address if it names none.
type RemoteRequest struct {
	ID, Service, Endpoint, Requestor string
	VXLAN                            []VXLANOffer // by descending priority
	Others                           []string     // other mechanisms that the requestor supports
	Context                          ContextRequest
}

// VXLANOffer is what the asking node supports: its address and port, and the VNIs that it can't use.
type VXLANOffer struct {
	IP       netip.Addr
	Port     uint16
	Excluded []VNIs
}

// IsNode reports whether a node can have the address.
func IsNode(a netip.Addr) bool { return a.IsGlobalUnicast() || a.IsLinkLocalUnicast() }

// A RemoteReply is the choice of a manager that accepts.
type RemoteReply struct {
	Tunnel  Tunnel // as seen by the answering node: Remote is the requestor's address
	Context Context
}

// Check returns an error if a request is invalid.
func (r RemoteRequest) Check() error {
	return cmp.Or(Request{ID: r.ID, Service: r.Service}.Check(), r.Context.Check(), checkEntries("mechanisms", len(r.VXLAN)+len(r.Others)))
}

// Text returns the contents of a request, to detect a changed one. Excluded VNIs may change.
func (r RemoteRequest) Text() string {
	text := fmt.Sprintf("%q %v %v", r.Endpoint, r.Others, r.Context)
	for _, o := range r.VXLAN {
		text += fmt.Sprintf(" vxlan %v %d", o.IP, o.Port)
	}
	return text
}

// Answer chooses the mechanism and the VNI: the first offer that this node can use, and the lowest VNI that neither
// side excludes. The error wraps ErrAborted.
func (l *Ledger) Answer(r RemoteRequest, local netip.Addr) (Tunnel, error) {
	last := error(nil)
	for _, o := range r.VXLAN {
		if o.IP.Is4() != local.Is4() || o.Port == 0 || !IsNode(o.IP) || o.IP == local {
			last = fmt.Errorf("%w: VXLAN between %v (port %d) and this node's address %v can't be", ErrAborted, o.IP, o.Port, local)
			continue
		}
		vni, err := LowestVNI(o.Excluded, l.VNIs())
		if err == nil {
			return Tunnel{VNI: vni, Local: local, Remote: o.IP, Port: o.Port}, nil
		}
		last = err
	}
	if last == nil {
		last = fmt.Errorf("%w: no remote mechanism of %v is built here, only VXLAN is", ErrAborted, r.Others)
	}
	return Tunnel{}, last
}

// Lost returns the connections of a peer that it no longer holds, except those made at or after a time: the list may be
// older.
func (l *Ledger) Lost(peer string, held []Key, before int64) []Connection {
	var lost []Connection
	for _, c := range l.All() {
		if c.Key.Peer == peer && c.Made < before && !slices.Contains(held, Key{ID: c.Key.ID, Service: c.Key.Service}) {
			lost = append(lost, c)
		}
	}
	return lost
}
