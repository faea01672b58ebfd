// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// links returns the indexes of the links of the current namespace, and 0 for these others.
func links(tb testing.TB, others ...string) map[string]int {
	tb.Helper()
	all, err := net.Interfaces()
	if err != nil {
		tb.Fatal(err)
	}
	found := make(map[string]int)
	for _, name := range others {
		found[name] = 0
	}
	for _, l := range all {
		found[l.Name] = l.Index
	}
	return found
}

// bothWays runs a test of packets with and without known indexes of links.
func bothWays(t *testing.T, test func(t *testing.T, tell func(*Firewall))) {
	t.Run("links by index", func(t *testing.T) { test(t, func(f *Firewall) { f.Links(links(t)) }) })
	t.Run("links by name", func(t *testing.T) { test(t, func(*Firewall) {}) })
}

// indexed returns the contents of the sets by index as the nft tool prints them, except for the names of links.
func (d *desired) indexed() map[string]bool {
	out := make(map[string]bool)
	for _, a := range []netip.Addr{ip("10.0.0.1"), ip("fd00::1")} {
		s := d.ruleset.sets[render.Source{Addr: a}.IndexedSet()]
		for key := range s.elems {
			out[table.KeyText(s.def.Key, key)] = true
		}
	}
	return out
}

// TestIndexesFollow adds, removes and changes endpoints, lets them claim each other's interfaces, adds, removes and renames links, and
// changes prefixes, all at random. What is in the sets by index must be in those by name too, by the last known link; and nothing may be
// missing if all links are reported after a change.
func TestIndexesFollow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	d := newDesired()
	d.configure(settings())
	names := []string{"cali1", "cali2", "cali3", "tap1", "eth0", ""}
	told, next := make(map[string]int), 0
	for step := range 20000 {
		all := r.IntN(2) == 0
		switch r.IntN(8) {
		default:
			ep := workload(r.IntN(6), "web")
			ep.Interface = names[r.IntN(len(names))]
			ep.Addrs = ep.Addrs[:r.IntN(3)]
			if r.IntN(5) == 0 {
				ep.Dropped = "inactive"
			}
			ep.Workload = r.IntN(8) > 0
			c := policy.Changes{Endpoints: endpoints(ep)}
			if r.IntN(3) == 0 {
				c.Endpoints[ep.Path] = nil
			}
			d.update(c)
		case 0:
			s := settings()
			s.Prefixes = [][]string{{"cali"}, {"tap"}, {"cali", "tap"}}[r.IntN(3)]
			d.configure(s)
		case 1, 2, 3:
			a, b := names[r.IntN(4)], names[r.IntN(4)]
			next++
			change := [...]map[string]int{{a: next}, {a: 0}, {a: told[b], b: told[a]}}[r.IntN(3)]
			for name, index := range change {
				told[name] = index
			}
			d.interfaces.setIndexes(change)
		}
		if all {
			d.interfaces.setIndexes(told)
		}
		want := make(map[string]bool)
		for name, owners := range d.interfaces.workloads {
			for _, a := range d.interfaces.byPath[owners[0]].Addrs {
				if s := (render.Source{Interface: name, Addr: a}); told[name] != 0 {
					if _, there := d.ruleset.sets[s.Set()].elems[s.Key()]; !there {
						t.Fatalf("step %d: %s may not send from %s", step, name, a)
					}
					want[fmt.Sprintf("%d . %s", told[name], a)] = true
				}
			}
		}
		have := d.indexed()
		for e := range have {
			if !want[e] {
				t.Fatalf("step %d: there is %s, and no link that may send it", step, e)
			}
		}
		if all && len(have) < len(want) {
			t.Fatalf("step %d, -want +have:\n%s", step, cmp.Diff(want, have))
		}
		for name := range d.interfaces.indexes {
			if len(d.interfaces.workloads[name]) == 0 {
				t.Fatalf("step %d: the index of %s is kept, which no endpoint has", step, name)
			}
		}
	}
}

