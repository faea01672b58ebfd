// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"net/netip"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// adding, deleting and looking make a history of the address 10.0.0.1, in seconds.
func adding(handle string, begin, end time.Duration, o outcome) call {
	c := call{host: "a", verb: "ADD", handle: handle, begin: begin * time.Second, end: end * time.Second, outcome: o}
	if o == succeeded {
		c.addrs = []netip.Addr{subject()}
	}
	return c
}

func deleting(handle string, begin, end time.Duration, o outcome) call {
	return call{host: "a", verb: "DEL", handle: handle, begin: begin * time.Second, end: end * time.Second, outcome: o}
}

func looking(found string, begin, end time.Duration) sighting {
	return sighting{by: "a", handle: found, addr: subject(), begin: begin * time.Second, end: end * time.Second, revision: int64(end)}
}

func subject() netip.Addr { return netip.MustParseAddr("10.0.0.1") }

func TestHistory(t *testing.T) {
	had := func(handles ...string) takings {
		h := make(takings)
		for _, handle := range handles {
			h[handle] = []netip.Addr{subject()}
		}
		return h
	}
	for _, c := range []struct {
		name  string
		calls []call
		seen  []sighting
		had   takings
		bad   bool
	}{
		{name: "one after the other", calls: []call{
			adding("x", 0, 1, succeeded), deleting("x", 2, 3, succeeded), adding("y", 4, 5, succeeded),
		}, seen: []sighting{looking("x", 1, 2), looking("", 3, 4), looking("y", 6, 7)}},
		{name: "an ADD that began while the DEL was at work", calls: []call{
			adding("x", 0, 1, succeeded), deleting("x", 2, 9, succeeded), adding("y", 3, 4, succeeded),
		}, seen: []sighting{looking("y", 5, 6)}},
		{name: "two have it", bad: true, calls: []call{
			adding("x", 0, 1, succeeded), adding("y", 2, 3, succeeded), deleting("x", 4, 5, succeeded), deleting("y", 4, 5, succeeded),
		}},
		{name: "two got it at once", bad: true, calls: []call{
			adding("x", 0, 5, succeeded), adding("y", 0, 5, succeeded), deleting("x", 6, 7, succeeded), deleting("y", 6, 7, succeeded),
		}},
		{name: "the same container twice at once", calls: []call{
			adding("x", 0, 5, succeeded), adding("x", 0, 5, succeeded), deleting("x", 6, 7, succeeded), deleting("x", 6, 7, succeeded),
		}, seen: []sighting{looking("", 8, 8)}},
		{name: "a release is lost", bad: true, calls: []call{
			adding("x", 0, 1, succeeded), deleting("x", 2, 3, succeeded),
		}, seen: []sighting{looking("x", 4, 5)}},
		{name: "never deleted", calls: []call{adding("x", 0, 1, succeeded)}, seen: []sighting{looking("x", 4, 5)}},
		{name: "freed by nobody", bad: true, calls: []call{adding("x", 0, 1, succeeded)}, seen: []sighting{looking("", 4, 5)}},
		{name: "freed by another's DEL", bad: true, calls: []call{
			adding("x", 0, 1, succeeded), deleting("y", 2, 3, succeeded),
		}, had: had("y"), seen: []sighting{looking("", 4, 5)}},
		{name: "a late DEL frees nothing", calls: []call{
			adding("x", 0, 1, succeeded), deleting("x", 2, 3, succeeded), adding("y", 4, 5, succeeded), deleting("x", 6, 7, succeeded),
		}, seen: []sighting{looking("y", 8, 9)}},
		{name: "success that is not true", bad: true, calls: []call{adding("x", 0, 1, succeeded)}, seen: []sighting{looking("z", 2, 3)}},

		{name: "a failed ADD has it", calls: []call{adding("x", 0, 1, unclear)}, had: had("x"), seen: []sighting{looking("x", 2, 3)}},
		{name: "a failed ADD takes it late", calls: []call{adding("x", 0, 1, unclear)}, had: had("x"), seen: []sighting{looking("", 2, 3), looking("x", 4, 5)}},
		{name: "a failed ADD, undone", calls: []call{adding("x", 0, 1, unclear), adding("y", 2, 3, succeeded)}, had: had("x")},
		{name: "a failed ADD takes it from nobody", bad: true, calls: []call{
			adding("y", 0, 1, succeeded), adding("x", 2, 3, unclear),
		}, had: had("x"), seen: []sighting{looking("x", 4, 5)}},
		{name: "a failed ADD, then deleted", calls: []call{
			adding("x", 0, 1, unclear), deleting("x", 2, 3, unclear), deleting("x", 4, 5, succeeded), adding("y", 6, 7, succeeded),
		}, had: had("x"), seen: []sighting{looking("x", 3, 4), looking("y", 8, 9)}},
		{name: "a failed ADD takes it after its DEL", bad: true, calls: []call{
			adding("x", 0, 1, unclear), deleting("x", 2, 3, succeeded),
		}, had: had("x"), seen: []sighting{looking("x", 4, 5)}},
		{name: "a failed DEL, freed", calls: []call{
			adding("x", 0, 1, succeeded), deleting("x", 2, 3, unclear), adding("y", 4, 5, succeeded),
		}},
		{name: "a failed DEL, not freed", calls: []call{
			adding("x", 0, 1, succeeded), deleting("x", 2, 3, unclear),
		}, seen: []sighting{looking("x", 4, 5)}},
		{name: "a failed DEL, freed and back", bad: true, calls: []call{
			adding("x", 0, 1, succeeded), deleting("x", 2, 3, unclear),
		}, seen: []sighting{looking("", 4, 5), looking("x", 6, 7)}},
		{name: "a refused ADD has it", bad: true, calls: []call{adding("x", 0, 1, refused)}, had: had("x"), seen: []sighting{looking("x", 2, 3)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for addr, ops := range operations(c.calls, c.seen, c.had) {
				result, _ := linearizable(ops)
				if want := map[bool]porcupine.CheckResult{false: porcupine.Ok, true: porcupine.Illegal}[c.bad]; result != want {
					t.Errorf("%s: got %s, want %s\n%s", addr, result, want, story(addr, ops, nil))
				}
			}
		})
	}
}

