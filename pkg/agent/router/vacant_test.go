// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// TestRouterTellsOfTheVacant says once whose addresses nobody has.
func TestRouterTellsOfTheVacant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(*crossroads) {})
		vacant := func() (v []netip.Addr) {
			synctest.Wait()
			c.with(func() { v = c.heard.Vacant })
			return v
		}
		if v := vacant(); len(v) != 2*64 || !slices.Contains(v, netip.MustParseAddr("10.2.0.5")) {
			t.Errorf("at first: %v, want those of blocks 10.1.0.0/26 and 10.2.0.0/26", v)
		}
		c.Hear(store.Update{Revision: 2, Entries: []model.Entry{hostAddr("o", "192.0.2.3", 2), testBlock("10.2.2.0/26", "h", 2)}})
		if v := vacant(); len(v) != 0 {
			t.Errorf("later: %v, want none: the loop has heard itself who went", v)
		}
	})
}

// TestHandoverKeepsTheVacant has the loop come late to what it is told.
func TestHandoverKeepsTheVacant(t *testing.T) {
	x := NewHandover()
	vacant := []netip.Addr{netip.MustParseAddr("10.2.0.5")}
	x.Tell(News{Vacant: vacant})
	x.Tell(News{MTU: 1450})
	if n := x.TakeNews(); n.MTU != 1450 || !slices.Equal(n.Vacant, vacant) {
		t.Errorf("%+v, want the latest MTU and %v", n, vacant)
	}
}
