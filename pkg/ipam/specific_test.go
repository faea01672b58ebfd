// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

func TestSpecific(t *testing.T) {
	cases := []struct {
		name    string
		setup   func(*etcd)
		addrs   []string
		request func(*Request)
		want    []string
		err     string
	}{
		{name: "its block is made", addrs: []string{"10.0.0.9"}, want: []string{"10.0.0.9 new"}},
		{name: "two of a new block", addrs: []string{"10.0.0.11", "10.0.0.9"}, want: []string{"10.0.0.11 new", "10.0.0.9 new"}},
		{name: "of both families", addrs: []string{"fd00::7", "10.0.0.9"}, want: []string{"10.0.0.9 new", "fd00::7 new"}},
		{name: "IPv4 written as IPv6, twice", addrs: []string{"::ffff:10.0.0.9", "10.0.0.9"}, want: []string{"10.0.0.9 new"}},
		{name: "the other family is chosen", addrs: []string{"fd00::7"}, want: []string{"10.0.0.0 new", "fd00::7 new"}},
		{name: "own block", setup: func(s *etcd) { s.fill("10.0.0.8/30", "a", 1) }, addrs: []string{"10.0.0.11"}, want: []string{"10.0.0.11 of a"}},
		{name: "borrowed", setup: func(s *etcd) { s.fill("10.0.0.8/30", "b", 1) }, addrs: []string{"10.0.0.11"}, want: []string{"10.0.0.11 of b"}},
		{name: "of another's empty block", setup: func(s *etcd) { s.fill("10.0.0.8/30", "b", 0) }, addrs: []string{"10.0.0.11"}, want: []string{"10.0.0.11 taken over from b"}},
		{name: "of a strict block of a node that left", setup: func(s *etcd) {
			s.config(true, true)
			s.fill("10.0.0.8/30", "gone", 0)
			s.edit("10.0.0.8/30", func(b *model.Block) { b.EmptySince = noon.Add(time.Hour) })
		}, addrs: []string{"10.0.0.11"}, want: []string{"10.0.0.11 taken over from gone"}},
		{name: "the handle has it", setup: func(s *etcd) { s.fill("10.0.0.8/30", "b", 2) }, request: func(r *Request) { r.Handle = "x.10.0.0.9" },
			addrs: []string{"10.0.0.9"}, want: []string{"10.0.0.9 existing"}},
		{name: "the handle has another", setup: func(s *etcd) { s.fill("10.0.0.8/30", "b", 2) }, request: func(r *Request) { r.Handle = "x.10.0.0.9" },
			addrs: []string{"10.0.0.10"}, want: []string{"10.0.0.10 of b"}},

		{name: "taken", setup: func(s *etcd) { s.fill("10.0.0.8/30", "b", 2) }, addrs: []string{"10.0.0.9"}, err: "address 10.0.0.9 is taken by handle x.10.0.0.9"},
		{name: "taken without a handle", setup: func(s *etcd) {
			s.fill("10.0.0.8/30", "b", 2)
			s.edit("10.0.0.8/30", func(b *model.Block) { b.Attributes[1].HandleID = "" })
		}, addrs: []string{"10.0.0.9"}, err: "address 10.0.0.9 is taken, without a handle, in block 10.0.0.8/30"},
		{name: "one of two taken", setup: func(s *etcd) { s.fill("10.0.0.8/30", "a", 2) }, addrs: []string{"10.0.0.10", "10.0.0.9"}, err: "address 10.0.0.9 is taken by handle x.10.0.0.9"},
		{name: "strict", setup: func(s *etcd) { s.config(true, true); s.fill("10.0.0.8/30", "b", 2) }, addrs: []string{"10.0.0.11"},
			err: `address 10.0.0.11: block 10.0.0.8/30 belongs to node "b" and affinity is strict`},
		{name: "in no pool", addrs: []string{"10.0.0.16"}, err: "address 10.0.0.16: in no pool; pools that may serve this node: 10.0.0.0/28"},
		{name: "no pool at all", setup: func(s *etcd) { s.delete(model.PoolKey{CIDR: cidr("10.0.0.0/28")}) }, addrs: []string{"10.0.0.9"}, err: "address 10.0.0.9: no IPv4 pool exists: create one"},
		{name: "in a pool that may not serve", setup: func(s *etcd) { s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30, Disabled: true}) },
			addrs: []string{"10.0.0.9"}, err: "address 10.0.0.9: pool 10.0.0.0/28 may not serve it: disabled"},
		{name: "in a pool that isn't requested", setup: func(s *etcd) { s.pool(model.Pool{CIDR: cidr("10.1.0.0/28")}) }, request: func(r *Request) { r.Pools4 = pools("10.1.0.0/28") },
			addrs: []string{"10.0.0.9"}, err: "address 10.0.0.9: pool 10.0.0.0/28 may not serve it: it is not among the requested pools"},
		{name: "no new blocks", setup: func(s *etcd) { s.config(true, false) }, addrs: []string{"10.0.0.9"}, err: "address 10.0.0.9: no block has it, and auto_allocate_blocks is false"},
		{name: "no room for its block", setup: func(s *etcd) { s.fill("10.0.0.10/32", "b", 1) }, addrs: []string{"10.0.0.9"},
			err: "address 10.0.0.9: its block would be 10.0.0.8/30, which overlaps block 10.0.0.10/32"},
		{name: "where pools overlap", setup: func(s *etcd) { s.othersPool("10.0.0.8/32") }, addrs: []string{"10.0.0.9"},
			err: "address 10.0.0.9: its block would be 10.0.0.8/30, where two pools overlap"},
		{name: "in a block that reaches beyond the pool", setup: func(s *etcd) { s.fill("10.0.0.0/27", "a", 1) }, addrs: []string{"10.0.0.9"},
			err: "address 10.0.0.9: block 10.0.0.0/27 reaches beyond pool 10.0.0.0/28"},
		{name: "in an invalid block", setup: func(s *etcd) { s.putText("/calico/ipam/v2/assignment/ipv4/block/10.0.0.8-30", "{") }, addrs: []string{"10.0.0.9"},
			err: "address 10.0.0.9: invalid /calico/ipam/v2/assignment/ipv4/block/10.0.0.8-30: *; correct it, and don't delete it while workloads have its addresses"},
		{name: "with a zone", addrs: []string{"fe80::1%eth0"}, err: "address fe80::1%eth0: not an address that a workload may have"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := world(t)
			if c.setup != nil {
				c.setup(s)
			}
			r := Request{Host: "a", Handle: "h", IPv4: true, Now: noon.Add(10 * time.Minute)}
			for _, a := range c.addrs {
				r.Addrs = append(r.Addrs, addr(a))
			}
			if c.request != nil {
				c.request(&r)
			}
			choice, p, err := s.planAssign(r)
			if c.err != "" {
				if err == nil || !matches(c.err, err.Error()) {
					t.Fatalf("want %s, got %v", c.err, err)
				}
				if !p.Change().Empty() {
					t.Errorf("writes %v", p.Change())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, s.describe(choice, p)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if err := s.commit(p.Change()); err != nil {
				t.Fatal(err)
			}
			s.mustBeSound()
		})
	}
}

