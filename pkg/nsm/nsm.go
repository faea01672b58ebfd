// SPDX-License-Identifier: Apache-2.0

// Package nsm makes the decisions of a manager of network service connections: which endpoint and interface a request
// gets, which VNI and which prefixes, and whether a request is a repetition. The messages are in api/nsm.
package nsm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Every error wraps one of these reasons.
var (
	// ErrNotFound means no such service, no endpoint of it, or none with an interface that the client can use.
	ErrNotFound = errors.New("not found")
	// ErrExists means that the same request was made with other contents.
	ErrExists = errors.New("already exists")
	// ErrInvalid means that the request is invalid.
	ErrInvalid = errors.New("invalid")
	// ErrAborted means that the endpoint, its manager or the kernel failed; nothing is left of the attempt.
	ErrAborted = errors.New("aborted")
)

// A Request is a client's request. Namespace is the inode of its network namespace.
type Request struct {
	ID         string      `json:"id"`
	Service    string      `json:"service"`
	Namespace  uint64      `json:"namespace"`
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Equal reports whether two requests are the same.
func (r Request) Equal(o Request) bool {
	return r.ID == o.ID && r.Service == o.Service && r.Namespace == o.Namespace &&
		slices.EqualFunc(r.Interfaces, o.Interfaces, Interface.Equal)
}

// maxName bounds names chosen by others: they are parts of keys in etcd, and of file names.
const maxName = 200

// CheckName returns an error if a name is invalid.
func CheckName(what, name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%w: %s %.40q: it must have 1 to %d bytes", ErrInvalid, what, name, maxName)
	}
	for _, r := range name {
		if r <= ' ' || r == 0x7f || r == '\uFFFD' {
			return fmt.Errorf("%w: %s %q: it must be text without spaces", ErrInvalid, what, name)
		}
	}
	return nil
}

// maxEntries bounds lists chosen by others: processing them delays everyone else's requests.
const maxEntries = 64

func checkEntries(what string, n int) error {
	if n > maxEntries {
		return fmt.Errorf("%w: %d %s: at most %d", ErrInvalid, n, what, maxEntries)
	}
	return nil
}

// Check returns an error if a request is invalid.
func (r Request) Check() error {
	return cmp.Or(CheckName("request_id", r.ID), CheckName("network_service_name", r.Service), checkEntries("interfaces", len(r.Interfaces)))
}

// An Endpoint offers a service. Host is the node of its manager, Address that manager's address for others. Only its
// own manager knows Socket, where to ask the endpoint, and Namespace, the inode of its network namespace, 0 = not known
// yet.
type Endpoint struct {
	Service    string      `json:"service"`
	Host       string      `json:"host"`
	Name       string      `json:"name"`
	Address    string      `json:"address,omitempty"`
	Socket     string      `json:"socket,omitempty"`
	Namespace  uint64      `json:"-"` // not stored: after a restart the inode may be another's
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Check returns an error if an endpoint can't be advertised.
func (e Endpoint) Check() error {
	if err := cmp.Or(CheckName("network_service_name", e.Service), CheckName("nse_provider_name", e.Name), checkEntries("interfaces", len(e.Interfaces))); err != nil {
		return err
	}
	for _, i := range e.Interfaces {
		if _, err := ParseOffer(i.Parameters); err != nil {
			return err
		}
	}
	return nil
}

// Same reports whether two are the same endpoint, whatever they offer.
func (e Endpoint) Same(o Endpoint) bool {
	return e.Service == o.Service && e.Host == o.Host && e.Name == o.Name
}

// An Interface is wanted by a client or offered by an endpoint. A Preference of 0 means none; 1 comes first.
type Interface struct {
	Type       InterfaceType     `json:"type"`
	Preference int               `json:"preference,omitempty"`
	Parameters map[string]string `json:"parameters,omitempty"`
}

// Equal reports whether two interfaces are the same.
func (i Interface) Equal(o Interface) bool {
	return i.Type == o.Type && i.Preference == o.Preference && maps.Equal(i.Parameters, o.Parameters)
}

// Context has the addresses of a connection: the client's and the endpoint's with the length of their subnet, the
// routes that the client sends there, and its additional prefixes. The zero value is a connection without addresses.
type Context struct {
	Client     netip.Prefix   `json:"client,omitzero"`
	Endpoint   netip.Prefix   `json:"endpoint,omitzero"`
	Routes     []netip.Prefix `json:"routes,omitempty"`
	Additional []netip.Prefix `json:"additional,omitempty"`
}

// Tunnel is one end of a VXLAN tunnel.
type Tunnel struct {
	VNI    uint32     `json:"vni"`
	Local  netip.Addr `json:"local"`
	Remote netip.Addr `json:"remote"`
	Port   uint16     `json:"port"` // of both ends
}
