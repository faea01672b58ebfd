// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// The fate of the block of a handle's only address.
func TestReleaseLeaves(t *testing.T) {
	const c = "10.0.0.4/30"
	later := noon.Add(time.Hour)
	cases := []struct {
		name  string
		setup func(*etcd)
		kept  bool
	}{
		{"a block that is the host's", func(s *etcd) { s.fill(c, "a", 1) }, true},
		{"a block of nobody", func(s *etcd) { s.fill(c, "", 1) }, false},
		{"a block without a pool", func(s *etcd) { s.fill(c, "a", 1); s.delete(model.PoolKey{CIDR: cidr("10.0.0.0/28")}) }, false},
		{"a block of a disabled pool", func(s *etcd) {
			s.fill(c, "a", 1)
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30, Disabled: true})
		}, false},
		{"a block of another size than its pool's", func(s *etcd) { s.fill(c, "a", 1); s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 29}) }, false},
		{"a strict block without a pool", func(s *etcd) {
			s.fill(c, "a", 1)
			s.edit(c, func(b *model.Block) { b.StrictAffinity = true })
			s.delete(model.PoolKey{CIDR: cidr("10.0.0.0/28")})
		}, true},
		{"a block of nobody where people make blocks", func(s *etcd) { s.fill(c, "", 1); s.config(true, false) }, true},
		{"a block of an invalid pool", func(s *etcd) { s.fill(c, "a", 1); s.putText("/calico/v1/ipam/v4/pool/10.0.0.0-28", "{") }, true},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			s := world(t)
			tt.setup(s)
			before := len(violations(s))
			freed, err := s.release("x.10.0.0.4", later)
			if err != nil || !slices.Equal(freed, []netip.Addr{addr("10.0.0.4")}) {
				t.Fatal(freed, err)
			}
			if v := violations(s); len(v) > before {
				t.Error(v)
			}
			if b := s.block(c); (b != nil) != tt.kept {
				t.Errorf("the block is kept: %v", b != nil)
			} else if b != nil && (!b.EmptySince.Equal(later) || len(b.Attributes) != 0) {
				t.Errorf("empty since %s with %v", b.EmptySince, b.Attributes)
			}
			if _, ok := s.keys["/calico/ipam/v2/handle/x.10.0.0.4"]; ok {
				t.Error("the handle is left")
			}
		})
	}
}

func TestReleaseOddTrees(t *testing.T) {
	s := world(t)
	s.fillAll("a", 2, "10.0.0.4/30", "10.0.0.8/30")

	// Nothing to free is not an error, and writes nothing.
	p, err := s.plan(FirstReadRelease("none"), func(p *Plan) error { _, err := p.Release("none", noon); return err })
	if err != nil || !p.Change().Empty() {
		t.Errorf("%v %v", p.Change(), err)
	}
	if diff := cmp.Diff([]model.Compare{{Key: model.HandleKey{ID: "none"}}}, p.Change().Compares); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	// A handle that names a block that doesn't exist, and one that has none of its addresses.
	s.put(model.HandleKey{ID: "x.10.0.0.4"}, model.Handle{ID: "x.10.0.0.4", Blocks: map[netip.Prefix]int{
		cidr("10.0.0.0/30"): 1, cidr("10.0.0.4/30"): 3, cidr("10.0.0.8/30"): 1}})
	if freed, err := s.release("x.10.0.0.4", noon); err != nil || len(freed) != 1 {
		t.Errorf("freed %v, %v", freed, err)
	}
	s.mustBeSound()

	// An invalid block: nothing is freed, and the block is not overwritten.
	s.putText("/calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30", "{}")
	revision := s.revision
	_, err = s.release("x.10.0.0.5", noon)
	if invalid, ok := errors.AsType[*InvalidError](err); !ok || invalid.Path != "/calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30" || s.revision != revision {
		t.Errorf("got %v", err)
	}

	// An invalid handle is deleted, along with its addresses in the named blocks.
	s.putText("/calico/ipam/v2/handle/x.10.0.0.9", "7")
	var freed []netip.Addr
	p, err = s.plan(FirstReadRelease("x.10.0.0.9"), func(p *Plan) error { freed, err = p.Release("x.10.0.0.9", noon, cidr("10.0.0.8/30")); return err })
	if err == nil {
		err = s.commit(p.Change())
	}
	if err != nil || !slices.Equal(freed, []netip.Addr{addr("10.0.0.9")}) {
		t.Errorf("freed %v, %v", freed, err)
	}
	if _, ok := s.keys["/calico/ipam/v2/handle/x.10.0.0.9"]; ok {
		t.Error("the handle is left")
	}

	// A handle in its older place goes too.
	s.delete(model.HandleKey{ID: "x.10.0.0.8"})
	s.putText("/calico/ipam/v2/assignment/handle/x.10.0.0.8", `{"id":"x.10.0.0.8","block":{"10.0.0.8/30":1}}`)
	if freed, err := s.release("x.10.0.0.8", noon); err != nil || len(freed) != 1 {
		t.Errorf("freed %v, %v", freed, err)
	}
	if _, ok := s.keys["/calico/ipam/v2/assignment/handle/x.10.0.0.8"]; ok {
		t.Error("the older place is left")
	}
}

