// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTrim: what two lists share at either end is left out, once.
func TestTrim(t *testing.T) {
	list := func(names string) (out []RulesID) {
		for _, n := range names {
			out = append(out, RulesID{KindPolicy, "default", string(n)})
		}
		return out
	}
	for _, c := range []struct{ before, after, had, has string }{
		{"", "", "", ""},
		{"abc", "abc", "", ""},
		{"abc", "", "abc", ""},
		{"ac", "abc", "", "b"},
		{"abc", "ac", "b", ""},
		{"abc", "acb", "bc", "cb"},
		{"aa", "aaa", "", "a"},
		{"abcd", "axyd", "bc", "xy"},
	} {
		had, has := Trim(list(c.before), list(c.after))
		if diff := cmp.Diff([2]string{c.had, c.has}, [2]string{names(had), names(has)}); diff != "" {
			t.Errorf("%q, %q (-want +got):\n%s", c.before, c.after, diff)
		}
	}
	var none *Endpoint
	if got := none.Lists(); len(got[0])+len(got[5]) != 0 {
		t.Errorf("no endpoint asks %v", got)
	}
}

func names(list []RulesID) (out string) {
	for _, id := range list {
		out += id.Name
	}
	return out
}
