// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// TestMisfit has what policy says of itself not fit together: it is reported,
// that part stays as it was, and the rest goes on.
func TestMisfit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t)
		picks := model.Policy{Selector: "all()", Inbound: []model.Rule{{
			Action: model.ActionAllow, Match: model.Match{SrcSelector: "role == 'web'", HasSrcSelector: true},
		}}}
		c.updates <- store.Update{Revision: 2, Entries: []model.Entry{put(model.PolicyKey{Tier: "default", Policy: "p"}, picks, 2)}}
		synctest.Wait()
		if len(c.wall.state.Sets) != 1 {
			t.Fatalf("%d sets, want 1", len(c.wall.state.Sets))
		}
		clear(c.wall.state.Sets)
		web, b := testSpec("cali1", "10.0.0.1"), testSpec("cali2", "10.0.0.2")
		web.Labels = map[string]string{"role": "web"}
		c.updates <- store.Update{Revision: 3, Entries: []model.Entry{put(testKey("a"), web, 3), put(testKey("b"), b, 3)}}
		synctest.Wait()
		found := ""
		for _, p := range c.problems.All() {
			if p.Path == "policy of this host" {
				found = p.Reason
			}
		}
		if !strings.Contains(found, "was not there") {
			t.Errorf("reported is %q", found)
		}
		if c.wall.state.Endpoints[testKey("b").Path()] == nil {
			t.Error("another endpoint is not followed")
		}
	})
}