// An address that a block has as free, or that is in no block, is not taken from the endpoint that has it. Endpoints
// are read only for requests for specific addresses.
func TestEndpointHasAddress(t *testing.T) {
	const block = "10.0.0.8/30"
	for name, tt := range map[string]struct {
		host  string // the endpoint's
		setup func(*etcd)
	}{
		"no block":           {"b", func(*etcd) {}},
		"another's":          {"b", func(s *etcd) { s.fill(block, "b", 1) }},
		"the host's":         {"a", func(s *etcd) { s.fill(block, "a", 1) }},
		"borrowed":           {"a", func(s *etcd) { s.fill(block, "b", 1) }},
		"of a host no more":  {"c", func(s *etcd) { s.fill(block, "", 1) }},
		"far in a long list": {"b", func(s *etcd) { s.fillHosts(endpointPage + 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			its := model.WorkloadEndpointKey{Host: tt.host, Orchestrator: "cni", Workload: "web", Endpoint: "eth0"}
			s := world(t)
			tt.setup(s)
			s.put(its, model.WorkloadEndpoint{State: model.StateActive, Name: "cali1", MAC: must(model.ParseMAC("ee:ee:ee:ee:ee:ee")), IPv4Nets: []netip.Prefix{cidr("10.0.0.9/32")}})
			r := Request{Host: "a", Handle: "h", IPv4: true, Addrs: []netip.Addr{addr("10.0.0.9")}, Now: noon}
			_, p, err := s.planAssign(r)
			if taken, ok := errors.AsType[*TakenError](err); !ok || taken.Endpoint != its.Path() || !p.Change().Empty() {
				t.Errorf("got %v", err)
			}
			for what, r := range map[string]Request{
				"its own":  {Host: "a", Handle: "h", Addrs: r.Addrs, Endpoint: its, Now: noon},
				"a living": {Host: "b", Handle: "h", Addrs: r.Addrs, Living: true, Now: noon},
				"another":  {Host: "a", Handle: "h", Addrs: []netip.Addr{addr("10.0.0.10")}, Now: noon},
				"any":      {Host: "a", Handle: "h", IPv4: true, Now: noon},
			} {
				_, p, err := s.planAssign(r)
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
				reads := slices.ContainsFunc(p.view.Ranges(), func(r model.Range) bool { return strings.HasPrefix(r.Prefix, model.HostPrefix("")) })
				if reads != (what == "its own" || what == "another") {
					t.Errorf("%s: reads endpoints: %t", what, reads)
				}
			}
		})
	}
}

func TestTakenErrorNamesTheHolder(t *testing.T) {
	s := world(t)
	if _, err := s.assign(Request{Host: "b", Handle: "h1", Attributes: map[string]string{"pod": "web"}, Addrs: []netip.Addr{addr("10.0.0.9")}}); err != nil {
		t.Fatal(err)
	}
	_, err := s.assign(Request{Host: "a", Handle: "h2", Addrs: []netip.Addr{addr("10.0.0.9")}})
	taken, ok := errors.AsType[*TakenError](err)
	if !ok || taken.Handle != "h1" || taken.Attributes["pod"] != "web" || taken.Block != cidr("10.0.0.8/30") {
		t.Errorf("got %#v", err)
	}
}
