// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDisturbed has sessions in all states: there is something to do for those that are cut off, and for those whose
// neighbours had their time to answer.
func TestDisturbed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	long, short := now.Add(-mute), now.Add(-mute/2)
	table := map[netip.Addr]*sessionState{}
	var want []netip.Addr
	for i, c := range []struct {
		state sessionState
		want  bool
	}{
		{sessionState{state: Idle, since: long}, false},
		{sessionState{state: Connecting, since: long}, false},
		{sessionState{state: Connecting, since: long, opened: short}, false},
		{sessionState{state: Connecting, since: long, opened: long}, true},
		{sessionState{state: OpenSent, since: short}, false},
		{sessionState{state: OpenSent, since: long}, true},
		{sessionState{state: OpenConfirm, since: long}, true},
		{sessionState{state: Established, since: long}, false},
		{sessionState{state: Flooded, since: now, until: now.Add(time.Minute)}, true},
		{sessionState{state: Refused, since: long}, false},
	} {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		table[a] = &c.state
		if c.want {
			want = append(want, a)
		}
	}
	got := (&sessions{table: table}).disturbed(now)
	slices.SortFunc(got, netip.Addr.Compare)
	if diff := cmp.Diff(want, got, comparers()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
