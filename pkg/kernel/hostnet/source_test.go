// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
)

// TestSourceTo: the source is the kernel's choice, whichever of its routes decides: the link's address, that which a route names, or none
// if the way is refused.
func TestSourceTo(t *testing.T) {
	netns.Host(t, func() {
		netns.IP(t, "link", "add", "eth0", "type", "veth", "peer", "name", "far0")
		netns.IP(t, "addr", "add", "192.0.2.1/24", "dev", "eth0")
		netns.IP(t, "addr", "add", "192.0.2.7/24", "dev", "eth0")
		netns.IP(t, "addr", "add", "2001:db8::9/64", "dev", "eth0", "nodad")
		netns.IP(t, "link", "set", "far0", "up")
		netns.IP(t, "link", "set", "eth0", "up")
		pods.AwaitSettled(t, "eth0")
		pods.AwaitAddr(t, netip.MustParseAddr("2001:db8::9"))
		netns.IP(t, "route", "add", "203.0.113.0/24", "via", "192.0.2.2", "src", "192.0.2.7")
		netns.IP(t, "route", "add", "198.51.100.0/24", "via", "192.0.2.2")
		netns.IP(t, "route", "add", "blackhole", "10.1.0.0/16")
		netns.IP(t, "route", "add", "prohibit", "10.2.0.0/16")
		netns.IP(t, "route", "add", "unreachable", "10.3.0.0/16")
		netns.IP(t, "-6", "route", "add", "2001:db8:1::/64", "via", "2001:db8::1")
		netns.IP(t, "-6", "route", "add", "blackhole", "2001:db8:2::/64")
		for _, tt := range []struct{ to, want string }{
			{"192.0.2.9", "192.0.2.1"},
			{"203.0.113.9", "192.0.2.7"},
			{"198.51.100.9", "192.0.2.1"},
			{"192.0.2.1", "192.0.2.1"},
			{"8.8.8.8", "none"},
			{"10.1.0.1", "none"},
			{"10.2.0.1", "none"},
			{"10.3.0.1", "none"},
			{"2001:db8::5", "2001:db8::9"},
			{"2001:db8:1::5", "2001:db8::9"},
			{"2001:db8:2::5", "none"},
		} {
			got, err := SourceTo(netip.MustParseAddr(tt.to))
			text := got.String()
			if errors.Is(err, os.ErrNotExist) {
				text = "none"
			} else if err != nil {
				t.Error(err)
			}
			if text != tt.want {
				t.Errorf("to %s: %s, want %s", tt.to, text, tt.want)
			}
		}
	})
}
