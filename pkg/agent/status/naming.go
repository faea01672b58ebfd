// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"sync"

	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/gate"
)

// Naming is whether the host's name is its own, as all parts of the agent see it. Nil is of an agent whose name nobody
// questions, and so is the zero value.
type Naming struct {
	mu      sync.Mutex
	reason  string // why it isn't, "" = it is
	told    []func()
	changed chan struct{} // closed when the reason changes
}

// NotNamed is why nothing is done in the name while the agent starts.
const NotNamed = "it isn't known yet whether another host has this one's name, which takes a write to etcd"

func NewNaming() *Naming {
	return &Naming{reason: NotNamed, changed: make(chan struct{})}
}

// Subscribe returns a signal that is sent when the answer of Waits changes.
func (n *Naming) Subscribe() mailbox.Signal {
	s := mailbox.NewSignal()
	n.Notify(s.Send)
	return s
}

// Notify has a function called when the answer of Waits changes. It must not wait.
func (n *Naming) Notify(changed func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, changed)
}

// Set says why the name isn't the host's; "" = it is.
func (n *Naming) Set(reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reason == reason {
		return
	}
	n.reason = reason
	if n.changed != nil {
		close(n.changed)
	}
	n.changed = make(chan struct{})
	for _, changed := range n.told {
		changed()
	}
}

// Waits says why nothing may be done in the name; "" = everything may be.
func (n *Naming) Waits() string {
	if n == nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reason
}

// Undecided says whether a reason is that it isn't known yet whose the name is.
func Undecided(reason string) bool { return reason == NotNamed }

// wait returns nil when the name is the host's own, and a *gate.RejectedError when it is another's.
func (n *Naming) wait(ctx context.Context) error {
	for {
		n.mu.Lock()
		reason, changed := n.reason, n.changed
		n.mu.Unlock()
		if reason == "" {
			return nil
		}
		if !Undecided(reason) {
			return &gate.RejectedError{Reason: reason, Retry: true}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &gate.RejectedError{Reason: reason, Retry: true}
		}
	}
}
