// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"net/netip"
	"testing"
)

// TestTakeWork: connections that may not go on are ended though something of others waits; where it did, all are looked at once nothing waits any more.
func TestTakeWork(t *testing.T) {
	r := &Reconciler{applied: true, more: true, work: newWork()}
	r.work.Suspects[netip.MustParseAddr("192.0.2.1")] = struct{}{}
	if w := r.TakeWork(); len(w.Suspects) != 1 || w.All {
		t.Errorf("while something waits: %+v", w)
	}
	if w := r.TakeWork(); len(w.Suspects) != 0 || w.All {
		t.Errorf("twice: %+v", w)
	}
	r.more = false
	if w := r.TakeWork(); !w.All {
		t.Errorf("once nothing waits: %+v", w)
	}
	if w := r.TakeWork(); w.All {
		t.Errorf("nothing has changed since: %+v", w)
	}
}
