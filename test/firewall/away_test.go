// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAway deletes pods, one in the moment before the agent is killed, one after, and then the
// firewall. The next agent deletes their connections, and leaves those of who is there.
func TestAway(t *testing.T) {
	r := newRig(t)
	server, client, _ := r.population()
	quick, slow := r.pod("quick", [2]string{"role", "server"}), r.pod("slow", [2]string{"role", "server"})
	r.enforced()
	entries := func(a netip.Addr) (ids []string) {
		family := "ipv4"
		if a.Is6() {
			family = "ipv6"
		}
		for line := range strings.Lines(r.run(r.self, "conntrack", "-L", "-o", "id", "-f", family)) {
			if slices.Contains(strings.Fields(line), "dst="+a.String()) {
				ids = append(ids, regexp.MustCompile(`id=\d+`).FindString(line))
			}
		}
		return ids
	}
	var streams []*stream
	kept := map[netip.Addr]string{} // connections that must go on
	for i := range server.addrs {
		for _, p := range []*place{quick, slow} {
			r.transfer(client, p, netip.AddrPortFrom(p.addrs[i], 3000), false) // it would be tracked for days
			if len(entries(p.addrs[i])) == 0 {
				t.Fatalf("no connection with %s is tracked", p.name)
			}
		}
		streams = append(streams, r.transfer(client, server, netip.AddrPortFrom(server.addrs[i], 3000), true),
			r.transfer(r.self, r.outside, netip.AddrPortFrom(r.outside.addrs[i], 3000), false))
		for _, a := range []netip.Addr{server.addrs[i], r.outside.addrs[i]} {
			kept[a] = strings.Join(entries(a), " ")
		}
	}
	r.flows("before", streams...)
	leave := func(p *place) {
		t.Helper()
		if err := p.pod.Delete(r.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	leave(quick)
	if err := r.host.Agent().Kill(); err != nil {
		t.Fatal(err)
	}
	leave(slow)
	r.run(r.self, "nft", "delete", "table", "inet", "calico")
	if err := r.host.Agent().Start(r.ctx()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*place{slow, quick} {
		for _, a := range p.addrs {
			if !r.comes(patience, func() bool { return len(entries(a)) == 0 }) {
				t.Errorf("connections of %s, which is gone, stay: %v", p.name, entries(a))
			}
		}
	}
	r.flows("after", streams...)
	for a, ids := range kept {
		now := entries(a)
		for id := range strings.FieldsSeq(ids) {
			if !slices.Contains(now, id) {
				t.Errorf("connection %s to %s is not tracked any more: %v", id, a, now)
			}
		}
	}
}
