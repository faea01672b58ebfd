// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// askAgain is how long the plugin waits before it asks an agent again that
// wasn't ready, or wasn't there.
const askAgain = 20 * time.Millisecond

// triedByHand reports whether no agent has ever run on this node, and none has to.
func (s *session) triedByHand() bool {
	_, err := os.Stat(s.conf.Nodename.File)
	return os.IsNotExist(err) && !s.conf.Nodename.FileRequired
}

// waitAtGate returns when the agent has programmed the endpoint as of the
// revision, and has read that back from the kernel.
func (s *session) waitAtGate(ctx context.Context, key model.WorkloadEndpointKey, revision int64) error {
	timeout := s.conf.PolicySetupTimeout
	if timeout == 0 {
		return nil
	}
	call := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var why error // the latest answer that wasn't just the end of the time
	for {
		err := gate.Wait(ctx, s.conf.AgentSocket, gate.Request{Endpoint: key, Revision: revision})
		var rejected *gate.RejectedError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, gate.ErrNoAgent):
			if s.triedByHand() {
				s.log.Warn("no agent: it never ran on this node, so nothing is programmed for this pod", "socket", s.conf.AgentSocket)
				return nil
			}
		case errors.As(err, &rejected) && !rejected.Retry:
			return refused(key, err)
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		select {
		case <-ctx.Done():
			if call.Err() != nil {
				return failf(CodeTryAgain, "the call was interrupted by a signal: try again",
					"wait for the agent to confirm that the pod's network is programmed: %w", call.Err())
			}
			return failf(CodeTryAgain, "check that calico-node runs on this node, and its log; then try again",
				"the agent didn't confirm within %v that the pod's network is programmed: %w", timeout, why)
		case <-time.After(askAgain):
		}
	}
}

// refused says that the agent will never confirm the endpoint.
func refused(key model.WorkloadEndpointKey, err error) error {
	return failf(CodeRejected, "see the agent's log", "endpoint %s: %w", key.Path(), err)
}
