// SPDX-License-Identifier: Apache-2.0

// Package nsm decides what a manager of network service connections does: which endpoint and interface a request gets,
// which VNI and which prefixes, and what is asked twice. The messages are in api/nsm.
package nsm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Why a request is refused is in the chain of each error.
var (
	// ErrNotFound: no such service, no endpoint of it, or none with an interface that the client can use.
	ErrNotFound = errors.New("not found")
	// ErrExists: the same request was made with other contents.
	ErrExists = errors.New("already exists")
	// ErrInvalid: the request makes no sense.
	ErrInvalid = errors.New("invalid")
	// ErrAborted: the endpoint, its manager or the kernel failed; nothing is left of the attempt.
	ErrAborted = errors.New("aborted")
)

// A Request is what a client asks for. Namespace is the inode of its network namespace.
type Request struct {
	ID         string      `json:"id"`
	Service    string      `json:"service"`
	Namespace  uint64      `json:"namespace"`
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Equal says whether two requests ask for the same.
func (r Request) Equal(o Request) bool {
	return r.ID == o.ID && r.Service == o.Service && r.Namespace == o.Namespace &&
		slices.EqualFunc(r.Interfaces, o.Interfaces, Interface.Equal)
}

// maxName bounds names that others choose: they are parts of keys in etcd, and of file names.
const maxName = 200

// CheckName returns why a name can't be one.
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

// maxEntries bounds the lists that others choose. What goes through them holds up all others' requests.
const maxEntries = 64

func checkEntries(what string, n int) error {
	if n > maxEntries {
		return fmt.Errorf("%w: %d %s: at most %d", ErrInvalid, n, what, maxEntries)
	}
	return nil
}

// Check returns why a request makes no sense.
func (r Request) Check() error {
	return cmp.Or(CheckName("request_id", r.ID), CheckName("network_service_name", r.Service), checkEntries("interfaces", len(r.Interfaces)))
}

// An Endpoint offers a service. Host is the node of its manager, Address where that manager is reached by others. Its own manager
// alone knows Socket, where the endpoint is asked, and Namespace, the inode of its network namespace, 0 = not known yet.
type Endpoint struct {
	Service    string      `json:"service"`
	Host       string      `json:"host"`
	Name       string      `json:"name"`
	Address    string      `json:"address,omitempty"`
	Socket     string      `json:"socket,omitempty"`
	Namespace  uint64      `json:"-"` // of a former run it may be another's
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Check returns why an endpoint can't be advertised.
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

// Same says whether two are the same endpoint, whatever they offer.
func (e Endpoint) Same(o Endpoint) bool {
	return e.Service == o.Service && e.Host == o.Host && e.Name == o.Name
}

// An Interface is one that a client wants or an endpoint offers. A preference of 0 is none, 1 comes first.
type Interface struct {
	Type       InterfaceType     `json:"type"`
	Preference int               `json:"preference,omitempty"`
	Parameters map[string]string `json:"parameters,omitempty"`
}

// Equal says whether both are the same.
func (i Interface) Equal(o Interface) bool {
	return i.Type == o.Type && i.Preference == o.Preference && maps.Equal(i.Parameters, o.Parameters)
}

// Context is what a connection has of addresses: the client's and the endpoint's with the length of their subnet, what
// the client sends there, and what it has besides. The zero value is a connection without addresses.
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
