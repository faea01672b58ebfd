// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/policy"
)

// TestUsers adds, removes and changes endpoints at random, and expects the result of counting everything anew.
func TestUsers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	list := func() (out []policy.RulesID) {
		for i := range 4 {
			if r.IntN(2) == 0 {
				out = append(out, policy.RulesID{Kind: policy.KindPolicy, Tier: "default", Name: fmt.Sprint(i)})
			}
		}
		r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		return out
	}
	a, have := newUsers(), map[string]*policy.Endpoint{}
	for step := range 1000 {
		path := fmt.Sprint("endpoint ", r.IntN(3))
		before := have[path]
		have[path] = &policy.Endpoint{Inbound: policy.Verdicts{Policies: list()}, Outbound: policy.Verdicts{Policies: list()}, UntrackedInbound: list()}
		if r.IntN(4) == 0 {
			delete(have, path)
		}
		a.put(path, before, have[path])
		want := map[policy.RulesID]map[string]int{}
		for path, ep := range have {
			for _, ids := range ep.Lists() {
				for _, id := range ids {
					if want[id] == nil {
						want[id] = map[string]int{}
					}
					want[id][path]++
				}
			}
		}
		if diff := cmp.Diff(want, a.of); diff != "" {
			t.Fatalf("step %d: -want +got:\n%s", step, diff)
		}
	}
}
