// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"testing"
)

func TestPoolRef(t *testing.T) {
	cidr := netip.MustParsePrefix("10.1.0.0/16")
	named := Pool{CIDR: cidr, Meta: Meta{Name: "public"}}
	for _, tt := range []struct {
		text string
		pool Pool
		want bool
	}{
		{"10.1.0.0/16", named, true},
		{" public ", named, true},
		{"10.1.0.0-16", named, false},
		{"10.1.0.0-16", Pool{CIDR: cidr}, true},
		{"10.0.0.0/8", named, false},
		{"private", named, false},
	} {
		ref, err := ParsePoolRef(tt.text)
		if err != nil || ref.Names(tt.pool) != tt.want {
			t.Errorf("%q: %v, %v: want %t", tt.text, ref, err, tt.want)
		}
		if again, err := ParsePoolRef(ref.String()); err != nil || again != ref {
			t.Errorf("%q again: %v, %v: want %v", ref, again, err, ref)
		}
	}
	if (PoolRef{}).Names(Pool{}) {
		t.Error("no pool's name is one's")
	}
	for text, want := range map[string]string{
		"": `want the CIDR or the name of a pool, got ""`, "10.1.0.0": `want the CIDR or the name of a pool, got "10.1.0.0"`,
		"a/b": `want the CIDR or the name of a pool, got "a/b"`, "10.1.0.1/16": "10.1.0.1/16 has bits set after its length: want 10.1.0.0/16",
	} {
		if _, err := ParsePoolRef(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v: want %s", text, err, want)
		}
	}
}
