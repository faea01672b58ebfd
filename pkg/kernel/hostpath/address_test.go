// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/test/netns"
	"github.com/google/go-cmp/cmp"
)

func TestSameAddressTwice(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		addr := netip.MustParseAddr("10.65.0.1")
		a, b := wire(t, 1, addr), wire(t, 2, addr)
		b.endpoint.Addrs = append(b.endpoint.Addrs, netip.MustParseAddr("10.65.0.2"))
		lost := map[string]string{"cali1": "", "cali2": "address 10.65.0.1 is also the endpoint's of cali1, which comes first"}
		for _, order := range [][]Endpoint{{a.endpoint, b.endpoint}, {b.endpoint, a.endpoint}} {
			r, err := h.Apply(context.Background(), order)
			if diff := cmp.Diff(lost, errorsOf(r)); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		}
		if got := netns.IP(t, "route", "show", "proto", "80")[:2]; got[0] != "10.65.0.1 dev cali1 scope link" || got[1] != "10.65.0.2 dev cali2 scope link" {
			t.Errorf("routes: %q", got)
		}
		// The first leaves: the other has the address at once.
		r, err := h.ApplySome(context.Background(), nil, []Endpoint{a.endpoint})
		if diff := cmp.Diff(map[string]string{"cali2": ""}, errorsOf(r)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if got := netns.IP(t, "route", "show", "10.65.0.1")[0]; got != "10.65.0.1 dev cali2 proto 80 scope link" {
			t.Errorf("route: %s", got)
		}
		r, err = h.ApplySome(context.Background(), []Endpoint{a.endpoint}, nil)
		if diff := cmp.Diff(lost, errorsOf(r)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		// One that is down doesn't keep it from one that is up.
		netns.IP(t, "link", "set", "cali1", "down")
		r, err = h.Apply(context.Background(), []Endpoint{a.endpoint, b.endpoint})
		want := map[string]string{"cali1": "interface cali1 is down", "cali2": ""}
		if diff := cmp.Diff(want, errorsOf(r)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

func TestAddressMovesWithoutAGap(t *testing.T) {
	for _, addr := range []netip.Addr{netip.MustParseAddr("10.65.0.1"), netip.MustParseAddr("fd00::1")} {
		for _, some := range []bool{false, true} {
			netns.Host(t, func() {
				h := newHostPath(t)
				here, there := wire(t, 1, addr).endpoint, wire(t, 2, addr).endpoint
				mustApply(t, h, here)
				stop, gaps := make(chan struct{}), make(chan int)
				c, err := rtnl.Dial()
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				go func() {
					n := 0
					for {
						// One answer may be lost to a route that goes while it is
						// written; two in a row are a gap.
						if r, ok := c.Lookup(addr, 0); !ok || r.Dst.Addr() != addr {
							if r, ok := c.Lookup(addr, 0); !ok || r.Dst.Addr() != addr {
								n++
							}
						}
						select {
						case <-stop:
							gaps <- n
							return
						default:
						}
					}
				}()
				for range 30 {
					if some {
						r, err := h.ApplySome(context.Background(), []Endpoint{there}, []Endpoint{here})
						if err != nil {
							t.Error(err)
						}
						mustBeProgrammed(t, r)
					} else {
						mustApply(t, h, there)
					}
					here, there = there, here
				}
				close(stop)
				if n := <-gaps; n > 0 {
					t.Errorf("%s, some %v: %d lookups found no route to it", addr, some, n)
				}
			})
		}
	}
}

func TestForeignRouteInTheWay(t *testing.T) {
	for _, args := range [][]string{
		{"route", "add", "10.65.0.1", "dev", "other0", "proto", "12"},
		{"-6", "route", "add", "fd00::1", "dev", "other0", "proto", "12"},
	} {
		netns.Host(t, func() {
			h := newHostPath(t)
			a := wire(t, 1)
			netns.IP(t, "link", "add", "other0", "type", "veth", "peer", "name", "other1")
			netns.IP(t, "link", "set", "other0", "up")
			netns.IP(t, args...)
			r, err := h.Apply(context.Background(), []Endpoint{a.endpoint})
			if err != nil {
				t.Fatal(err)
			}
			got := errorsOf(r)["cali1"]
			if !strings.Contains(got, "there is a route by other0 that is not ours, of protocol 12") {
				t.Errorf("reported %q", got)
			}
			t.Log(got)
			del := append([]string(nil), args...)
			for i, w := range del {
				if w == "add" {
					del[i] = "del" // and it is still there to be deleted
				}
			}
			netns.IP(t, del...)
			mustApply(t, h, a.endpoint)
		})
	}
}