func TestUnexplained(t *testing.T) {
	other := netip.MustParseAddr("10.0.0.2")
	calls := []call{adding("x", 0, 1, succeeded), adding("y", 0, 1, refused), adding("z", 0, 1, unclear), deleting("w", 2, 3, succeeded)}
	had := takings{"x": {subject(), other}, "y": {subject()}, "z": {subject(), other}, "w": {other}}
	want := []string{
		"10.0.0.1 was allocated to y, whose ADDs ended so: [refused], and reported []",
		"10.0.0.2 was allocated to w, whose ADDs ended so: [], and reported []",
		"10.0.0.2 was allocated to x, whose ADDs ended so: [succeeded], and reported [10.0.0.1]",
	}
	if diff := cmp.Diff(want, unexplained(calls, had)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStory has a fault among much that is right.
func TestStory(t *testing.T) {
	var calls []call
	var seen []sighting
	for i, handle := range []string{"p", "q", "r"} {
		at := time.Duration(10 * i)
		calls = append(calls, adding(handle, at, at+1, succeeded), deleting(handle, at+4, at+6, succeeded))
		seen = append(seen, looking(handle, at+2, at+3), looking("", at+7, at+8))
	}
	calls = append(calls, adding("x", 40, 41, succeeded), adding("y", 42, 43, succeeded), deleting("x", 44, 45, succeeded))
	got := story(subject(), operations(calls, seen, nil)[subject()], sampleLedger())
	want := `the history of 10.0.0.1 is not linearizable; 3 of its 15 operations show it:
     40.000s –   41.000s  a ADD x: has it
     42.000s –   43.000s  a ADD y: has it
     44.000s –   45.000s  a DEL x: done
in etcd:
  revision 7: block 10.0.0.0/31, 1 of 2 in use: x has it
  revision 9: block 10.0.0.0/31, 2 of 2 in use: y has it
  revision 10: block 10.0.0.0/31, 0 of 0 in use: nobody has it
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// sampleLedger has one block at five revisions, and what is none.
func sampleLedger() ledger {
	cidr := netip.MustParsePrefix("10.0.0.0/31")
	l := make(ledger)
	note := func(revision int64, handles ...string) {
		b := model.Block{CIDR: cidr}
		for i, h := range handles {
			b.Attributes = append(b.Attributes, model.Attributes{HandleID: h})
			b.Allocations = append(b.Allocations, i)
			if h == "" {
				b.Allocations[i] = model.Free
			}
		}
		e := model.Entry{Value: b}
		if len(handles) == 0 {
			e = model.Entry{}
		}
		l.note(revision, model.BlockKey{CIDR: cidr}.Path(), e)
	}
	note(5, "", "q")
	note(6, "", "")
	note(7, "", "x")
	note(9, "z", "y")
	note(10)
	l.note(10, "/calico/v1/Ready", model.Entry{Value: model.Ready(true)})
	l.note(10, "/elsewhere", model.Entry{})
	return l
}

func TestLedger(t *testing.T) {
	l, cidr := sampleLedger(), netip.MustParsePrefix("10.0.0.0/31")
	first := netip.MustParseAddr("10.0.0.0")
	want := takings{"q": {subject()}, "x": {subject()}, "y": {subject()}, "z": {first}}
	if diff := cmp.Diff(want, l.held(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		from, to int64
		want     bool
	}{{1, 8, false}, {1, 9, true}, {9, 9, true}, {9, 20, true}, {10, 20, false}, {8, 12, true}} {
		if got := l.fullSometime(cidr, c.from, c.to); got != c.want {
			t.Errorf("full from revision %d to %d: %t", c.from, c.to, got)
		}
	}
	if l.fullSometime(netip.MustParsePrefix("10.0.0.2/31"), 1, 20) {
		t.Error("a block that doesn't exist is full")
	}
}
