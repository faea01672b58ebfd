// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

func method(t testing.TB, family int, text string) plan.Method {
	t.Helper()
	m, err := plan.ParseMethod(text, family == 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// dualStack makes a host find an IPv6 address as well.
func dualStack(t testing.TB) func(*Config, *Host) {
	return func(cfg *Config, _ *Host) { cfg.Methods[1] = method(t, 1, "autodetect") }
}

// TestIdentity: what is found is written once; changes are followed.
func TestIdentity(t *testing.T) {
	c := newFleet(t)
	p := c.person("a", eth0("172.18.0.1/24", "fd18::1/64"), func(cfg *Config, _ *Host) {
		dualStack(t)(cfg, nil)
		cfg.AS = 65546
	})
	want := func(what, v4, network, v6, as string) {
		t.Helper()
		c.Until(what, func() bool {
			return c.Field("a", model.BGPHostIPv4) == v4 && c.Field("a", model.BGPHostNetworkV4) == network &&
				c.Field("a", model.BGPHostIPv6) == v6 && c.Field("a", model.BGPHostAS) == as
		})
	}
	want("first", "172.18.0.1", "172.18.0.0/24", "fd18::1", "65546")
	c.Until("status", func() bool { return c.Get(model.StatusKey{Host: "a"}) != nil })
	first := c.revisions("a")
	if len(first) != 4 {
		t.Fatalf("written: %v", first)
	}

	// Nothing is written that is there: not by the same agent, nor by the next.
	c.Put(model.PoolKey{CIDR: netip.MustParsePrefix("10.65.0.0/16")}, model.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/16"), IPAM: true})
	p.move(plan.Links{Links: append(eth0("172.18.0.1/24", "fd18::1/64").Links, plan.Link{Name: "eth1", Up: true})})
	p.stop()
	p = c.person("a", eth0("172.18.0.1/24", "fd18::1/64"), dualStack(t))
	c.Until("judged", func() bool { return p.named() })
	if diff := cmp.Diff(first, c.revisions("a")); diff != "" {
		t.Errorf("written again (-first +then):\n%s", diff)
	}

	// Changes by others are undone.
	c.Put(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4}, model.Text("172.18.0.9"))
	want("corrected", "172.18.0.1", "172.18.0.0/24", "fd18::1", "65546")
	c.Remove(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv6})
	want("put back", "172.18.0.1", "172.18.0.0/24", "fd18::1", "65546")
	c.Until("status", func() bool { return c.Get(model.StatusKey{Host: "a"}) != nil })

	// The host is given another address.
	p.move(eth0("172.19.0.7/16", "fd18::1/64"))
	want("moved", "172.19.0.7", "172.19.0.0/16", "fd18::1", "65546")
	if reason := p.unready(); reason != "" {
		t.Errorf("not ready: %s", reason)
	}
	if all := p.problems.All(); len(all) > 0 {
		t.Errorf("problems: %v", all)
	}
}

// TestIdentityStays: a host doesn't move to another of its addresses because etcd is edited, nor is it left without any if that address is
// a live host's.
func TestIdentityStays(t *testing.T) {
	c := newFleet(t)
	key := model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4}
	p := c.person("a", both(true), nil)
	stays := func(what string) {
		t.Helper()
		c.Until(what, func() bool {
			return c.Field("a", model.BGPHostIPv4) == "172.18.0.1" && c.Field("a", model.BGPHostNetworkV4) == "172.18.0.0/24" &&
				p.unready() == "" && p.problem("IP") == ""
		})
	}
	stays("found")
	c.Put(key, model.Text("172.19.0.1"))
	stays("another of its own")
	b := c.person("b", eth0("172.19.0.1/24"), nil)
	c.Until("b has it", func() bool {
		return c.Field("b", model.BGPHostIPv4) == "172.19.0.1" && c.Get(model.StatusKey{Host: "b"}) != nil && b.unready() == ""
	})
	c.Put(key, model.Text("172.19.0.1"))
	stays("another of its own, which is a live host's too")
	if addr := p.id.notes().own[0].Addr.String(); addr != "172.18.0.1/24" {
		t.Errorf("it uses %s", addr)
	}
}

// TestIdentityNone: a host configured to have no address of a family reports none, and one that finds none reports that and does the rest.
func TestIdentityNone(t *testing.T) {
	c := newFleet(t)
	c.Put(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv6}, model.Text("fd18::1"))
	c.Put(model.BGPHostKey{Host: "a", Field: model.BGPHostAS}, model.Text("65001"))
	p := c.person("a", eth0("127.0.0.1/8", "fd18::1/64"), nil)
	c.Until("IPv6 is gone", func() bool { return c.Field("a", model.BGPHostIPv6) == "" })
	c.Until("IPv4 is missed", func() bool {
		return strings.Contains(p.problem("IP"), "first-found finds no IPv4 address on a link that is up")
	})
	if got := c.Field("a", model.BGPHostIPv4); got != "" {
		t.Errorf("IPv4 is %s", got)
	}
	if got := c.Field("a", model.BGPHostAS); got != "65001" {
		t.Errorf("the AS number that a person set is %s", got)
	}
	if reason := p.unready(); reason != "" {
		t.Errorf("not ready, and its own pods could do: %s", reason)
	}
	p.move(eth0("172.18.0.1/24"))
	c.Until("IPv4", func() bool { return c.Field("a", model.BGPHostIPv4) == "172.18.0.1" && p.problem("IP") == "" })
}

