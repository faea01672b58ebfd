// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/nsm"
)

// A registry is where managers find each other's endpoints: etcd, or the Kubernetes API.
type registry interface {
	// enter adds or updates an endpoint of this node, and its service, for as long as this manager lives.
	enter(ctx context.Context, e nsm.Endpoint) error
	remove(ctx context.Context, e nsm.Endpoint) error
	// watch keeps the content of known up to date until the context ends.
	watch(ctx context.Context) error
	// away returns nodes whose managers have gone, although their endpoints are registered.
	away(ctx context.Context) map[string]bool
	close() error
}

const (
	// leaseTime is how long the endpoints of a manager that has gone stay registered: it may come back with the same
	// ones.
	leaseTime = time.Minute
	// registerTimeout bounds the work for one endpoint while the registry doesn't answer.
	registerTimeout = 5 * time.Second
	// ethernet is the payload of a service if none is given: the wires carry any frame.
	ethernet = "ETHERNET"
)

// known is the registry's content for all nodes.
type known struct {
	mu        sync.Mutex
	whole     bool                  // everything has been read
	endpoints map[string]registered // by their place in the registry
	payloads  map[string]string     // by service
}

type registered struct {
	nsm.Endpoint
	lease int64 // in etcd
}

func newKnown() *known {
	return &known{endpoints: map[string]registered{}, payloads: map[string]string{}}
}

// change modifies the content while holding the lock.
func (k *known) change(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
}

// has reports whether an endpoint is registered as it is.
func (k *known) has(at string, e nsm.Endpoint, lease int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	there, is := k.endpoints[at]
	return is && there.lease == lease && there.Address == e.Address && slices.EqualFunc(there.Interfaces, e.Interfaces, func(a, b nsm.Interface) bool {
		return a.Type == b.Type && maps.Equal(a.Parameters, b.Parameters)
	})
}

// payload returns a service's payload. known reports whether the service exists.
func (k *known) payload(service string) (payload string, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	payload, known = k.payloads[service]
	return payload, known
}

// those returns the endpoints that want selects.
func (k *known) those(want func(nsm.Endpoint) bool) (list []nsm.Endpoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.endpoints {
		if want(e.Endpoint) {
			list = append(list, e.Endpoint)
		}
	}
	return list
}

// isWhole reports whether everything has been read.
func (k *known) isWhole() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.whole
}

// offer adds an interface from a registry to an endpoint. It drops a type of a later version.
func offer(e *nsm.Endpoint, typ string, parameters map[string]string) {
	if kind, err := nsm.ParseInterfaceType(typ); err == nil {
		e.Interfaces = append(e.Interfaces, nsm.Interface{Type: kind, Parameters: parameters})
	}
}
