// SPDX-License-Identifier: Apache-2.0

// Package fate tells what becomes of all packets of a kind in chains that somebody else made.
package fate

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/nft/table"
)

// Chain is a chain of a table.
type Chain struct {
	Drops bool // of a hook: its policy is to drop what no rule decides on
	Rules []Rule
}

// Rule is what is known of a rule.
type Rule struct {
	Is []Is // what it asks for
	// Conditional: it asks for something else as well, so that it isn't for all packets with these fields.
	Conditional bool
	May         May               // let pass, where it is conditional
	Verdict     table.VerdictKind // "" = none that ends or leaves the chain; what rejects drops
	Target      string            // of a jump or goto
	Comment     string
}

// May is of which packets of an interface a rule may let all pass.
type May int

// In growing order.
const (
	Few     May = iota + 1 // such as those of a port
	Answers                // those of connections that exist
	Any                    // it isn't known: it asks for addresses, for one
	Named                  // those of some interfaces
)

// Field is a field of a packet.
type Field int

// The fields.
const (
	InName   Field = iota // of the interface, with the NUL that ends it
	OutName               //
	Family                // NFPROTO_IPV4 or NFPROTO_IPV6
	Src                   // address
	Dst                   //
	Protocol              // of the transport
	DstPort
)

// Fields are what is known of a packet's.
type Fields [DstPort + 1]Bits

// Bits are the first bits of a field's value, all or some of them. The zero value says nothing of it.
type Bits struct {
	Value string
	Len   int
}

// Text is a value's beginning.
func Text[T string | []byte](value T) Bits { return Bits{string(value), 8 * len(value)} }

// Prefix is an address of a prefix, the zero Prefix for any.
func Prefix(p netip.Prefix) Bits { return Bits{string(p.Masked().Addr().AsSlice()), max(p.Bits(), 0)} }

// startWith says whether the first n bits, which both have, are the same.
func (b Bits) startWith(o Bits, n int) bool {
	whole, rest := n/8, n%8
	return b.Value[:whole] == o.Value[:whole] && (rest == 0 || (b.Value[whole]^o.Value[whole])>>(8-rest) == 0)
}

// covers says whether whatever begins with the other bits begins with these.
func (b Bits) covers(o Bits) bool { return b.Len <= o.Len && b.startWith(o, b.Len) }

// Is is a comparison.
type Is struct {
	Field Field
	Not   bool
	Bits
}

// Packet is any packet with these fields.
type Packet struct {
	Is Fields
	// Others are names of which the one of the interface that it comes in by is none.
	Others []Bits
	// Doubt has rules accept it that may let all of at least this kind pass; 0 = none that is conditional.
	Doubt May
	// New: it belongs to no connection, so that a rule that asks for these alone isn't for it.
	New bool
}

// Fate is what becomes of a packet.
type Fate int

// The fates of packets.
const (
	Undecided Fate = iota // by a chain: what jumps to it goes on
	Passes
	Dropped
)

// Of tells the fate of packets of which nothing else is known, such as those that begin a connection, in a hook's chain. A rule
// that is for some of them doesn't count, but for Packet.Doubt. It asks for the chains that they get to, by name.
func Of(chains func(name string) Chain, base string, p Packet) Fate {
	if f := walk(chains, base, p, map[string]Fate{}); f != Undecided {
		return f
	}
	if chains(base).Drops {
		return Dropped
	}
	return Passes
}

// walk has each chain decide once: there can be millions of ways through a few dozen.
func walk(chains func(string) Chain, name string, p Packet, known map[string]Fate) (decided Fate) {
	if f, there := known[name]; there {
		return f
	}
	known[name] = Undecided // in a circle, which the kernel forbids
	defer func() { known[name] = decided }()
	returns := false // it may have
	for _, r := range chains(name).Rules {
		all, may := r.isFor(p)
		if !all {
			if p.Doubt > 0 && may >= p.Doubt {
				if r.Verdict != table.Return {
					return Passes
				}
				returns = true
			}
			continue
		}
		f := Undecided
		switch r.Verdict {
		case table.Accept:
			return Passes
		case table.Return:
			return Undecided
		case table.Drop:
			f = Dropped
		case table.Jump, table.Goto:
			f = walk(chains, r.Target, p, known)
		}
		if f == Dropped && returns {
			return Undecided
		}
		if f != Undecided || r.Verdict == table.Goto {
			return f
		}
	}
	return Undecided
}

// isFor says whether a rule is for all such packets, and otherwise of which it may let all pass.
func (r Rule) isFor(p Packet) (all bool, may May) {
	all, may = !r.Conditional, r.May
	lets := r.Verdict == table.Accept || r.Verdict == table.Return || r.Target != ""
	answers := true // nothing but them is asked for
	for _, is := range r.Is {
		switch always, never := is.isFor(p); {
		case never:
			return false, 0
		case !always:
			all = false
			if lets && (is.Field == Src || is.Field == Dst) {
				may = max(may, Any)
			} else if lets {
				may = max(may, Few)
			}
		}
		answers = answers && is.Field <= Family
	}
	if p.New && answers && may == Answers {
		may = 0
	}
	return all, may
}

func (is Is) isFor(p Packet) (always, never bool) {
	has := p.Is[is.Field]
	always, never = is.covers(has), !is.startWith(has, min(is.Len, has.Len))
	if is.Field == InName {
		never = never || slices.ContainsFunc(p.Others, func(other Bits) bool { return other.covers(is.Bits) })
	}
	if is.Not {
		return never, always
	}
	return always, never
}