// TestIdentityWaits: nothing is written while the data isn't ready.
func TestIdentityWaits(t *testing.T) {
	c := newFleet(t)
	p := c.person("a", eth0("172.18.0.1/24"), nil)
	address := func(want string) {
		t.Helper()
		c.Until("address "+want, func() bool { return c.Field("a", model.BGPHostIPv4) == want })
	}
	address("172.18.0.1")
	c.Put(model.ReadyKey{}, model.Ready(false))
	c.Remove(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4})
	p.move(eth0("172.18.0.2/24"))
	c.Until("the deletion is known", func() bool {
		n := p.id.notes()
		return len(n.stored) == 1 && !n.ready
	})
	if got := c.Field("a", model.BGPHostIPv4); got != "" {
		t.Errorf("written: %s", got)
	}
	c.Put(model.ReadyKey{}, model.Ready(true))
	address("172.18.0.2")
}

// TestIdentityOutage: what changes while etcd is away is written when it is back.
func TestIdentityOutage(t *testing.T) {
	c := newFleet(t)
	p := c.person("a", eth0("172.18.0.1/24"), nil)
	c.Until("address", func() bool { return c.Field("a", model.BGPHostIPv4) == "172.18.0.1" })
	c.Until("the watch has told so", func() bool {
		n := p.id.notes()
		return n.awaits > 0 && n.revision >= n.awaits
	})
	c.Stop()
	p.move(eth0("172.18.0.2/24"))
	c.Until("the failure is told", func() bool { return p.problem(problemKeys) != "" })
	c.Start()
	c.Until("address", func() bool { return c.Field("a", model.BGPHostIPv4) == "172.18.0.2" })
	c.Until("well", func() bool { return p.problem(problemKeys) == "" })
}

// TestSameAddress: the second of two hosts with one address refuses it, names the other, and uses it when the other is gone.
func TestSameAddress(t *testing.T) {
	c := newFleet(t)
	a := c.person("a", eth0("172.18.0.1/24"), nil)
	c.Until("status of a", func() bool {
		return c.Get(model.StatusKey{Host: "a"}) != nil && c.Field("a", model.BGPHostIPv4) != ""
	})
	// It had an address of its own once, and says so still.
	c.Put(model.BGPHostKey{Host: "b", Field: model.BGPHostIPv4}, model.Text("172.18.0.1"))
	b := c.person("b", eth0("172.18.0.1/24"), nil)
	want := "address 172.18.0.1 is that of host a, which lives"
	c.Until("refused", func() bool {
		return strings.Contains(b.unready(), want) && strings.Contains(b.problem("IP"), want)
	})
	c.Until("nothing is said of it", func() bool { return c.Field("b", model.BGPHostIPv4) == "" })
	c.Until("b lives all the same", func() bool { return c.Get(model.StatusKey{Host: "b"}) != nil })
	if reason := a.unready(); reason != "" {
		t.Errorf("the first is not ready: %s", reason)
	}
	a.stop()
	c.Remove(model.StatusKey{Host: "a"})
	c.Until("taken", func() bool {
		return c.Field("b", model.BGPHostIPv4) == "172.18.0.1" && b.unready() == ""
	})
	// The other returns: now it is the second.
	a = c.person("a", eth0("172.18.0.1/24"), nil)
	c.Until("refused", func() bool { return strings.Contains(a.unready(), "address 172.18.0.1 is that of host b") })
	c.Until("nothing is said of it", func() bool { return c.Field("a", model.BGPHostIPv4) == "" })
	a.move(eth0("172.18.0.2/24"))
	c.Until("another is taken", func() bool {
		return c.Field("a", model.BGPHostIPv4) == "172.18.0.2" && a.unready() == ""
	})
}

// TestCanReach looks up the route to an address of this process.
func TestCanReach(t *testing.T) {
	for _, tt := range []struct{ target, want string }{
		{"127.0.0.1", "127.0.0.1"},
		{"localhost", "127.0.0.1"},
		{"8.8.8.8", "invalid IP"},
	} {
		got, err := reachByKernel(context.Background(), tt.target, false)
		if err != nil || got.String() != tt.want {
			t.Errorf("%s: %s, %v", tt.target, got, err)
		}
	}
	if _, err := reachByKernel(context.Background(), "no-such-name.invalid", false); err == nil {
		t.Error("a name that nobody has is reached")
	}
}