// TestIndexesInOneTransaction expects an endpoint's elements by index to be added and removed together with the rest of it.
func TestIndexesInOneTransaction(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(workload(2)), Rules: rules(policy.Rules{ID: profileID("prod")})})
		mustApply(t, f)
		transactions := func(do func()) uint32 {
			before, err := f.conn.Generation()
			if err != nil {
				t.Fatal(err)
			}
			do()
			mustApply(t, f)
			after, err := f.conn.Generation()
			if err != nil {
				t.Fatal(err)
			}
			return after - before
		}
		for _, c := range []struct {
			name  string
			links map[string]int
			ep    *policy.Endpoint
			want  map[string]bool
			times uint32
		}{
			{"it comes", map[string]int{"cali1": 100001}, workload(1), map[string]bool{"100001 . 10.65.0.1": true, "100001 . fd00::1": true}, 1},
			{"nothing is new", map[string]int{"cali1": 100001, "cali9": 100009}, workload(1), map[string]bool{"100001 . 10.65.0.1": true, "100001 . fd00::1": true}, 0},
			{"its link is another", map[string]int{"cali1": 100002}, workload(1), map[string]bool{"100002 . 10.65.0.1": true, "100002 . fd00::1": true}, 1},
			{"it goes", nil, nil, map[string]bool{}, 1},
			{"nobody has its link", map[string]int{"cali1": 100003}, nil, map[string]bool{}, 0},
			{"it comes without a link", map[string]int{"cali1": 0}, workload(1), map[string]bool{}, 1},
			{"its link comes", map[string]int{"cali1": 100004}, workload(1), map[string]bool{"100004 . 10.65.0.1": true, "100004 . fd00::1": true}, 1},
			{"its link goes", map[string]int{"cali1": 0}, workload(1), map[string]bool{}, 1},
		} {
			n := transactions(func() {
				f.Update(policy.Changes{Endpoints: map[string]*policy.Endpoint{workload(1).Path: c.ep}})
				f.Links(c.links)
			})
			if diff := cmp.Diff(c.want, f.desired.indexed()); diff != "" || n != c.times {
				t.Errorf("%s: %d transactions, want %d; elements by index, -want +got:\n%s", c.name, n, c.times, diff)
			}
			if diff := cmp.Diff(canonical(f.Table().String()), canonical(listed(t))); diff != "" {
				t.Errorf("%s: -ours +nft's:\n%s", c.name, diff)
			}
		}
	})
}

// TestIndexesOfAFormerRun expects a new run to remove elements that are no longer right, and to keep the others.
func TestIndexesOfAFormerRun(t *testing.T) {
	netns.Host(t, func() {
		f := open(t)
		f.Update(sample())
		f.Links(map[string]int{"cali1": 100001, "cali2": 100002, "cali3": 100003})
		mustApply(t, f)
		next := open(t)
		next.Update(sample())
		next.Links(map[string]int{"cali1": 100001, "cali2": 100009, "cali3": 0})
		wantWrites(t, next, 6, 0) // two of cali2 go and come, two of cali3 go
		if diff := cmp.Diff(canonical(next.Table().String()), canonical(listed(t))); diff != "" {
			t.Errorf("-ours +nft's:\n%s", diff)
		}
	})
}

// slowly is the comment of the rule that counts packets compared by name.
const slowly = "by name"

