// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/calico-go/calico/pkg/daemon/health"
)

// servingPoll is how often closeWhenServing checks whether the agent serves.
const servingPoll = 100 * time.Millisecond

// closeWhenServing closes the channel when the agent serves the host for the first time: the desired state was read back from the kernel.
// The error is always nil.
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