func TestReleaseAddr(t *testing.T) {
	s := world(t)
	s.fill("10.0.0.4/30", "a", 2)
	release := func(a string) (handle string, freed bool, err error) {
		p, err := s.plan([]model.Range{model.PrefixRange(model.PoolPrefix())}, func(p *Plan) (err error) {
			handle, freed, err = p.ReleaseAddr(addr(a), noon)
			return err
		})
		if err == nil {
			err = s.commit(p.Change())
		}
		return handle, freed, err
	}
	for _, c := range []struct {
		addr, handle string
		freed        bool
	}{
		{"10.0.0.5", "x.10.0.0.5", true},
		{"10.0.0.5", "", false},
		{"10.0.0.9", "", false},
		{"fd00::1", "", false},
		{"::ffff:10.0.0.4", "x.10.0.0.4", true},
	} {
		if handle, freed, err := release(c.addr); handle != c.handle || freed != c.freed || err != nil {
			t.Errorf("%s: %q, %v, %v", c.addr, handle, freed, err)
		}
		s.mustBeSound()
	}
	if b := s.block("10.0.0.4/30"); !b.EmptySince.Equal(noon) {
		t.Errorf("empty since %s", b.EmptySince)
	}
	if _, _, err := release("fe80::1%eth0"); err == nil {
		t.Error("an address with a zone is accepted")
	}
}

// A freed address is the last one of its block to be assigned again.
func TestFirstFreedFirstReused(t *testing.T) {
	s := world(t)
	give := func(h string) string {
		t.Helper()
		choice, err := s.assign(Request{Host: "a", Handle: h, IPv4: true, Now: noon, Pools4: pools("10.0.0.0/28")})
		if err != nil {
			t.Fatal(err)
		}
		return choice.Addrs[0].Addr.String()
	}
	free := func(h string) {
		t.Helper()
		if _, err := s.release(h, noon); err != nil {
			t.Fatal(err)
		}
	}
	got := []string{give("1"), give("2"), give("3")}
	free("2")
	free("1")
	got = append(got, give("4"), give("5"), give("6"))
	want := []string{"10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1", "10.0.0.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A pod's next sandbox: the old one's address is freed and the new one's
// assigned in one change, also where the same block is concerned.
func TestReleaseAndAssignAtOnce(t *testing.T) {
	s := world(t)
	s.fillAll("b", 4, quarters...)
	s.fill("10.0.0.8/30", "a", 4)
	r := Request{Host: "a", Handle: "new", IPv4: true, Now: noon}
	var choice Choice
	p, err := s.plan(append(FirstRead(r), handleRanges("x.10.0.0.9")...), func(p *Plan) (err error) {
		if _, err = p.Release("x.10.0.0.9", noon); err == nil {
			choice, err = p.Assign(r)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := choice.Addrs[0].Addr; got != addr("10.0.0.9") {
		t.Errorf("got %s", got)
	}
	if err := s.commit(p.Change()); err != nil {
		t.Fatal(err)
	}
	s.mustBeSound()

	// The same if the old block is deleted and its place is used again.
	s = world(t, model.Pool{CIDR: cidr("10.0.0.0/30")})
	s.fill("10.0.0.2/31", "a", 2)
	s.fill("10.0.0.0/31", "a", 1)
	p, err = s.plan(append(FirstRead(r), handleRanges("x.10.0.0.0")...), func(p *Plan) (err error) {
		for _, h := range []string{"x.10.0.0.0", "x.10.0.0.2", "x.10.0.0.3"} {
			if _, err = p.Release(h, noon); err != nil {
				return err
			}
		}
		choice, err = p.Assign(r)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := choice.Addrs[0].Block; got != cidr("10.0.0.0/30") {
		t.Errorf("got block %s", got)
	}
	if err := s.commit(p.Change()); err != nil {
		t.Fatal(err)
	}
	s.mustBeSound()
}

func TestHeld(t *testing.T) {
	s := world(t)
	choice, err := s.assign(Request{Host: "a", Handle: "h", IPv4: true, IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range choice.Addrs {
		choice.Addrs[i].Existing = true
	}
	var held []Assigned
	if _, err := s.plan(FirstReadRelease("h"), func(p *Plan) (err error) { held, err = p.Held("h"); return err }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(choice.Addrs, held, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
