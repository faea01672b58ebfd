// SPDX-License-Identifier: Apache-2.0

package crossconnect

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/calico-go/calico/test/netns"
	"golang.org/x/sys/unix"
)

// aPod creates a namespace that looks like a pod's, and returns it with its inode.
func aPod(t *testing.T) (*os.File, *Namespace, uint64) {
	t.Helper()
	file := netns.New(t)
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	n, err := Namespaces{st.Ino: fmt.Sprintf("/proc/self/fd/%d", file.Fd())}.Open(st.Ino)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return file, n, st.Ino
}

func TestVeth(t *testing.T) {
	for _, tt := range []struct{ a, b string }{{"10.60.0.2/30", "10.60.0.1/30"}, {"fd00::2/126", "fd00::1/126"}} {
		clientNS, client, _ := aPod(t)
		serverNS, server, _ := aPod(t)
		a := End{Name: "nsm0", Alias: "calico nsm x", Address: netip.MustParsePrefix(tt.a), Gateway: netip.MustParsePrefix(tt.b).Addr()}
		a.Routes = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		if !a.Address.Addr().Is4() {
			a.Routes = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}
		}
		b := End{Name: "nse7", Alias: a.Alias, Address: netip.MustParsePrefix(tt.b)}
		if err := Veth(client, a, server, b); err != nil {
			t.Fatal(err)
		}
		talk(t, clientNS, a.Address.Addr(), serverNS, b.Address.Addr())
		netns.Within(t, clientNS, func() {
			if ra, err := os.ReadFile("/proc/sys/net/ipv6/conf/nsm0/accept_ra"); string(ra) != "0\n" || err != nil {
				t.Errorf("accept_ra: %q, %v", ra, err)
			}
		})
		routes, err := client.Routes()
		if err != nil || len(routes) != 2 {
			t.Error(routes, err)
		}
		for _, at := range []*Namespace{client, server} {
			name := map[*Namespace]string{client: "nsm0", server: "nse7"}[at]
			if has, err := at.Has(name, a.Alias); !has || err != nil {
				t.Error(name, has, err)
			}
			if has, _ := at.Has(name, "another"); has {
				t.Error("another's is there")
			}
			if err := at.Delete(name, "another"); err != nil {
				t.Error(err)
			}
		}
		if err := Veth(client, a, server, End{Name: "nse8", Alias: "y"}); !errors.Is(err, os.ErrExist) {
			t.Errorf("a second %s: %v", a.Name, err)
		}
		if names, err := server.Names(); names["nse8"] || !names["nse7"] || err != nil {
			t.Error(names, err)
		}
		if err := server.Delete("nse7", a.Alias); err != nil {
			t.Error(err)
		}
		if has, err := client.Has("nsm0", a.Alias); has || err != nil {
			t.Error("the client's end is left", err)
		}
		if err := server.Delete("nse7", a.Alias); err != nil {
			t.Error("deleted already:", err)
		}
	}
}

// TestVethFails: a route that the pod has already belongs to another interface, and nothing is left behind.
func TestVethFails(t *testing.T) {
	clientNS, client, _ := aPod(t)
	_, server, _ := aPod(t)
	netns.Within(t, clientNS, func() {
		netns.IP(t, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
		netns.IP(t, "link", "set", "eth0", "up")
		netns.IP(t, "route", "add", "192.0.2.0/24", "dev", "eth0")
	})
	a := End{Name: "nsm0", Alias: "x", Routes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	if err := Veth(client, a, server, End{Name: "nse0", Alias: "x"}); err == nil || !strings.Contains(err.Error(), "192.0.2.0/24") {
		t.Error(err)
	}
	for _, n := range []*Namespace{client, server} {
		if names, err := n.Names(); names["nsm0"] || names["nse0"] || err != nil {
			t.Error(names, err)
		}
	}
}

// TestVXLAN joins pods of two nodes.
func TestVXLAN(t *testing.T) {
	netns.Host(t, func() {
		netns.IP(t, "link", "add", "eth0", "type", "veth", "peer", "name", "peer")
		other := netns.New(t)
		netns.IP(t, "link", "set", "peer", "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), other.Fd()))
		netns.IP(t, "addr", "add", "192.0.2.1/24", "dev", "eth0")
		netns.IP(t, "link", "set", "eth0", "up")
		clientNS, client, _ := aPod(t)
		serverNS, server, _ := aPod(t)
		a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		end := End{Name: "nsm0", Alias: "calico nsm x", Address: netip.MustParsePrefix("10.60.0.2/30")}
		if err := VXLAN(client, end, Tunnel{5, a, b, 4795}); err != nil {
			t.Error(err)
		}
		if err := VXLAN(server, End{Name: "nsm1", Alias: "y"}, Tunnel{5, a, b, 4795}); err == nil {
			t.Error("a VNI was used twice")
		}
		netns.Within(t, other, func() {
			netns.IP(t, "addr", "add", "192.0.2.2/24", "dev", "peer")
			netns.IP(t, "link", "set", "peer", "up")
			end := End{Name: "nsm0", Alias: "calico nsm x", Address: netip.MustParsePrefix("10.60.0.1/30")}
			if err := VXLAN(server, end, Tunnel{5, b, a, 4795}); err != nil {
				t.Error(err)
			}
		})
		talk(t, clientNS, netip.MustParseAddr("10.60.0.2"), serverNS, netip.MustParseAddr("10.60.0.1"))
		netns.Within(t, clientNS, func() {
			if l := netns.IP(t, "link", "show", "nsm0"); !strings.Contains(l[0], "mtu 1450") {
				t.Error(l)
			}
		})
		if err := client.Delete("nsm0", end.Alias); err != nil {
			t.Error(err)
		}
		if err := VXLAN(client, end, Tunnel{5, a, netip.MustParseAddr("203.0.113.1"), 4795}); err == nil || !strings.Contains(err.Error(), "203.0.113.1") {
			t.Error("no route to the other node:", err)
		}
	})
}

func TestScan(t *testing.T) {
	own, err := Own()
	if err != nil {
		t.Fatal(err)
	}
	all, err := Scan()
	if err != nil || all[own] == "" {
		t.Fatal(all, err)
	}
	n, err := all.Open(own)
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	if _, err := all.Open(1); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	_, _, other := aPod(t)
	if _, err := (Namespaces{other: "/proc/self/ns/net"}).Open(other); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := (Namespaces{5: "/proc/self/status"}).Open(5); err == nil {
		t.Error("a file is no namespace")
	}
}
