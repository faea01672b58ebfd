// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRestrictions(t *testing.T) {
	is := func(label, value string) Term { return Term{Label: label, Value: value} }
	has := func(label string) Term { return Term{Label: label, Any: true} }
	for _, tt := range []struct {
		text string
		want [][]Term
	}{
		{"", nil},
		{"!all()", [][]Term{{}}},
		{"a == 'x'", [][]Term{{is("a", "x")}}},
		{"!(a == 'x')", nil},
		{"a != 'x'", nil},
		{"!(a != 'x')", [][]Term{{is("a", "x")}}},
		{"a in {'x', 'y'}", [][]Term{{is("a", "x"), is("a", "y")}}},
		{"a in {}", [][]Term{{}}},
		{"a not in {'x'}", nil},
		{"!(a not in {'x', 'y'})", [][]Term{{is("a", "x"), is("a", "y")}}},
		{"has(a)", [][]Term{{has("a")}}},
		{"!has(a)", nil},
		{"a contains 'x'", [][]Term{{has("a")}}},
		{"!(a starts with 'x')", nil},
		{"a == 'x' && b == 'y'", [][]Term{{is("a", "x")}, {is("b", "y")}}},
		{"a == 'x' && !has(b)", [][]Term{{is("a", "x")}}},
		{"a == 'x' || b == 'y'", [][]Term{{is("a", "x"), is("b", "y")}}},
		{"a == 'x' || !has(b)", nil},
		{"!(a != 'x' || has(b))", [][]Term{{is("a", "x")}}},
		{"!(a != 'x' && b != 'y')", [][]Term{{is("a", "x"), is("b", "y")}}},
		{"has(a) && b == 'y' || c == 'z'", [][]Term{{is("b", "y"), is("c", "z")}}},
	} {
		if diff := cmp.Diff(tt.want, mustParse(t, tt.text).Restrictions()); diff != "" {
			t.Errorf("%s:\n%s", tt.text, diff)
		}
	}
	long := mustParse(t, strings.Repeat("has(a) && ", 50)+"b == 'x'").Restrictions()
	if len(long) != maxRestrictions || !slices.Equal(long[0], []Term{is("b", "x")}) {
		t.Errorf("a long conjunction has %d restrictions, first %v", len(long), long[0])
	}
}

// meets reports whether labels meet one of the terms.
func meets(labels map[string]string, terms []Term) bool {
	return slices.ContainsFunc(terms, func(t Term) bool {
		v, ok := labels[t.Label]
		return ok && (t.Any || v == t.Value)
	})
}

// TestRestrictionsHold: whatever matches meets all restrictions.
func TestRestrictionsHold(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 1))
		labels := map[string]string{}
		for _, name := range []string{"a", "b", "c"} {
			if r.IntN(3) > 0 {
				labels[name] = []string{"", "x", "xy", "yx"}[r.IntN(4)]
			}
		}
		x := random(r, labels, 5)
		if !x.want {
			continue
		}
		for _, terms := range mustParse(t, x.text).Restrictions() {
			if !meets(labels, terms) {
				t.Fatalf("seed %d: %s matches %v, which don't meet %v", seed, x.text, labels, terms)
			}
		}
	}
}