// TestPacketsByIndex sends packets over links whose index is known, is unknown, is another's, or becomes that of a link without an
// endpoint.
func TestPacketsByIndex(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		a, sink := newSpace(t, 1, "cali1"), newSpace(t, 3, "cali3")
		all := policy.Rule{Action: model.ActionAllow}
		for _, s := range []space{a, sink} {
			s.ep.Inbound, s.ep.Outbound = policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}, policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		}
		f := open(t)
		at := sink.listen(markerPort)
		seen := map[string]uint64{}
		count1 := func(chain, comment string, more uint64) {
			t.Helper()
			seen[comment] += more
			waitCount(t, chain, comment, seen[comment])
		}
		const dropped = 2 // neither by name nor by index
		expect := func(what string, from space, byName uint64) {
			t.Helper()
			t.Log(what)
			for v := range a.ep.Addrs {
				send(t, from, netip.AddrPortFrom(a.ep.Addrs[v], 0), netip.AddrPortFrom(sink.ep.Addrs[v], markerPort))
				if byName == dropped {
					count1("workload-source", slowly, 1)
					continue
				}
				if _, _, err := readWithin(at, make([]byte, 10)); err != nil {
					t.Errorf("%s, IPv%d: %v", what, 4+2*v, err)
				}
				count1("workload-source", slowly, byName)
			}
			if byName == dropped && waits(t, at) {
				t.Errorf("%s: it arrived", what)
			}
		}
		apply := func(c policy.Changes, links map[string]int) {
			t.Helper()
			f.Update(c)
			f.Links(links)
			f.Audit()
			mustApply(t, f)
			seen[slowly] = 0 // the repair took it away
			run(t, "nft", "insert rule inet calico workload-source counter comment \""+slowly+"\"")
		}
		none := policy.Changes{}

		apply(policy.Changes{Endpoints: endpoints(a.ep, sink.ep), Rules: rules(policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{all}, Outbound: []policy.Rule{all}})}, nil)
		expect("no index is known", a, 1)
		apply(none, links(t))
		expect("it is", a, 0)
		index := links(t)["cali1"]

		run(t, "ip", "link", "del", "cali1")
		a = newSpace(t, 1, "cali1")
		expect("another link has the name, and nobody has told of it", a, 1)
		apply(none, links(t))
		expect("now somebody has", a, 0)

		thief := newSpaceBy(t, 2, "cali2", "index", fmt.Sprint(index))
		thief.do(func() { addAddrs(t, "eth0", a.ep.Addrs...) })
		expect("the former link's index, another's address", thief, dropped)
		run(t, "ip", "link", "del", "cali2")

		// The same, if the removed link is reported only then.
		index = links(t)["cali1"]
		run(t, "ip", "link", "del", "cali1")
		thief = newSpaceBy(t, 2, "cali2", "index", fmt.Sprint(index))
		thief.do(func() { addAddrs(t, "eth0", a.ep.Addrs...) })
		apply(none, links(t, "cali1"))
		expect("the index of a link that has gone since, another's address", thief, dropped)
		run(t, "ip", "link", "del", "cali2")

		a = newSpace(t, 1, "cali1")
		apply(none, links(t))
		expect("it is back", a, 0)
		run(t, "ip", "link", "set", "cali1", "name", "cali4")
		apply(none, links(t, "cali1"))
		expect("it has another name, which no endpoint has", a, dropped)
		run(t, "ip", "link", "set", "cali4", "name", "cali1")
		apply(none, links(t, "cali4"))
		expect("it has its name again", a, 0)

		inactive, moved := *a.ep, *a.ep
		inactive.Dropped, moved.Addrs = "inactive", []netip.Addr{ip("10.65.9.9")}
		for name, ep := range map[string]*policy.Endpoint{"its endpoint is inactive": &inactive, "it has none": nil, "that has another address": &moved} {
			apply(policy.Changes{Endpoints: map[string]*policy.Endpoint{a.ep.Path: ep}}, nil)
			expect(name, a, dropped)
			apply(policy.Changes{Endpoints: endpoints(a.ep)}, links(t))
			expect("as before", a, 0)
		}

		run(t, "nft", fmt.Sprintf("delete element inet calico sources-by-index4 { cali1 . %s }; delete element inet calico sources-by-index6 { cali1 . %s }", a.ep.Addrs[0], a.ep.Addrs[1]))
		expect("somebody has deleted its elements", a, 1)
		apply(none, nil)
		expect("they are repaired", a, 0)
	})
}
