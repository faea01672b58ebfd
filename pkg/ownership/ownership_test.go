// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

// spec is an endpoint with addresses of its own and outer ones.
func spec(iface string, own, outer []int) *model.WorkloadEndpoint {
	e := &model.WorkloadEndpoint{Name: iface}
	for _, n := range own {
		e.IPv4Nets = append(e.IPv4Nets, netip.PrefixFrom(addr(n), 32))
	}
	for _, n := range outer {
		e.IPv4NAT = append(e.IPv4NAT, model.NAT{IntIP: addr(1), ExtIP: addr(n)})
	}
	return e
}

func TestHolder(t *testing.T) {
	var touched []string
	table := New(func(path string) { touched = append(touched, path) })
	put := func(path string, created int64, e *model.WorkloadEndpoint) []string {
		touched = nil
		table.Put(path, created, e)
		slices.Sort(touched)
		return slices.Compact(touched)
	}
	holders := func(c Claim) (all string) {
		for _, path := range slices.Sorted(maps.Keys(table.endpoints)) {
			if slices.Contains(table.Claims(path), c) {
				all += fmt.Sprintf("%s:%s ", path, table.Holder(path, c))
			}
		}
		return all
	}
	iface, one, outer := Claim{Interface: "cali1"}, Claim{Addr: addr(1)}, Claim{Addr: addr(9)}
	for _, step := range []struct {
		path    string
		created int64
		spec    *model.WorkloadEndpoint
		touched []string
		claim   Claim
		want    string
	}{
		{"b", 2, spec("cali1", []int{1}, []int{9}), nil, iface, "b: "},
		{"a", 3, spec("cali1", []int{1}, nil), []string{"b"}, iface, "a:b b: "},
		{"c", 3, spec("cali1", []int{2}, nil), []string{"a", "b"}, iface, "a:b b: c:b "},
		{"b", 0, nil, []string{"a", "c"}, iface, "a: c:a "},                              // of one transaction the lower name has it
		{"b", 4, spec("cali2", []int{3}, []int{9}), nil, outer, "b: "},                   // made anew
		{"d", 9, spec("cali3", []int{9}, nil), []string{"b"}, outer, "b:d d: "},          // an own address, however young
		{"e", 1, spec("cali4", nil, []int{9}), []string{"b", "d"}, outer, "b:d d: e:d "}, // an older outer one
		{"d", 0, nil, []string{"b", "e"}, outer, "b:e e: "},
		{"a", 0, nil, []string{"c"}, one, ""},
	} {
		if diff := cmp.Diff(step.touched, put(step.path, step.created, step.spec)); diff != "" {
			t.Errorf("%s: touched (-want +got):\n%s", step.path, diff)
		}
		if got := holders(step.claim); got != step.want {
			t.Errorf("after %s: %s: %q, want %q", step.path, step.claim, got, step.want)
		}
	}
	if table.Holder("none", iface) != "" || table.Needs("none", iface) || table.Claims("none") != nil {
		t.Error("one that isn't there claims something")
	}
}

// TestAgainstObvious: whatever comes and goes in whatever order, each claim is held as a look at all endpoints says, and all of which an
// answer has changed were told of.
func TestAgainstObvious(t *testing.T) {
	type thing struct {
		created int64
		spec    *model.WorkloadEndpoint
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		things, touched := map[string]thing{}, map[string]bool{}
		table := New(func(path string) { touched[path] = true })
		some := func() (list []int) {
			for range r.IntN(3) {
				list = append(list, 1+r.IntN(4))
			}
			return list
		}
		needs := func(e *model.WorkloadEndpoint, c Claim) bool {
			return !c.Addr.IsValid() || slices.Contains(e.Addrs(), c.Addr)
		}
		holder := func(path string, c Claim) string {
			best := path
			for other, o := range things {
				b, claims := things[best], slices.Contains(claimsOf(o.spec), c)
				better := needs(o.spec, c) && !needs(b.spec, c) || needs(o.spec, c) == needs(b.spec, c) && (o.created < b.created || o.created == b.created && other < best)
				if claims && better {
					best = other
				}
			}
			if best == path {
				return ""
			}
			return best
		}
		answers := func() map[string]string {
			all := map[string]string{}
			for path, o := range things {
				for _, c := range claimsOf(o.spec) {
					all[path] += c.String() + "=" + holder(path, c) + " "
				}
			}
			return all
		}
		for range 40 {
			before := answers()
			path := string(rune('a' + r.IntN(5)))
			clear(touched)
			if r.IntN(4) == 0 {
				delete(things, path)
				table.Put(path, 0, nil)
			} else {
				o := thing{r.Int64N(4), spec(fmt.Sprint("cali", r.IntN(2)), some(), some())}
				things[path] = o
				table.Put(path, o.created, o.spec)
			}
			want := answers()
			for other, o := range things {
				got := ""
				for _, c := range claimsOf(o.spec) {
					got += c.String() + "=" + table.Holder(other, c) + " "
				}
				if got != want[other] {
					t.Fatalf("seed %d: %s: %s, want %s", seed, other, got, want[other])
				}
				if other != path && got != before[other] && !touched[other] {
					t.Fatalf("seed %d: %s was told of no change from %s to %s", seed, other, before[other], got)
				}
			}
		}
		for path := range things {
			table.Put(path, 0, nil)
		}
		if table.Len() != 0 {
			t.Fatalf("seed %d: %d claims are left", seed, table.Len())
		}
	}
}
