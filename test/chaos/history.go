// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"
)

// outcome is what the caller of a plugin knows afterwards.
type outcome int

const (
	succeeded outcome = iota
	refused           // an ADD that says that there was no address to take: it took none
	unclear           // any other failure: what was asked for may have happened, or may happen yet
)

// call is one run of a plugin, as its caller saw it. Times are since the
// history began.
type call struct {
	host, verb, handle string
	begin, end         time.Duration
	outcome            outcome
	addrs              []netip.Addr // of an ADD that succeeded
}

// sighting is one look at an address in etcd.
type sighting struct {
	by, handle string // the handle that it was done for, and the one that was found; "" = free
	addr       netip.Addr
	begin, end time.Duration
	revision   int64
}

// kind is what an operation does to the one address that it is about.
type kind int

const (
	allocates kind = iota
	releases
	sees
	mayAllocate // at some time in the interval, or never
	mayRelease
)

// operation is one thing that happened to one address at a time in the
// interval from begin to end.
type operation struct {
	kind       kind
	handle     string // sees: what was found, "" = free
	host, verb string
	begin, end time.Duration
	revision   int64 // of a sighting
}

// forever ends what never came to a clear end.
const forever = time.Duration(math.MaxInt64)

// takings are the addresses that etcd's history shows a handle to have had at any time.
type takings map[string][]netip.Addr

// operations sorts what happened by address. A failed ADD says nothing of which
// address it took, if any: those that etcd's history shows are looked at.
func operations(calls []call, seen []sighting, had takings) map[netip.Addr][]operation {
	out := make(map[netip.Addr][]operation)
	byHandle := make(map[string][]call)
	for _, c := range calls {
		byHandle[c.handle] = append(byHandle[c.handle], c)
	}
	for handle, calls := range byHandle {
		slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.begin, b.begin) })
		for _, addr := range everHeld(handle, calls, had) {
			out[addr] = append(out[addr], handleOperations(calls, addr)...)
		}
	}
	for _, s := range seen {
		out[s.addr] = append(out[s.addr], operation{
			kind: sees, handle: s.handle, host: s.by, verb: "look", begin: s.begin, end: s.end, revision: s.revision,
		})
	}
	for _, ops := range out {
		slices.SortFunc(ops, func(a, b operation) int {
			return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.handle, b.handle), cmp.Compare(a.kind, b.kind))
		})
	}
	return out
}

// everHeld are the addresses that the handle had, as its callers or etcd say.
func everHeld(handle string, calls []call, had takings) []netip.Addr {
	addrs := slices.Clone(had[handle])
	for _, c := range calls {
		addrs = append(addrs, c.addrs...)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// handleOperations is what the calls for one handle, in the order of their
// beginnings, did or may have done to one address.
func handleOperations(calls []call, addr netip.Addr) []operation {
	var out []operation
	for _, c := range calls {
		op := operation{handle: c.handle, host: c.host, verb: c.verb, begin: c.begin, end: c.end}
		is := func(k kind) { op.kind = k; out = append(out, op) }
		switch {
		case c.outcome == refused:
		case c.outcome == unclear:
			// What it has begun is over, and undone, when a DEL that began
			// after it has succeeded.
			settled := settledAt(c, calls)
			if settled != forever {
				out = append(out, operation{kind: releases, handle: c.handle, host: c.host, verb: "DEL", begin: settled, end: settled})
				settled-- // two that touch could be the other way round
			}
			op.end = settled
			if c.verb == "ADD" {
				is(mayAllocate)
			}
			is(mayRelease) // an ADD's undo
		case c.verb == "DEL":
			is(releases)
		case slices.Contains(c.addrs, addr):
			is(allocates)
		}
	}
	return out
}

// settledAt is when the first DEL that began after the call has ended succeeded.
func settledAt(c call, calls []call) time.Duration {
	at := forever
	for _, later := range calls {
		if later.verb == "DEL" && later.outcome == succeeded && later.begin >= c.end {
			at = min(at, later.end)
		}
	}
	return at
}

// unexplained lists addresses that etcd's history shows with a handle none of
// whose calls can have taken them.
func unexplained(calls []call, had takings) []string {
	may := make(map[string]bool)             // any address
	took := make(map[string][]netip.Addr)    // those that were reported
	answers := make(map[string][]outcome, 0) // of ADDs, for the message
	for _, c := range calls {
		if c.verb != "ADD" {
			continue
		}
		may[c.handle] = may[c.handle] || c.outcome == unclear
		took[c.handle] = append(took[c.handle], c.addrs...)
		answers[c.handle] = append(answers[c.handle], c.outcome)
	}
	var out []string
	for handle, addrs := range had {
		for _, a := range addrs {
			if may[handle] || slices.Contains(took[handle], a) {
				continue
			}
			out = append(out, fmt.Sprintf("%s was allocated to %s, whose ADDs ended so: %v, and reported %v", a, handle, answers[handle], took[handle]))
		}
	}
	slices.Sort(out)
	return out
}

// String is one word.
func (o outcome) String() string {
	return [...]string{"succeeded", "refused", "unclear"}[o]
}
