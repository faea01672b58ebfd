// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"testing"

	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

func TestCarrierLosses(t *testing.T) {
	netns.Host(t, func() {
		pods.Uplink(t)
		look := func() uint32 {
			t.Helper()
			losses, err := CarrierLosses([]string{"up0", "none0", "not a name, too long by far"})
			if err != nil || len(losses) != 1 {
				t.Fatalf("%v, %v", losses, err)
			}
			return losses["up0"]
		}
		before := look()
		for range 3 {
			netns.IP(t, "link", "set", "up1", "down")
			netns.IP(t, "link", "set", "up1", "up")
		}
		if got := look() - before; got != 3 {
			t.Errorf("%d losses, want 3", got)
		}
	})
}
