// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import "testing"

func TestReplaces(t *testing.T) {
	for _, tt := range []struct {
		policy, older string
		want          bool
	}{
		{"knp.a.deny", "a.access", true},
		{"knp.default.a.deny", "a.access", true},
		{"knp.default.web", "default.access", true},
		{"knp.b.deny", "a.access", false},
		{"knp.ab.deny", "a.access", false},
		{"knp.a.deny", "a", false},
		{"knp.a.deny", "a-access", false},
		{"a.deny", "a.access", false},
		{"kcnp.a.deny", "a.access", false},
		{"knp.knp.deny", "knp.knp.access", false},
	} {
		if got := Replaces(tt.policy, tt.older); got != tt.want {
			t.Errorf("Replaces(%q, %q): %v", tt.policy, tt.older, got)
		}
	}
}
