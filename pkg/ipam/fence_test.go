// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// TestFence has the commit of an assignment arrive before its fence is decided
// on, between that and the fence's commit, after it, and never.
func TestFence(t *testing.T) {
	dual := func(s *etcd) { s.pool(model.Pool{CIDR: cidr("fd00::/120"), BlockSize: 126}) }
	for name, c := range map[string]struct {
		setup func(*etcd)
		want  Request
		block string // that the fence is written to
	}{
		"own block": {func(s *etcd) { s.fill("10.0.0.4/30", "a", 1) }, Request{IPv4: true}, "10.0.0.4/30"},
		"new block": {func(*etcd) {}, Request{IPv4: true}, ""},
		"borrowed": {func(s *etcd) {
			s.fillAll("b", 4, "10.0.0.0/30", "10.0.0.4/30", "10.0.0.12/30")
			s.fill("10.0.0.8/30", "b", 2)
		}, Request{IPv4: true}, "10.0.0.8/30"},
		"own and new":  {func(s *etcd) { dual(s); s.fill("10.0.0.4/30", "a", 1) }, Request{IPv4: true, IPv6: true}, "10.0.0.4/30"},
		"both are new": {dual, Request{IPv4: true, IPv6: true}, ""},
		"in the place of a leftover": {func(s *etcd) {
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 29})
			s.fill("10.0.0.0/30", "b", 0)
			s.fill("10.0.0.8/30", "b", 0)
		}, Request{IPv4: true}, "10.0.0.0/30"},
		"new, strictness": {func(s *etcd) { s.config(true, true) }, Request{IPv4: true}, ""},
	} {
		for _, arrives := range []string{"before", "between", "after", "never"} {
			t.Run(name+"/"+arrives, func(t *testing.T) {
				s := newEtcd(t)
				s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30})
				c.setup(s)
				r := c.want
				r.Host, r.Handle, r.Now = "a", "h", noon
				_, p, err := s.planAssign(r)
				if err != nil {
					t.Fatal(err)
				}
				change := p.Change()
				at := func(when string, want error) {
					t.Helper()
					if when != arrives {
						return
					}
					if err := s.commit(change); !errors.Is(err, want) {
						t.Errorf("the commit: %v, want %v", err, want)
					}
					s.mustBeSound()
				}
				at("before", nil)
				key, ok := FenceKey(change)
				if !ok || c.block != "" && key.CIDR != cidr(c.block) {
					t.Fatalf("fence key %v %t, want block %s", key, ok, c.block)
				}
				fence := Fence(change, s.entry(key.Path(), false), noon)
				if fence.Empty() != (arrives == "before") {
					t.Errorf("fence: %+v", fence)
				}
				at("between", nil)
				if err := s.commit(fence); err != nil && arrives != "between" {
					t.Errorf("the fence: %v", err)
				}
				s.mustBeSound()
				at("after", errConflict)

				_, took := s.keys[model.HandleKey{ID: "h"}.Path()]
				if want := arrives == "before" || arrives == "between"; took != want {
					t.Errorf("the assignment took effect: %t, want %t", took, want)
				}
				r.Handle = "next"
				if _, err := s.assign(r); err != nil {
					t.Errorf("the next assignment: %v", err)
				}
				s.mustBeSound()
			})
		}
	}
}

func TestFenceNothing(t *testing.T) {
	s := newEtcd(t)
	s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30})
	block := model.BlockKey{CIDR: cidr("10.0.0.4/30")}
	other := model.Change{
		Compares: []model.Compare{{Key: block, Revision: 5}, {Key: model.ReadyKey{}}},
		Puts:     []model.Put{{Key: model.ReadyKey{}, Value: model.Ready(true)}},
	}
	if k, ok := FenceKey(other); ok {
		t.Errorf("a change that writes no block: %v", k)
	}
	if got := Fence(other, model.Entry{Key: block, Revision: 5, Value: model.Block{}}, noon); !got.Empty() {
		t.Errorf("a change that writes no block: %+v", got)
	}
	s.fill("10.0.0.4/30", "a", 0)
	_, p, err := s.planAssign(Request{Host: "a", Handle: "h", IPv4: true, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	// A block that was empty stays empty for as long as it has been.
	before := string(s.keys[block.Path()].data)
	if err := s.commit(Fence(p.Change(), s.entry(block.Path(), false), noon.Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, string(s.keys[block.Path()].data)); diff != "" {
		t.Errorf("the block (-before +after):\n%s", diff)
	}
}
