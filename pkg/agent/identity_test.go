// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// dualStack has a host find an address of IPv6 as well.
func dualStack(t testing.TB) func(*Config, *identity) {
	return func(cfg *Config, _ *identity) { cfg.Methods[1] = method(t, 1, "autodetect") }
}

// TestIdentity: what is found is written, once; what changes is followed.
func TestIdentity(t *testing.T) {
	c := newFleet(t)
	p := c.person("a", eth0("172.18.0.1/24", "fd18::1/64"), func(cfg *Config, _ *identity) {
		dualStack(t)(cfg, nil)
		cfg.AS = 65546
	})
	want := func(what, v4, network, v6, as string) {
		t.Helper()
		c.until(what, func() bool {
			return c.etcd.Field("a", model.BGPHostIPv4) == v4 && c.etcd.Field("a", model.BGPHostNetworkV4) == network &&
				c.etcd.Field("a", model.BGPHostIPv6) == v6 && c.etcd.Field("a", model.BGPHostAS) == as
		})
	}
	want("first", "172.18.0.1", "172.18.0.0/24", "fd18::1", "65546")
	c.until("status", func() bool { return c.get(model.StatusKey{Host: "a"}) != nil })
	first := c.revisions("a")
	if len(first) != 4 {
		t.Fatalf("written: %v", first)
	}

	// Nothing is written that is there: not by the same agent, nor by the next.
	c.put(model.PoolKey{CIDR: netip.MustParsePrefix("10.65.0.0/16")}, model.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/16"), IPAM: true})
	p.move(plan.Links{Links: append(eth0("172.18.0.1/24", "fd18::1/64").Links, plan.Link{Name: "eth1", Up: true})})
	p.stop()
	p = c.person("a", eth0("172.18.0.1/24", "fd18::1/64"), dualStack(t))
	c.until("judged", func() bool { return p.named() })
	if diff := cmp.Diff(first, c.revisions("a")); diff != "" {
		t.Errorf("written again (-first +then):\n%s", diff)
	}

	// Somebody else's hand is undone.
	c.put(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4}, model.Text("172.18.0.9"))
	want("corrected", "172.18.0.1", "172.18.0.0/24", "fd18::1", "65546")
	c.remove(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv6})
	want("put back", "172.18.0.1", "172.18.0.0/24", "fd18::1", "65546")
	c.until("status", func() bool { return c.get(model.StatusKey{Host: "a"}) != nil })

	// The host is given another address.
	p.move(eth0("172.19.0.7/16", "fd18::1/64"))
	want("moved", "172.19.0.7", "172.19.0.0/16", "fd18::1", "65546")
	if reason := p.tell.health.Unready(); reason != "" {
		t.Errorf("not ready: %s", reason)
	}
	if all := p.tell.problems.All(); len(all) > 0 {
		t.Errorf("problems: %v", all)
	}
}

// TestIdentityNone: a host that shall have no address of a family says none, and
// one that finds none says so and does the rest.
func TestIdentityNone(t *testing.T) {
	c := newFleet(t)
	c.put(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv6}, model.Text("fd18::1"))
	c.put(model.BGPHostKey{Host: "a", Field: model.BGPHostAS}, model.Text("65001"))
	p := c.person("a", eth0("127.0.0.1/8", "fd18::1/64"), nil)
	c.until("IPv6 is gone", func() bool { return c.etcd.Field("a", model.BGPHostIPv6) == "" })
	c.until("IPv4 is missed", func() bool {
		return strings.Contains(p.problem("IP"), "first-found finds no IPv4 address on a link that is up")
	})
	if got := c.etcd.Field("a", model.BGPHostIPv4); got != "" {
		t.Errorf("IPv4 is %s", got)
	}
	if got := c.etcd.Field("a", model.BGPHostAS); got != "65001" {
		t.Errorf("the AS number that a person set is %s", got)
	}
	if reason := p.tell.health.Unready(); reason != "" {
		t.Errorf("not ready, and its own pods could do: %s", reason)
	}
	p.move(eth0("172.18.0.1/24"))
	c.until("IPv4", func() bool { return c.etcd.Field("a", model.BGPHostIPv4) == "172.18.0.1" && p.problem("IP") == "" })
}

