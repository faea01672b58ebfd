// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"testing"

	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/google/go-cmp/cmp"
)

// TestLinkThatCameMeanwhile: a link that appears while others are written is programmed at once: what is read back then is no failure.
func TestLinkThatCameMeanwhile(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		netns.IP(t, "link", "set", "cali2", "down")
		h.desired = newDesired([]Endpoint{a.endpoint, b.endpoint})
		reads := 0
		report, err := h.converge(t.Context(), func() (*state, error) {
			if reads++; reads == 2 {
				netns.IP(t, "link", "set", "cali2", "up")
				pods.AwaitSettled(t, "cali2")
			}
			return h.readWhole()
		}, nil)
		if diff := cmp.Diff(map[string]string{"cali1": "", "cali2": ""}, errorsOf(report)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
