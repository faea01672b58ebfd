// SPDX-License-Identifier: Apache-2.0

// Package fate tells what becomes of all packets of workloads in chains that somebody else made.
package fate

import (
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/nft/table"
)

// Chain is a chain of a table.
type Chain struct {
	Drops bool // of a hook: its policy is to drop what no rule decides on
	Rules []Rule
}

// Rule is what is known of a rule.
type Rule struct {
	Names []Name // of the packet's interfaces, which it asks for
	// Conditional: it asks for something else as well, so that it isn't for all packets of an interface.
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

// Name is a comparison with the name of an interface.
type Name struct {
	Out, Not bool
	Text     string
	Prefix   bool // Text is what the name begins with
}

// Packet is any packet that comes in by an interface whose name begins with In, or goes out by one with Out; "" = it isn't
// known by which.
type Packet struct {
	In, Out string
	// Doubt has rules accept it that may let all of at least this kind pass; 0 = none that is conditional.
	Doubt May
}

// Fate is what becomes of a packet.
type Fate int

// The fates of packets.
const (
	Undecided Fate = iota // by a chain: what jumps to it goes on
	Passes
	Dropped
)

// maxDepth is how deep the kernel lets chains jump (NFT_JUMP_STACK_SIZE).
const maxDepth = 16

// Of tells the fate of packets of which nothing else is known, such as those that begin a connection, in a hook's chain. A rule
// that is for some of them doesn't count, but for Packet.Doubt.
func Of(chains map[string]Chain, base string, p Packet) Fate {
	if f := walk(chains, base, p, 0); f != Undecided {
		return f
	}
	if chains[base].Drops {
		return Dropped
	}
	return Passes
}

func walk(chains map[string]Chain, name string, p Packet, depth int) Fate {
	if depth > maxDepth {
		return Undecided
	}
	for _, r := range chains[name].Rules {
		if p.Doubt > 0 && r.May >= p.Doubt && r.isOn(p) {
			return Passes
		}
		if r.Conditional || !r.isOn(p) {
			continue
		}
		switch r.Verdict {
		case table.Accept:
			return Passes
		case table.Drop:
			return Dropped
		case table.Return:
			return Undecided
		case table.Goto:
			return walk(chains, r.Target, p, depth+1)
		case table.Jump:
			if f := walk(chains, r.Target, p, depth+1); f != Undecided {
				return f
			}
		}
	}
	return Undecided
}

// isOn says whether a rule is for the interfaces of all such packets.
func (r Rule) isOn(p Packet) bool {
	return !slices.ContainsFunc(r.Names, func(n Name) bool { return !n.isFor(p) })
}

func (n Name) isFor(p Packet) bool {
	prefix := p.In
	if n.Out {
		prefix = p.Out
	}
	if prefix == "" {
		return false
	}
	if n.Not { // no interface of the prefix has such a name
		return !strings.HasPrefix(n.Text, prefix) && !(n.Prefix && strings.HasPrefix(prefix, n.Text))
	}
	return n.Prefix && strings.HasPrefix(prefix, n.Text)
}
