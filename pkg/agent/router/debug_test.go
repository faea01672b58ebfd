// SPDX-License-Identifier: Apache-2.0

package router

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/debugstate"
	"github.com/calico-go/calico/pkg/plan"
)

// TestPeersTable counts as used the prefixes that became routes: one of the two that a neighbour sends is this host's own.
func TestPeersTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrossroads(t, func(c *crossroads) {
			c.learned = []plan.Learned{learnedFrom("192.0.2.2", "10.2.1.0/26"), learnedFrom("192.0.2.2", "10.2.0.0/26")}
		})
		synctest.Wait()
		state, busy := c.State(t.Context()), State{Router: debugstate.Router{Busy: true}}
		var b strings.Builder
		state.writePeers(&b, time.Now())
		busy.Peers = state.Peers
		busy.writePeers(&b, time.Now())
		want := `# peers
address    as     kind  host  state        for  received  used  refused  sent  last error
192.0.2.2  64512  mesh  o     established  0s   2         1     0        1     
# peers
address    as     kind  host  state        for  received  used  refused  sent  last error
192.0.2.2  64512  mesh  o     established  0s   2         ?     0        1     
`
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
