// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/test/long"
)

// TestWrongPrefix has the interfaces of all pods begin with no prefix: they pass nothing,
// from the moment of the change on, and are back when it is put right.
func TestWrongPrefix(t *testing.T) {
	long.Test(t)
	r := newHostileRig(t)
	web, other := r.pod("web"), r.pod("other")
	r.enforced()
	gateway, err := r.hostLink(web)
	if err != nil {
		t.Fatal(err)
	}
	name := r.spec(web).Name
	sink, err := listenUDP(r.outside, 7000)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	// Of what is sent under another's address nothing may ever arrive.
	from := func(src netip.Addr, text string) []byte {
		return frame{from: r.spec(web).MAC, to: gateway, src: netip.AddrPortFrom(src, 1000), dst: netip.AddrPortFrom(r.outside.addrs[1], 7000), text: text}.bytes()
	}
	own, forged := from(web.addrs[1], "own"), from(other.addrs[1], "forged")
	send := func(b []byte) {
		t.Helper()
		if err := sendFrame(web, b); err != nil {
			t.Fatal(err)
		}
	}
	seen := func(when string, want ...string) {
		t.Helper()
		if got, err := arrived(r.outside, sink); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q arrived, want %q, %v", when, got, want, err)
		}
	}
	shut := func() bool {
		out := r.run(r.self, "nft", "list", "set", "inet", "calico", "shut")
		return strings.Contains(out, name)
	}
	r.probe("before", expect{web, r.outside, "udp 53", true}, expect{web, other, "udp 53", true})
	send(own)
	seen("before", "own")
	r.put(configPath("InterfacePrefix"), "tap")
	r.until("the interface is shut", func() bool { send(forged); return shut() })
	send(forged)
	seen("while the prefix changed")
	send(own)
	seen("with a prefix that covers no endpoint")
	r.probe("no prefix covers the pods", expect{web, r.outside, "udp 53", false}, expect{web, r.self, "udp 53", false}, expect{r.outside, web, "udp 53", false}, expect{web, other, "udp 53", false})
	if err := r.host.Agent().Stop(); err != nil {
		t.Fatal(err)
	}
	if err := r.host.Agent().Start(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.probe("and after a restart", expect{web, r.outside, "udp 53", false}, expect{r.outside, web, "udp 53", false})
	send(own)
	seen("after a restart")

	r.del(configPath("InterfacePrefix"))
	r.until("the interface is open", func() bool { send(forged); return !shut() })
	r.written = nil
	r.enforced()
	seen("while the prefix changed back")
	r.probe("back again", expect{web, r.outside, "udp 53", true}, expect{web, other, "udp 53", true})
}
