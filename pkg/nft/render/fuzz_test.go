// SPDX-License-Identifier: Apache-2.0

package render

import "testing"

// FuzzFlow: any key of a set of flows is read as the flow that has this key, or not at all.
func FuzzFlow(f *testing.F) {
	sets := CutSets()
	f.Add(string(make([]byte, 20)), false)
	f.Add(string(make([]byte, 44)), true)
	f.Fuzz(func(t *testing.T, key string, v6 bool) {
		set := sets[0]
		if v6 {
			set = sets[1]
		}
		flow, ok := ParseFlow(set, key)
		if !ok {
			return
		}
		if again, ok := ParseFlow(set, flow.Key()); !ok || again != flow || !flow.Src.IsValid() || flow.Src.Is4() == v6 {
			t.Errorf("%x: %+v, %+v", key, flow, again)
		}
	})
}
