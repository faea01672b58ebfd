// SPDX-License-Identifier: Apache-2.0

package kernel

import "testing"

func TestCarrierLosses(t *testing.T) {
	inHost(t, func() {
		uplink(t)
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
			ip(t, "link", "set", "up1", "down")
			ip(t, "link", "set", "up1", "up")
		}
		if got := look() - before; got != 3 {
			t.Errorf("%d losses, want 3", got)
		}
	})
}
