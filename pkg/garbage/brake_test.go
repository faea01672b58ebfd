// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"net/netip"
	"testing"
)

// TestOutsideEveryPool: a pool that was deleted doesn't take the brake off what is left in it.
func TestOutsideEveryPool(t *testing.T) {
	s := NewSurvey(nil)
	var d Decision
	a := netip.MustParseAddr("10.0.0.0")
	for range fewAddrs {
		d.Free = append(d.Free, Step{Addrs: []netip.Addr{a}})
		a = a.Next()
	}
	if e := s.excess(d, Allowance{}); e != nil {
		t.Errorf("%d addresses: %s", fewAddrs, e.Reason)
	}
	d.Free = append(d.Free, Step{Addrs: []netip.Addr{a}})
	e := s.excess(d, Allowance{})
	if e == nil || e.Reason != "17 addresses outside every pool would be freed at once, at most 16 may" {
		t.Fatalf("excess: %+v", e)
	}
	if again := s.excess(d, e.Allowance); again != nil {
		t.Errorf("allowed: %s", again.Reason)
	}
}
