// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"

	"github.com/calico-go/calico/pkg/gate"
)

// NotNamed is why nothing is done in the host's name while the agent starts.
const NotNamed = "it isn't known yet whether another host has this one's name, which takes a write to etcd"

// Undecided reports whether a reason means that the name's owner isn't known yet.
func Undecided(reason string) bool { return reason == NotNamed }

// Named waits until the host's name is known to be its own. The error is a *gate.RejectedError: another host has the name, or the context
// ended before that was known.
func (r *Reporter) Named(ctx context.Context) error {
	for {
		reason, changed := r.Naming.Watch()
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
