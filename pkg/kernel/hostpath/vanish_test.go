// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/google/go-cmp/cmp"
)

// A link that is deleted between the reading of it and of what it has is one
// that isn't there.
func TestReadLinkThatVanished(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a := wire(t, 1)
		mustApply(t, h, a.endpoint)
		l, err := link.Find("cali1")
		if err != nil {
			t.Fatal(err)
		}
		st := newState()
		if err := h.readLink(st, l); err != nil || len(st.links) != 1 || len(st.routes[l.Index]) == 0 {
			t.Errorf("a link that is there: %v, %+v", err, st)
		}
		if err := link.Delete("cali1"); err != nil {
			t.Fatal(err)
		}
		st = newState()
		if err := h.readLink(st, l); err != nil || len(st.links) != 0 || len(st.routes) != 0 {
			t.Errorf("a link that vanished: %v, %+v", err, st)
		}
	})
}

// A link that comes while others are written is programmed at once: what is read back then
// is no failure.
func TestLinkThatCameMeanwhile(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		netns.IP(t, "link", "set", "cali2", "down")
		h.setDesired([]Endpoint{a.endpoint, b.endpoint})
		reads := 0
		report, err := h.converge(t.Context(), extent{host: h.convergeHost, read: func() (*state, error) {
			if reads++; reads == 2 {
				netns.IP(t, "link", "set", "cali2", "up")
				pods.AwaitSettled(t, "cali2")
			}
			return h.readWhole()
		}})
		if diff := cmp.Diff(map[string]string{"cali1": "", "cali2": ""}, errorsOf(report)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