// TestIdentityGone: a host that has lost its address for good says so.
func TestIdentityGone(t *testing.T) {
	c := newFleet(t)
	var later, asked atomic.Int64
	p := c.person("a", eth0("172.18.0.1/24"), func(_ *Config, i *identity) {
		if i != nil {
			i.now = func() time.Time {
				defer asked.Add(1)
				return time.Now().Add(time.Duration(later.Load()))
			}
		}
	})
	c.until("address", func() bool { return c.etcd.Field("a", model.BGPHostIPv4) == "172.18.0.1" })
	p.move(plan.Links{})
	c.until("it is waited for", func() bool { return asked.Load() > 0 })
	first := c.revisions("a")
	later.Store(int64(departure))
	p.move(plan.Links{Links: []plan.Link{{Name: "eth1"}}})
	c.until("nothing is said of it", func() bool {
		return c.etcd.Field("a", model.BGPHostIPv4) == "" && c.etcd.Field("a", model.BGPHostNetworkV4) == ""
	})
	if len(first) != 2 {
		t.Errorf("it was not waited for: %v", first)
	}
	c.until("it is missed", func() bool { return p.problem("IP") != "" })
	p.move(eth0("172.18.0.1/24"))
	c.until("address", func() bool { return c.etcd.Field("a", model.BGPHostIPv4) == "172.18.0.1" && p.problem("IP") == "" })
}

// TestIdentityWaits: nothing is written while the data isn't ready.
func TestIdentityWaits(t *testing.T) {
	c := newFleet(t)
	p := c.person("a", eth0("172.18.0.1/24"), nil)
	address := func(want string) {
		t.Helper()
		c.until("address "+want, func() bool { return c.etcd.Field("a", model.BGPHostIPv4) == want })
	}
	address("172.18.0.1")
	c.put(model.ReadyKey{}, model.Ready(false))
	c.remove(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4})
	p.move(eth0("172.18.0.2/24"))
	c.until("the deletion is known", func() bool {
		n := p.id.notes()
		return len(n.stored) == 1 && !n.ready
	})
	if got := c.etcd.Field("a", model.BGPHostIPv4); got != "" {
		t.Errorf("written: %s", got)
	}
	c.put(model.ReadyKey{}, model.Ready(true))
	address("172.18.0.2")
}

// TestIdentityOutage: what changes while etcd is away is written when it is back.
func TestIdentityOutage(t *testing.T) {
	c := newFleet(t)
	p := c.person("a", eth0("172.18.0.1/24"), nil)
	c.until("address", func() bool { return c.etcd.Field("a", model.BGPHostIPv4) == "172.18.0.1" })
	c.until("the watch has told so", func() bool {
		n := p.id.notes()
		return n.awaits > 0 && n.revision >= n.awaits
	})
	c.stopEtcd()
	p.move(eth0("172.18.0.2/24"))
	c.until("the failure is told", func() bool { return p.problem(problemKeys) != "" })
	c.startEtcd()
	c.until("address", func() bool { return c.etcd.Field("a", model.BGPHostIPv4) == "172.18.0.2" })
	c.until("well", func() bool { return p.problem(problemKeys) == "" })
}

// TestSameAddress: the second of two hosts with one address refuses it, names the
// other, and takes it when the other is gone.
func TestSameAddress(t *testing.T) {
	c := newFleet(t)
	a := c.person("a", eth0("172.18.0.1/24"), nil)
	c.until("status of a", func() bool {
		return c.get(model.StatusKey{Host: "a"}) != nil && c.etcd.Field("a", model.BGPHostIPv4) != ""
	})
	// It had an address of its own once, and says so still.
	c.put(model.BGPHostKey{Host: "b", Field: model.BGPHostIPv4}, model.Text("172.18.0.1"))
	b := c.person("b", eth0("172.18.0.1/24"), nil)
	want := "address 172.18.0.1 is that of host a, which lives"
	c.until("refused", func() bool {
		return strings.Contains(b.tell.health.Unready(), want) && strings.Contains(b.problem("IP"), want)
	})
	c.until("nothing is said of it", func() bool { return c.etcd.Field("b", model.BGPHostIPv4) == "" })
	c.until("b lives all the same", func() bool { return c.get(model.StatusKey{Host: "b"}) != nil })
	if reason := a.tell.health.Unready(); reason != "" {
		t.Errorf("the first is not ready: %s", reason)
	}
	a.stop()
	c.remove(model.StatusKey{Host: "a"})
	c.until("taken", func() bool {
		return c.etcd.Field("b", model.BGPHostIPv4) == "172.18.0.1" && b.tell.health.Unready() == ""
	})
	// The other returns: now it is the second.
	a = c.person("a", eth0("172.18.0.1/24"), nil)
	c.until("refused", func() bool { return strings.Contains(a.tell.health.Unready(), "address 172.18.0.1 is that of host b") })
	c.until("nothing is said of it", func() bool { return c.etcd.Field("a", model.BGPHostIPv4) == "" })
	a.move(eth0("172.18.0.2/24"))
	c.until("another is taken", func() bool {
		return c.etcd.Field("a", model.BGPHostIPv4) == "172.18.0.2" && a.tell.health.Unready() == ""
	})
}

