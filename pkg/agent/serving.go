// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/calico-go/calico/pkg/daemon/health"
)

// servingPoll is how often it is looked whether the agent serves, until it does.
const servingPoll = 100 * time.Millisecond

// closeWhenServing closes the channel when the agent serves the host for the first time: what is desired was read back
// from the kernel. The error is always nil.
func closeWhenServing(ctx context.Context, h *health.Monitor, served chan<- struct{}) error {
	tick := time.NewTicker(servingPoll)
	defer tick.Stop()
	for h.Unready() != "" {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	close(served)
	return nil
}
