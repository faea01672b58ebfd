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

// A registry is where managers find one another's endpoints: etcd, or the Kubernetes API.
type registry interface {
	// enter has an endpoint of this node, and its service, there as it is, for as long as this manager lives.
	enter(ctx context.Context, e nsm.Endpoint) error
	remove(ctx context.Context, e nsm.Endpoint) error
	// watch keeps what is known until the context ends.
	watch(ctx context.Context) error
	// away are nodes whose managers have gone, though their endpoints are there.
	away(ctx context.Context) map[string]bool
	close() error
}

const (
	// leaseTime is how long others know the endpoints of a manager that has gone: it may be back, with the same.
	leaseTime = time.Minute
	// registerTimeout bounds what is done for one endpoint while the registry doesn't answer.
	registerTimeout = 5 * time.Second
	// ethernet is the payload of a service for which nobody says another: the wires carry any frame.
	ethernet = "ETHERNET"
)

// known is what a registry has of all nodes.
type known struct {
	mu        sync.Mutex
	whole     bool                  // it has all
	endpoints map[string]registered // by where they are there
	payloads  map[string]string     // by service
}

type registered struct {
	nsm.Endpoint
	lease int64 // of etcd's
}

func newKnown() *known {
	return &known{endpoints: map[string]registered{}, payloads: map[string]string{}}
}

// change changes what is known.
func (k *known) change(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
}

// has reports whether an endpoint is there as it is.
func (k *known) has(at string, e nsm.Endpoint, lease int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	there, is := k.endpoints[at]
	return is && there.lease == lease && there.Address == e.Address && slices.EqualFunc(there.Interfaces, e.Interfaces, func(a, b nsm.Interface) bool {
		return a.Type == b.Type && maps.Equal(a.Parameters, b.Parameters)
	})
}

// payload is a service's; known is whether the service is there.
func (k *known) payload(service string) (payload string, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	payload, known = k.payloads[service]
	return payload, known
}

// those are the endpoints that are asked for.
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

// isWhole reports whether all has been read.
func (k *known) isWhole() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.whole
}

// offer adds an interface that a registry has of an endpoint. A type of a later version is left out.
func offer(e *nsm.Endpoint, typ string, parameters map[string]string) {
	if kind, err := nsm.ParseInterfaceType(typ); err == nil {
		e.Interfaces = append(e.Interfaces, nsm.Interface{Type: kind, Parameters: parameters})
	}
}
