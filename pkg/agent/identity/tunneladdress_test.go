// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

func vxlanPool(cidr string) model.Pool {
	return model.Pool{CIDR: netip.MustParsePrefix(cidr), IPAM: true, VXLANMode: "always"}
}

func (c fleet) setPool(p model.Pool) { c.Put(model.PoolKey{CIDR: p.CIDR}, p) }

const (
	vxlanConfig = "IPv4VXLANTunnelAddr"
	ipipConfig  = "IpInIpTunnelAddr"
)

func handleOf(kind plan.TunnelKind, host string) string { return string(kind) + "-tunnel-addr-" + host }

// TestTunnelAddress: a tunnel gets an address of its pool, and etcd says which; a host that returns finds it again; it is freed with the
// tunnel.
func TestTunnelAddress(t *testing.T) {
	c := newFleet(t, vxlanPool("10.65.0.0/24"))
	p := c.person("a", eth0("172.18.0.1/24"), nil)
	c.Until("address", func() bool {
		tunnel := p.tunnel(plan.VXLAN4)
		return tunnel != nil && tunnel.Addr.IsValid() && c.Setting("a", vxlanConfig) == tunnel.Addr.String()
	})
	addr := p.tunnel(plan.VXLAN4).Addr
	if held := c.Held(handleOf(plan.VXLAN4, "a")); !slices.Equal(held, []netip.Addr{addr}) {
		t.Errorf("held: %v", held)
	}
	c.Check()
	first := c.revisions("a")

	p.stop()
	p = c.person("a", eth0("172.18.0.1/24"), nil)
	c.Until("the same address", func() bool {
		tunnel := p.tunnel(plan.VXLAN4)
		return tunnel != nil && tunnel.Addr == addr && p.named()
	})
	if now := c.revisions("a"); !maps.Equal(first, now) {
		t.Errorf("written again: %v, was %v", now, first)
	}
	// Its setting is lost, or wrong.
	c.Put(model.HostConfigKey{Host: "a", Name: vxlanConfig}, model.Text("10.65.0.99"))
	c.Until("setting", func() bool { return c.Setting("a", vxlanConfig) == addr.String() })
	c.Remove(model.HostConfigKey{Host: "a", Name: vxlanConfig})
	c.Until("setting", func() bool { return c.Setting("a", vxlanConfig) == addr.String() })

	// The pool is for IPIP now: one goes and the other comes.
	c.setPool(model.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/24"), IPAM: true, IPIP: "tunl0"})
	c.Until("IPIP's address", func() bool { return c.Setting("a", ipipConfig) != "" && c.Setting("a", vxlanConfig) == "" })
	c.Until("VXLAN's is free", func() bool {
		return len(c.Held(handleOf(plan.VXLAN4, "a"))) == 0 && len(c.Held(handleOf(plan.IPIP, "a"))) == 1
	})
	c.Check()

	// Another pool: the address is taken from that.
	c.setPool(model.Pool{CIDR: netip.MustParsePrefix("10.66.0.0/24"), IPAM: true, IPIP: "tunl0"})
	c.Remove(model.PoolKey{CIDR: netip.MustParsePrefix("10.65.0.0/24")})
	c.Until("an address of the other pool", func() bool {
		held := c.Held(handleOf(plan.IPIP, "a"))
		return len(held) == 1 && strings.HasPrefix(held[0].String(), "10.66.0.") && c.Setting("a", ipipConfig) == held[0].String()
	})
	c.Check()

	c.setPool(model.Pool{CIDR: netip.MustParsePrefix("10.66.0.0/24"), IPAM: true})
	c.Until("no tunnel", func() bool {
		return c.Setting("a", ipipConfig) == "" && len(c.Held(handleOf(plan.IPIP, "a"))) == 0
	})
	c.Check()
	if all := p.problems.All(); len(all) > 0 {
		t.Errorf("problems: %v", all)
	}
}

// TestTunnelAddressesAtOnce: many hosts take addresses from a few blocks at the
// same time.
func TestTunnelAddressesAtOnce(t *testing.T) {
	pool := vxlanPool("10.65.0.0/29")
	pool.BlockSize = 30
	c := newFleet(t, pool)
	const hosts = 8
	for n := range hosts {
		c.person(fmt.Sprint("h", n), eth0(fmt.Sprintf("172.18.0.%d/24", n+1)), nil)
	}
	seen := map[string]bool{}
	c.Until("all have one", func() bool {
		clear(seen)
		for n := range hosts {
			seen[c.Setting(fmt.Sprint("h", n), vxlanConfig)] = true
		}
		return len(seen) == hosts && !seen[""]
	})
	c.Check()

	// One more finds none left, says so, and is given one that is freed.
	late := c.person("late", eth0("172.18.0.99/24"), nil)
	what := problemTunnel(handleOf(plan.VXLAN4, "late"))
	c.Until("there is none left", func() bool { return strings.Contains(late.problem(what), "10.65.0.0/29") })
	c.setPool(vxlanPool("10.66.0.0/24"))
	c.Until("there is another pool", func() bool { return c.Setting("late", vxlanConfig) != "" && late.problem(what) == "" })
	c.Check()
}

// TestTunnelAddressKilled ends the writing goroutine at each of its steps, as if the process were killed there; the next one finds
// everything in order.
func TestTunnelAddressKilled(t *testing.T) {
	for _, at := range []string{"tunnel address read", "tunnel address before commit", "tunnel address committed"} {
		t.Run(at, func(t *testing.T) {
			c := newFleet(t, vxlanPool("10.65.0.0/24"))
			kill := func(_ *Config, i *Host) {
				if i == nil {
					return
				}
				i.step = func(name string) {
					if name == at {
						runtime.Goexit()
					}
				}
			}
			p := c.person("a", eth0("172.18.0.1/24"), kill)
			c.Until("killed", p.ended)
			p.stop()
			c.Check()
			before := c.Held(handleOf(plan.VXLAN4, "a"))
			if committed := at == "tunnel address committed"; committed != (len(before) == 1) || committed != (c.Setting("a", vxlanConfig) != "") {
				t.Errorf("held: %v, setting %q", before, c.Setting("a", vxlanConfig))
			}
			p = c.person("a", eth0("172.18.0.1/24"), nil)
			c.Until("address", func() bool { return c.Setting("a", vxlanConfig) != "" })
			after := c.Held(handleOf(plan.VXLAN4, "a"))
			if len(after) != 1 || len(before) == 1 && before[0] != after[0] {
				t.Errorf("held: %v, before %v", after, before)
			}
			c.Check()
			p.stop()
			// And so does the release.
			p = c.person("a", eth0("172.18.0.1/24"), kill)
			c.setPool(model.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/24"), IPAM: true})
			c.Until("killed", p.ended)
			p.stop()
			c.Check()
			c.person("a", eth0("172.18.0.1/24"), nil)
			c.Until("released", func() bool {
				return c.Setting("a", vxlanConfig) == "" && len(c.Held(handleOf(plan.VXLAN4, "a"))) == 0
			})
			c.Check()
		})
	}
}

// TestTunnelAddressRevisions: the invariants hold at every revision.
func TestTunnelAddressRevisions(t *testing.T) {
	c := newFleet(t)
	var mu sync.Mutex
	all := map[string]model.Entry{}
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() {
		watched <- c.Store.Watch(ctx, []string{"/calico/"}, func(u model.Update) error {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range u.Entries {
				if e.Exists() {
					all[e.Path] = e
				} else {
					delete(all, e.Path)
				}
			}
			for _, v := range invariants.Check(slices.Collect(maps.Values(all))) {
				if !v.Note {
					t.Errorf("revision %d: %s", u.Revision, v)
				}
			}
			// What the setting says is allocated in the same revision.
			for _, host := range []string{"a", "b", "c"} {
				text, _ := all[model.HostConfigKey{Host: host, Name: vxlanConfig}.Path()].Value.(model.Text)
				_, held := all[model.HandleKey{ID: handleOf(plan.VXLAN4, host)}.Path()]
				if (text != "") != held {
					t.Errorf("revision %d: %s has the setting %q, held is %v", u.Revision, host, text, held)
				}
			}
			return nil
		})
	}()
	var people []*person
	for n, name := range []string{"a", "b", "c"} {
		people = append(people, c.person(name, eth0(fmt.Sprintf("172.18.0.%d/24", n+1)), nil))
	}
	for _, mode := range []model.EncapMode{"always", "", "cross-subnet", ""} {
		pool := vxlanPool("10.65.0.0/26")
		pool.VXLANMode, pool.BlockSize = mode, 28
		c.setPool(pool)
		c.Until("mode "+string(mode), func() bool {
			for _, p := range people {
				if (c.Setting(p.name, vxlanConfig) != "") != (mode != "") {
					return false
				}
			}
			return true
		})
	}
	cancel()
	if err := <-watched; err != nil {
		t.Error(err)
	}
}

// TestTunnelAddressWithoutHandle covers a tunnel's address that Calico took before version 3.6: only the host's setting says whose it is.
// It is kept, and has a handle from then on; the address of an endpoint, or of another handle, is left alone.
func TestTunnelAddressWithoutHandle(t *testing.T) {
	block, addr := netip.MustParsePrefix("10.65.0.0/30"), netip.MustParseAddr("10.65.0.1")
	for name, tt := range map[string]struct {
		handle   string
		endpoint bool
		affinity string
		setting  string
		kept     bool
	}{
		"the host's block":  {affinity: "a", setting: "10.65.0.1", kept: true},
		"borrowed":          {affinity: "b", setting: "10.65.0.1", kept: true},
		"a handle has it":   {affinity: "a", setting: "10.65.0.1", handle: "x"},
		"an endpoint's":     {affinity: "a", setting: "10.65.0.1", endpoint: true},
		"a free address":    {affinity: "a", setting: "10.65.0.2"},
		"another pool's":    {affinity: "a", setting: "10.66.0.1"},
		"nothing that is":   {affinity: "a", setting: "tunl0"},
		"there is no block": {setting: "10.65.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := model.Pool{CIDR: netip.MustParsePrefix("10.65.0.0/24"), IPAM: true, IPIP: "tunl0", BlockSize: 30}
			c := newFleet(t)
			if tt.affinity != "" {
				c.Put(model.BlockKey{CIDR: block}, model.Block{CIDR: block, Affinity: tt.affinity, Allocations: []int{model.Free, 0, model.Free, model.Free},
					Unallocated: []int{2, 3, 0}, Attributes: []model.Attributes{{HandleID: tt.handle}}})
				c.Put(model.AffinityKey{Host: tt.affinity, CIDR: block}, model.Affinity{})
			}
			if tt.handle != "" {
				c.Put(model.HandleKey{ID: tt.handle}, model.Handle{ID: tt.handle, Blocks: map[netip.Prefix]int{block: 1}})
			}
			if tt.endpoint {
				c.Put(model.WorkloadEndpointKey{Host: "a", Orchestrator: "k8s", Workload: "ns.pod", Endpoint: "eth0"},
					model.WorkloadEndpoint{State: model.StateActive, Name: "cali1", IPv4Nets: []netip.Prefix{netip.PrefixFrom(addr, 32)}})
			}
			c.Put(model.HostConfigKey{Host: "a", Name: ipipConfig}, model.Text(tt.setting))
			c.setPool(pool)
			p := c.person("a", eth0("172.18.0.1/24"), nil)
			c.Until("address", func() bool {
				tunnel := p.tunnel(plan.IPIP)
				return tunnel != nil && tunnel.Addr.IsValid() && c.Setting("a", ipipConfig) == tunnel.Addr.String()
			})
			if got := p.tunnel(plan.IPIP).Addr; (got == addr) != tt.kept && tt.affinity != "" {
				t.Errorf("it has %s", got)
			}
			if held := c.Held(handleOf(plan.IPIP, "a")); len(held) != 1 {
				t.Errorf("it holds %v", held)
			}
			c.Check()
		})
	}
}
