// SPDX-License-Identifier: Apache-2.0

package link

import "testing"

func TestIsAnothers(t *testing.T) {
	for _, c := range []struct {
		alias, container string
		want             bool
	}{
		{"calico net.c1.eth0", "c1", false},
		{"calico net.c2.eth0", "c1", true},
		{"calico net.c11.eth0", "c1", true},
		{"calico my.net.c.1.eth0", "c.1", false},
		{"calico net.c1.eth0", "", false},
		{"calico sha256:0123456789abcdef:aa", "c1", false},
		{"somebody's net.c2.eth0", "c1", false},
		{"calico tunnel", "c1", false},
		{"", "c1", false},
	} {
		if got := IsAnothers(c.alias, c.container); got != c.want {
			t.Errorf("IsAnothers(%q, %q) = %v", c.alias, c.container, got)
		}
	}
}
