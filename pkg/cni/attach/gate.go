// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// askAgain is how long the plugin waits before it asks an agent again that
// wasn't ready, or wasn't there.
const askAgain = 20 * time.Millisecond

// AgentNeverRan reports whether no agent has ever run on this node, and none has to.
func AgentNeverRan(conf *netconf.Config) bool {
	_, err := os.Stat(conf.Nodename.File)
	return os.IsNotExist(err) && !conf.Nodename.FileRequired
}

// WaitAtGate returns when the agent has programmed the endpoint as of the
// revision, and has read that back from the kernel.
func WaitAtGate(ctx context.Context, conf *netconf.Config, log *slog.Logger, key model.WorkloadEndpointKey, revision int64) error {
	timeout := conf.Agent.Timeout
	if timeout == 0 {
		return nil
	}
	call := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var why error // the latest answer that wasn't just the end of the time
	for {
		err := gate.Wait(ctx, conf.Agent.Socket, gate.Request{Endpoint: key, Revision: revision})
		rejected, refused := errors.AsType[*gate.RejectedError](err)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, gate.ErrNoAgent):
			if AgentNeverRan(conf) {
				log.Warn("no agent: it never ran on this node, so nothing is programmed for this pod", "socket", conf.Agent.Socket)
				return nil
			}
		case refused && !rejected.Retry:
			return protocol.Failf(protocol.CodeRejected, "see the agent's log", "endpoint %s: %w", key.Path(), err)
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		select {
		case <-ctx.Done():
			if call.Err() != nil {
				return protocol.Failf(protocol.CodeTryAgain, "the call was interrupted by a signal: try again",
					"wait for the agent to confirm that the pod's network is programmed: %w", call.Err())
			}
			return protocol.Failf(protocol.CodeTryAgain, "check that calico-node runs on this node, and its log; then try again",
				"the agent didn't confirm within %v that the pod's network is programmed: %w", timeout, why)
		case <-time.After(askAgain):
		}
	}
}
