// SPDX-License-Identifier: Apache-2.0

// Package fate computes what happens to all packets of a kind in chains of other programs.
package fate

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/nft/table"
)

// Chain is a chain of a table.
type Chain struct {
	Drops bool // a base chain's policy drops what no rule decides
	Rules []Rule
}

// Rule is what is known of a rule.
type Rule struct {
	Is []Is // its conditions
	// Conditional: it has other conditions as well, so it doesn't match all packets with these fields.
	Conditional bool
	May         May               // of which packets it may let all pass, if Conditional
	Verdict     table.VerdictKind // "" = none that ends or leaves the chain; reject counts as drop
	Target      string            // of a jump or goto
	Comment     string
}

// May says of which kind of packets of an interface a rule may let all pass.
type May int

// In growing order.
const (
	Few     May = iota + 1 // such as those of one port
	Answers                // those of connections that exist
	Any                    // unknown: it has a condition on addresses, for example
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

// Fields are what is known of a packet.
type Fields [DstPort + 1]Bits

// Bits are the known first bits of a field's value. The zero value says nothing.
type Bits struct {
	Value string
	Len   int
}

// Text returns a value's beginning.
func Text[T string | []byte](value T) Bits { return Bits{string(value), 8 * len(value)} }

// Prefix returns the bits of any address in a prefix, the zero Prefix for any address.
func Prefix(p netip.Prefix) Bits { return Bits{string(p.Masked().Addr().AsSlice()), max(p.Bits(), 0)} }

// startWith reports whether the first n bits, which both have, are equal.
func (b Bits) startWith(o Bits, n int) bool {
	whole, rest := n/8, n%8
	return b.Value[:whole] == o.Value[:whole] && (rest == 0 || (b.Value[whole]^o.Value[whole])>>(8-rest) == 0)
}

// covers reports whether every value that begins with the other bits begins with these.
func (b Bits) covers(o Bits) bool { return b.Len <= o.Len && b.startWith(o, b.Len) }

// Is is a condition.
type Is struct {
	Field Field
	Not   bool
	Bits
}

// Packet is any packet with these fields.
type Packet struct {
	Is Fields
	// Others are names that the packet's incoming interface doesn't have.
	Others []Bits
	// Doubt makes conditional rules that may let all packets of at least this kind pass accept the packet; 0 = no conditional rule does.
	Doubt May
	// New: it belongs to no connection, so a rule for established connections doesn't match it.
	New bool
}

// Fate is what happens to a packet.
type Fate int

// The fates of packets.
const (
	Undecided Fate = iota // by a chain: the jump to it returns
	Passes
	Dropped
)

// Of returns the fate, in a base chain, of packets of which nothing else is known, such as those that begin a connection. A rule that
// matches only some of them counts only by Packet.Doubt. chains returns the chains that they reach, by name.
func Of(chains func(name string) Chain, base string, p Packet) Fate {
	if f := walk(chains, base, p, map[string]Fate{}); f != Undecided {
		return f
	}
	if chains(base).Drops {
		return Dropped
	}
	return Passes
}

// walk evaluates each chain once: there can be millions of paths through a few dozen.
func walk(chains func(string) Chain, name string, p Packet, known map[string]Fate) (decided Fate) {
	if f, there := known[name]; there {
		return f
	}
	known[name] = Undecided // in a loop, which the kernel forbids
	defer func() { known[name] = decided }()
	returns := false // a conditional rule may return
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

// isFor reports whether a rule matches all such packets, and otherwise of which kind it may let all pass.
func (r Rule) isFor(p Packet) (all bool, may May) {
	all, may = !r.Conditional, r.May
	lets := r.Verdict == table.Accept || r.Verdict == table.Return || r.Target != ""
	answers := true // it has conditions on nothing else
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
