// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

func TestAssignRefuses(t *testing.T) {
	v4 := Request{Host: "a", Handle: "h", IPv4: true, Now: noon.Add(10 * time.Minute)}
	with := func(f func(*Request)) Request {
		r := v4
		f(&r)
		return r
	}
	full := func(s *etcd) { s.fillAll("b", 4, quarters...) }
	cases := []struct {
		name    string
		setup   func(*etcd)
		request Request
		want    string
		pools   []model.Pool
	}{
		{"no pool of the family", nil, with(func(r *Request) { r.IPv6 = true }), "no IPv6 pool exists: create one", []model.Pool{{CIDR: cidr("10.0.0.0/28")}}},
		{"no pool may serve", func(s *etcd) {
			s.put(model.PoolKey{CIDR: cidr("10.3.0.0/24")}, model.Pool{CIDR: cidr("10.3.0.0/24")})
			s.putText("/calico/v1/ipam/v4/pool/10.4.0.0-24", "{")
			s.putText("/calico/v1/ipam/v4/pool/10.5.0.0-24", `{"cidr":"10.5.0.0/24","node_selector":"name =="}`)
		}, v4, `no IPv4 pool may serve this node: pool 10.1.0.0/24: disabled; pool 10.2.0.0/24: its node_selector name == "b" does not pick this node; ` +
			`pool 10.3.0.0/24: its ipam is false; pool 10.4.0.0/24: invalid: *; pool 10.5.0.0/24: invalid: *`,
			[]model.Pool{{CIDR: cidr("10.1.0.0/24"), Disabled: true}, {CIDR: cidr("10.2.0.0/24"), NodeSelector: `name == "b"`}}},
		{"unknown pool", nil, with(func(r *Request) { r.Pools4 = pools("10.7.0.0/16") }), "requested pool 10.7.0.0/16: no such pool, there are 10.0.0.0/28", nil},
		{"pool of the other family", nil, with(func(r *Request) { r.Pools4 = pools("fd00::/124") }), "requested pool fd00::/124: not an IPv4 pool", nil},
		{"unknown name", nil, with(func(r *Request) { r.Pools4 = pools("10.0.0.0-28", "public") }), "requested pool public: no such pool, there are 10.0.0.0-28, private",
			[]model.Pool{{CIDR: cidr("10.0.0.0/28")}, {CIDR: cidr("10.1.0.0/28"), Meta: model.Meta{Name: "private"}}}},
		{"name of a pool of the other family", nil, with(func(r *Request) { r.Pools4 = pools("six") }), "requested pool six: not an IPv4 pool",
			[]model.Pool{{CIDR: cidr("10.0.0.0/28")}, {CIDR: cidr("fd00::/124"), Meta: model.Meta{Name: "six"}}}},
		{"of requested pools those alone that pick the node", nil, with(func(r *Request) { r.Picked, r.Pools4 = true, pools("10.1.0.0/24") }),
			"no IPv4 pool may serve this node: pool 10.1.0.0/24: its node_selector !all() does not pick this node", []model.Pool{{CIDR: cidr("10.1.0.0/24"), NodeSelector: "!all()"}}},
		{"a requested pool that may not serve", nil, with(func(r *Request) { r.Pools4 = pools("10.1.0.0/24") }), "no IPv4 pool may serve this node: pool 10.1.0.0/24: disabled",
			[]model.Pool{{CIDR: cidr("10.1.0.0/24"), Disabled: true}, {CIDR: cidr("10.2.0.0/24")}}},
		{"exhausted", func(s *etcd) { s.fillAll("b", 4, quarters...); s.fill("10.1.0.0/24", "b", 1) }, v4,
			"no free IPv4 address: pool 10.1.0.0/24: disabled; pool 10.0.0.0/28: no room for a new block; 4 of its 4 blocks are full",
			[]model.Pool{{CIDR: cidr("10.0.0.0/28"), BlockSize: 30}, {CIDR: cidr("10.1.0.0/24"), Disabled: true}}},
		{"exhausted, strict", func(s *etcd) {
			full(s)
			s.config(true, true)
			s.fill("10.0.0.4/30", "b", 3)
			s.fill("10.0.0.8/30", "b", 0)
			s.edit("10.0.0.8/30", func(b *model.Block) { b.EmptySince = v4.Now })
			s.putText("/calico/ipam/v2/assignment/ipv4/block/10.0.0.12-30", "{}")
		}, v4, "no free IPv4 address: pool 10.0.0.0/28: no room for a new block; 1 of its 4 blocks are full; " +
			"2 of its 4 blocks have free addresses, and may not be borrowed from: affinity is strict; " +
			"1 of its 4 blocks have been empty for too short a time to take over; 1 of its 4 blocks are invalid and left alone", nil},
		{"exhausted, no new blocks", func(s *etcd) { s.config(true, false); s.fill("10.0.0.4/30", "a", 4) }, v4,
			"no free IPv4 address: pool 10.0.0.0/28: this node has no free address in blocks of its own, and auto_allocate_blocks is false", nil},
		{"exhausted, another's pool inside", func(s *etcd) { s.othersPool("10.0.0.0/26") }, v4, "no free IPv4 address: pool 10.0.0.0/26: its ipam is false; pool 10.0.0.0/24: no room for a new block; it overlaps pool 10.0.0.0/26",
			[]model.Pool{{CIDR: cidr("10.0.0.0/24"), BlockSize: 24}}},
		{"an older pool is full", func(s *etcd) { s.fill("10.0.0.0/26", "a", 64) }, v4,
			"no free IPv4 address: pool 10.0.0.0/24: it overlaps pool 10.0.0.0/26, which is older; pool 10.0.0.0/26: no room for a new block; 1 of its 1 blocks are full",
			[]model.Pool{{CIDR: cidr("10.0.0.0/26")}, {CIDR: cidr("10.0.0.0/24")}}},
		{"an older pool is invalid", func(s *etcd) { s.putText("/calico/v1/ipam/v4/pool/10.0.0.0-26", "{") }, v4,
			"no IPv4 pool may serve this node: pool 10.0.0.0/24: it overlaps pool 10.0.0.0/26, which is older; pool 10.0.0.0/26: invalid: *",
			[]model.Pool{{CIDR: cidr("10.0.0.0/26")}, {CIDR: cidr("10.0.0.0/24")}}},
		{"both or neither", func(s *etcd) {
			s.fill("10.0.0.4/30", "a", 1)
			s.fillAll("b", 4, "fd00::/125", "fd00::8/125")
			s.fillAll("b", 8, "fd00::/125", "fd00::8/125")
		},
			with(func(r *Request) { r.IPv6 = true }), "no free IPv6 address: pool fd00::/124: *", nil},
		{"what is left is reserved", func(s *etcd) {
			s.fill("10.0.0.0/30", "a", 2)
			s.reserve("r", "10.0.0.2/31", "10.0.0.8/29")
			s.fill("10.0.0.4/30", "b", 4)
		}, v4,
			"no free IPv4 address: pool 10.0.0.0/28: no room for a new block; some of its addresses are reserved; 2 of its 2 blocks are full", nil},
		{"invalid reservation", func(s *etcd) { s.reserve("r"); s.putText("/calico/ipam/v2/reservation/x", `{"cidrs":7}`) }, v4,
			"which addresses are reserved? invalid /calico/ipam/v2/reservation/x: cidrs: want a list, have a number; correct or delete it", nil},
		{"pools for others", func(s *etcd) { s.labels("web", nil) }, with(func(r *Request) { r.Namespace = "web" }),
			"no IPv4 pool may serve this node: pool 10.1.0.0/24: its assignment_mode is Manual, and nothing asks for it; " +
				`pool 10.2.0.0/24: its namespace_selector has(team) does not pick namespace web; pool 10.3.0.0/24: disabled`,
			[]model.Pool{{CIDR: cidr("10.1.0.0/24"), Manual: true}, {CIDR: cidr("10.2.0.0/24"), NamespaceSelector: "has(team)"}, {CIDR: cidr("10.3.0.0/24"), NamespaceSelector: "all()", Disabled: true}}},
		{"pools for pods", nil, v4, "no IPv4 pool may serve this node: pool 10.2.0.0/24: its namespace_selector !has(team) is for pods of Kubernetes",
			[]model.Pool{{CIDR: cidr("10.2.0.0/24"), NamespaceSelector: "!has(team)"}}},
		{"a namespace that isn't known yet", nil, with(func(r *Request) { r.Namespace = "web" }),
			"namespace web has no profile in etcd yet, so its labels can't be compared with the namespace_selector of pool 10.2.0.0/24",
			[]model.Pool{{CIDR: cidr("10.1.0.0/24")}, {CIDR: cidr("10.2.0.0/24"), NamespaceSelector: "!has(team)"}}},
		{"a namespace that can't be read", func(s *etcd) { s.putText("/calico/v1/policy/profile/k8s_ns.web/labels", "7") }, with(func(r *Request) { r.Namespace = "web" }),
			"invalid /calico/v1/policy/profile/k8s_ns.web/labels: *; correct or delete it", []model.Pool{{CIDR: cidr("10.2.0.0/24"), NamespaceSelector: "!has(team)"}}},
		{"invalid configuration", func(s *etcd) { s.putText("/calico/ipam/v2/config", `{"strict_affinity":7}`) }, v4,
			"may this node claim a block or borrow? invalid /calico/ipam/v2/config: *; correct or delete it", nil},
		{"invalid handle", func(s *etcd) { s.putText("/calico/ipam/v2/handle/h", `7`) }, v4, "invalid /calico/ipam/v2/handle/h: *; correct or delete it", nil},
		{"invalid block of the handle", func(s *etcd) {
			s.fill("10.0.0.4/30", "a", 1)
			s.putText("/calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30", `[]`)
		}, with(func(r *Request) { r.Handle = "x.10.0.0.4" }), "invalid /calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30: *; correct it, and don't delete it while workloads have its addresses", nil},
		{"no family", nil, with(func(r *Request) { r.IPv4 = false }), "assign addresses: neither IPv4 nor IPv6 is asked for", nil},
		{"no handle", nil, with(func(r *Request) { r.Handle = "" }), "assign addresses: a request names its host and its handle", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := world(t, c.pools...)
			if c.setup != nil {
				c.setup(s)
			}
			choice, p, err := s.planAssign(c.request)
			if err == nil {
				t.Fatalf("got %v", s.describe(choice, p))
			}
			if !matches(c.want, err.Error()) {
				t.Errorf("%s", cmp.Diff(c.want, err.Error()))
			}
			if e, ok := errors.AsType[*ExhaustedError](err); ok && e.Fixed != strings.Contains(c.want, "auto_allocate_blocks is false") {
				t.Errorf("Fixed is %t", e.Fixed)
			}
			if !p.Change().Empty() {
				t.Errorf("writes %v", p.Change())
			}
		})
	}
}

// matches compares with a pattern in which * stands for any text.
func matches(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	for i, part := range parts[1:] {
		at := strings.Index(s, part)
		if i == len(parts)-2 {
			at = len(s) - len(part)
		}
		if at < 0 || !strings.HasSuffix(s[:at]+part, part) || s[at:at+len(part)] != part {
			return false
		}
		s = s[at+len(part):]
	}
	return len(parts) == 1 && s == "" || len(parts) > 1
}
