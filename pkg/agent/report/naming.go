// SPDX-License-Identifier: Apache-2.0

package report

import (
	"sync"

	"github.com/calico-go/calico/pkg/daemon/mailbox"
)

// Naming is whether the host's name is its own, as all parts of the agent see it. The
// zero value is of an agent whose name nobody questions; nil is, too.
type Naming struct {
	// ForLoop and ForRouter receive when that changes.
	ForLoop, ForRouter mailbox.Signal
	forReport          mailbox.Signal

	mu      sync.Mutex
	reason  string // why it isn't, "" = it is
	decided chan struct{}
}

// Why nothing is done in the name for a moment.
const (
	NotNamed         = "it isn't known yet whether another host has this one's name, which takes a write to etcd"
	ClaimedByAnother = "another host says that this one's name is its own: it is told otherwise"
)

func newNaming() *Naming {
	return &Naming{
		ForLoop: mailbox.NewSignal(), ForRouter: mailbox.NewSignal(), forReport: mailbox.NewSignal(),
		decided: make(chan struct{}),
	}
}

// Set says why the name isn't the host's; "" = it is.
func (n *Naming) Set(reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reason == reason {
		return
	}
	n.reason = reason
	close(n.decided)
	n.decided = make(chan struct{})
	n.ForLoop.Send()
	n.ForRouter.Send()
	n.forReport.Send()
}

// Waits says why nothing may be done in the name; "" = nothing is in the way.
func (n *Naming) Waits() string {
	if n == nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reason
}

// Undecided says whether that is being found out, rather than known to be another host's.
func Undecided(reason string) bool { return reason == NotNamed || reason == ClaimedByAnother }

// state is the same, and what is closed when that changes.
func (n *Naming) state() (reason string, decided <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reason, n.decided
}
