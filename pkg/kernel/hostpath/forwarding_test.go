// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"testing"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/netns"
)

// TestForwardingOff: it is signalled when the host's forwarding is switched off, and ApplySome switches it on again.
func TestForwardingOff(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		mustApply(t, h, a.endpoint)
		events, err := h.Subscribe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"ipv4/ip_forward", "ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"} {
			netns.SetSysctl(t, name, "0")
			eventually.Find(t, "an event of "+name, events, func(e Event) bool { return e.Forwarding })
			r, err := h.ApplySome(t.Context(), nil, nil)
			if err != nil || r.Repairs != 1 {
				t.Errorf("%s: %d repairs, %v", name, r.Repairs, err)
			}
			if v, err := rtnl.ReadSysctl(name); err != nil || v != 1 {
				t.Errorf("%s is %d, %v", name, v, err)
			}
			// What the switch did to links went with it.
			if r := mustApply(t, h, a.endpoint); r.Writes > 0 {
				t.Errorf("%s: %d writes were left", name, r.Writes)
			}
		}
	})
}
