// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/kernel/hostnet"
)

// TestClosed: closed are the interfaces that endpoints of this host name and no prefix covers, except those that are the host's own, or
// were so when an endpoint first named them.
func TestClosed(t *testing.T) {
	addr := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	x := newClosed()
	named := map[string]string{} // interfaces that no prefix covers, by path
	names := func(path, name string) {
		named[path] = name
		x.note(path, name)
	}
	for i, name := range []string{"", "tap1", "tap2", "eth0", "br0", "lo", "tunl0", "vxlan.calico"} {
		names(string(rune('a'+i)), name)
	}
	eth, bridge := hostnet.Role{Name: "eth0", Index: 2, Uplink: true}, hostnet.Role{Name: "br0", Index: 3, Addrs: addr}
	without := hostnet.Role{Name: "br0", Index: 3}
	for _, step := range []struct {
		name   string
		links  []hostnet.Role
		broken error
		change func()
		want   []string
	}{
		{"links can't be read", nil, errors.New("broken"), func() {}, nil},
		{"the host's own are left", []hostnet.Role{eth, {Name: "tap1"}, without}, nil, func() {}, []string{"br0", "tap1", "tap2"}},
		{"nothing new", []hostnet.Role{bridge}, nil, func() {}, []string{"br0", "tap1", "tap2"}},
		{"one turns out to be the host's", []hostnet.Role{eth, bridge}, nil, func() { x.stale = true }, []string{"tap1", "tap2"}},
		{"and stays so without its address", []hostnet.Role{eth, without}, nil, func() { x.stale = true }, []string{"tap1", "tap2"}},
		{"named by none", []hostnet.Role{eth, without}, nil, func() { names("e", "") }, []string{"tap1", "tap2"}},
		{"and by another", []hostnet.Role{eth, without}, nil, func() { names("z", "br0") }, []string{"br0", "tap1", "tap2"}},
		{"the host's again", []hostnet.Role{eth, bridge}, nil, func() { x.stale = true }, []string{"tap1", "tap2"}},
		{"another of its name", []hostnet.Role{eth, {Name: "br0", Index: 9}}, nil, func() { x.stale = true }, []string{"br0", "tap1", "tap2"}},
		{"and that the host's", []hostnet.Role{eth, {Name: "br0", Index: 9, Addrs: addr}}, nil, func() { x.stale = true }, []string{"tap1", "tap2"}},
		{"gone", []hostnet.Role{eth}, nil, func() { x.stale = true }, []string{"br0", "tap1", "tap2"}},
		{"back", []hostnet.Role{eth, bridge}, nil, func() { x.stale = true }, []string{"tap1", "tap2"}},
	} {
		step.change()
		if err := x.look(func([]string) ([]hostnet.Role, error) { return step.links, step.broken }); !errors.Is(err, step.broken) {
			t.Errorf("%s: %v", step.name, err)
		}
		x.judge()
		var got []string
		for path, name := range named {
			if x.has(path) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	for path := range named {
		names(path, "")
	}
	if err := x.look(nil); err != nil || len(x.judge())+len(x.names)+len(x.own)+len(x.judged) != 0 {
		t.Errorf("without endpoints: %+v, %v", x, err)
	}
}
