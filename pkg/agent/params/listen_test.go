// SPDX-License-Identifier: Apache-2.0

package params

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/hostnet"
)

// TestListenJudge: BGP listens at addresses that are the host's, and everywhere if it couldn't.
func TestListenJudge(t *testing.T) {
	var own []string
	a := newAdopter(t, Sources{})
	a.listens.roles = func([]string) ([]hostnet.Role, error) {
		role := hostnet.Role{Name: "eth0"}
		for _, text := range own {
			role.Addrs = append(role.Addrs, netip.MustParseAddr(text))
		}
		return []hostnet.Role{role}, nil
	}
	for _, step := range []struct {
		name, value string
		own         []string
		changed     bool // at a review before it is adopted
		want        string
		reason      string
	}{
		{"the host's", "192.0.2.1,2001:db8::1", []string{"192.0.2.1", "2001:db8::1"}, false, "192.0.2.1,2001:db8::1", ""},
		{"one went", "192.0.2.1,2001:db8::1", []string{"192.0.2.1"}, false, "192.0.2.1,2001:db8::1", ""},
		{"nobody's", "192.0.2.1,8.8.8.8", []string{"192.0.2.1"}, false, "", "address 8.8.8.8: no link of this host has it"},
		{"it came", "192.0.2.1,8.8.8.8", []string{"192.0.2.1", "8.8.8.8"}, true, "8.8.8.8,192.0.2.1", ""},
		{"of the link alone", "fe80::1", []string{"192.0.2.1"}, false, "", "address fe80::1: no link"},
		{"the loopback alone", "127.0.0.1,::1", []string{"192.0.2.1"}, false, "", "no other host could open a session"},
		{"the loopback as well", "127.0.0.1,192.0.2.1", []string{"192.0.2.1"}, false, "127.0.0.1,192.0.2.1", ""},
		{"all of IPv4", "0.0.0.0", []string{"192.0.2.1"}, false, "0.0.0.0", ""},
		{"all", " ", nil, false, "", ""},
	} {
		own = step.own
		if changed := a.listens.review(); changed != step.changed {
			t.Errorf("%s: a verdict changed: %v", step.name, changed)
		}
		a.cfg.Felix = map[string]string{"BGPListenAddresses": step.value}
		p, log := a.adopts()
		all := a.problems.All()
		if got := listenKey(p.BGPListen); got != step.want || (len(all) == 0) != (step.reason == "") || len(all) == 1 && !strings.Contains(all[0].Reason, step.reason) {
			t.Errorf("%s: listens at %q, want %q; %v, want %q\n%s", step.name, got, step.want, all, step.reason, log)
		}
	}
}
