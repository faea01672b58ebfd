// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"maps"
	"math"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestKernelHasWhatIsPrinted writes a bit of everything and expects the nft tool
// to print what we print.
func TestKernelHasWhatIsPrinted(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(sample())
		f.Tunnels(policy.Tunnels{VXLANPort: 4789, IPIP: true, Hosts: []netip.Addr{ip("192.0.2.1"), ip("::ffff:192.0.2.2"), ip("2001:db8::1")}})
		f.Links(sampleLinks())
		mustApply(t, f)
		if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
			t.Errorf("-ours +nft's:\n%s", diff)
		}
		f.Audit()
		wantWrites(t, f, 0, 0)
	})
}

// TestSetsThatChangeMostComeFirst reads the order in which the kernel looks up sets.
func TestSetsThatChangeMostComeFirst(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(cluster(30))
		mustApply(t, f)
		sizes := make(map[int]bool)
		last := math.MaxInt
		for _, m := range regexp.MustCompile(`(?m)^\t(?:set|map) (\S+) \{`).FindAllStringSubmatch(listed(t), -1) {
			n := len(f.desired.ruleset.sets[m[1]].elems)
			if n > last {
				t.Errorf("%s, of %d elements, comes after one of %d", m[1], n, last)
			}
			sizes[n], last = true, n
		}
		if len(sizes) < 3 {
			t.Errorf("sets of %d sizes, want some more", len(sizes))
		}
	})
}

// TestRanges replaces pools by ones between, inside and around them, often enough for any order of their ends.
func TestRanges(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		lists := [][]string{
			{"10.0.0.0/24", "10.65.0.0/16", "192.0.2.0/24"},
			{"10.0.0.0/16", "10.65.2.0/24", "10.65.4.0/24", "192.0.2.0/25"},
			{"0.0.0.0/0"},
			{"10.65.0.0/16", "255.255.255.0/24"},
			nil,
		}
		for i := range 50 {
			pools := cidrs(lists[i%len(lists)]...)
			f.Update(policy.Changes{Pools: &policy.Pools{All: pools, Masquerade: pools}})
			mustApply(t, f)
			if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
				t.Fatalf("%v: -ours +nft's:\n%s", pools, diff)
			}
		}
	})
}

// TestUnneededChainsGo: chains of hooks are created when they are needed and removed when they aren't, even in the middle of an audit.
func TestUnneededChainsGo(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		mustApply(t, f)
		before := listed(t)
		c, gone := sample(), policy.Changes{Endpoints: endpoints(), Rules: rules()}
		maps.DeleteFunc(c.Endpoints, func(_ string, ep *policy.Endpoint) bool { return ep.Workload })
		for path := range c.Endpoints {
			gone.Endpoints[path] = nil
		}
		for id := range c.Rules {
			gone.Rules[id] = nil
		}
		for range 2 {
			f.Update(policy.Changes{Endpoints: c.Endpoints, Rules: c.Rules})
			mustApply(t, f)
			listing := listed(t)
			if diff := cmp.Diff(canonical(f.Table().String()), canonical(listing)); diff != "" {
				t.Fatalf("with host endpoints: -ours +nft's:\n%s", diff)
			}
			if !strings.Contains(listing, "chain raw-output {") || !strings.Contains(listing, "chain host-in-/all {") {
				t.Fatalf("chains are missing:\n%s", listing)
			}
			f.Update(gone)
			f.generation = 0 // everything is read
			f.Audit()
			if r := mustApply(t, f); r.Repairs != 0 {
				t.Errorf("%d repairs", r.Repairs)
			}
			if diff := cmp.Diff(canonical(before), canonical(listed(t))); diff != "" {
				t.Fatalf("without: -before +after:\n%s", diff)
			}
		}
	})
}

// TestHostInterfaceOfAnother gives interfaces of the host to another endpoint: the nft tool's output names that one.
func TestHostInterfaceOfAnother(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(sample())
		mustApply(t, f)
		named := func(want string) {
			t.Helper()
			text := listed(t)
			if diff := cmp.Diff(canonical(f.Table().String()), canonical(text)); diff != "" {
				t.Errorf("-ours +nft's:\n%s", diff)
			}
			for _, c := range []struct{ chain, path string }{{"host-in-eth0", want + "eth0"}, {"host-out-eth0", want + "eth0"}, {"host-in-/all", want + "all"}, {"host-out-/all", want + "all"}} {
				_, rest, _ := strings.Cut(text, "\tchain "+c.chain+" {")
				if chain, _, _ := strings.Cut(rest, "\t}"); strings.Count(chain, "/calico/") != 1 || !strings.Contains(chain, "\"/calico/v1/host/here/endpoint/"+c.path+"\"") {
					t.Errorf("chain %s, of %s:%s", c.chain, c.path, chain)
				}
			}
		}
		named("")
		heirs := endpoints()
		for path, ep := range sample().Endpoints {
			if !ep.Workload {
				ep.Path = strings.Replace(path, "endpoint/", "endpoint/0-", 1)
				heirs[ep.Path], heirs[path] = ep, nil
			}
		}
		f.Update(policy.Changes{Endpoints: heirs})
		mustApply(t, f)
		named("0-")
	})
}