// TestSameAddressOfOneFamily: what another host has of one family costs no address of the
// other.
func TestSameAddressOfOneFamily(t *testing.T) {
	c := newFleet(t)
	c.person("a", eth0("172.18.0.1/24", "fd18::1/64"), dualStack(t))
	c.until("status of a", func() bool {
		return c.get(model.StatusKey{Host: "a"}) != nil && c.etcd.Field("a", model.BGPHostIPv6) != ""
	})
	c.put(model.BGPHostKey{Host: "b", Field: model.BGPHostIPv6}, model.Text("fd18::1"))
	b := c.person("b", eth0("172.18.0.2/24", "fd18::1/64"), func(cfg *Config, _ *identity) {
		dualStack(t)(cfg, nil)
		cfg.AS = 65546
	})
	c.until("one is written, the other is not", func() bool {
		return c.etcd.Field("b", model.BGPHostIPv4) == "172.18.0.2" && c.etcd.Field("b", model.BGPHostIPv6) == "" && c.etcd.Field("b", model.BGPHostAS) == "65546" &&
			c.get(model.StatusKey{Host: "b"}) != nil
	})
	want := "address fd18::1 is that of host a, which lives"
	c.until("refused", func() bool {
		return strings.Contains(b.tell.health.Unready(), want) && strings.Contains(b.problem("IP6"), want) && b.problem("IP") == ""
	})
	b.move(eth0("172.18.0.2/24", "fd18::2/64"))
	c.until("another is taken", func() bool { return c.etcd.Field("b", model.BGPHostIPv6) == "fd18::2" && b.tell.health.Unready() == "" })
	if got := c.etcd.Field("b", model.BGPHostIPv4); got != "172.18.0.2" {
		t.Errorf("IPv4 is %s", got)
	}
}

// TestSameAddressAtOnce: of many that start at the same time one has it in the end.
func TestSameAddressAtOnce(t *testing.T) {
	c := newFleet(t)
	names := []string{"a", "b", "c", "d"}
	var all []*person
	for _, name := range names {
		all = append(all, c.person(name, eth0("172.18.0.1/24"), nil))
	}
	settled := func() bool {
		have, ready := 0, 0
		for _, p := range all {
			if c.etcd.Field(p.name, model.BGPHostIPv4) != "" {
				have++
			}
			if p.tell.health.Unready() == "" && p.named() {
				ready++
			}
			if c.get(model.StatusKey{Host: p.name}) == nil {
				return false
			}
		}
		return have == 1 && ready == 1
	}
	c.until("one has it", settled)
}

// TestSameName: the second of two hosts of one name writes nothing, nor that it
// lives, until the first is gone.
func TestSameName(t *testing.T) {
	c := newFleet(t)
	first := c.person("a", eth0("172.18.0.1/24"), nil)
	status := model.StatusKey{Host: "a"}
	c.until("status", func() bool { return c.get(status) != nil && c.etcd.Field("a", model.BGPHostIPv4) != "" })
	lease := c.leaseOf(status)
	second := c.person("a", eth0("172.18.0.2/24"), nil)
	want := "another host that is called a lives and has 172.18.0.1"
	c.until("refused", func() bool {
		return strings.Contains(second.tell.health.Unready(), want) && strings.Contains(second.problem(problemName), want)
	})
	if got := c.etcd.Field("a", model.BGPHostIPv4); got != "172.18.0.1" {
		t.Errorf("the address is %s", got)
	}
	if c.leaseOf(status) != lease {
		t.Error("the second says that it lives")
	}
	if reason := first.tell.health.Unready(); reason != "" {
		t.Errorf("the first is not ready: %s", reason)
	}
	first.stop()
	c.remove(status)
	c.until("the second has it all", func() bool {
		return c.etcd.Field("a", model.BGPHostIPv4) == "172.18.0.2" && c.get(status) != nil && second.tell.health.Unready() == ""
	})
}

// TestSameNameAtOnce: of several of one name that start at once, one is left.
func TestSameNameAtOnce(t *testing.T) {
	c := newFleet(t)
	var all []*person
	for _, addr := range []string{"172.18.0.1/24", "172.18.0.2/24", "172.18.0.3/24"} {
		all = append(all, c.person("a", eth0(addr), nil))
	}
	c.until("one is left", func() bool {
		ready := 0
		for _, p := range all {
			if p.tell.health.Unready() == "" && p.named() {
				ready++
			}
		}
		return ready == 1 && c.get(model.StatusKey{Host: "a"}) != nil && c.etcd.Field("a", model.BGPHostIPv4) != ""
	})
}

// TestCanReach asks the kernel of this process: the way to an address of its own.
func TestCanReach(t *testing.T) {
	for _, tt := range []struct{ target, want string }{
		{"192.0.2.100", "192.0.2.100"}, // main_test.go
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
