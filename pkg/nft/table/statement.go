// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"net/netip"
	"strings"
)

// Statement is one step of a rule: a match, or an action. It prints as nft syntax.
type Statement interface {
	String() string
	statement()
}

type (
	// Is compares a field with a value.
	Is struct {
		Field Field
		Not   bool
		Value string
	}
	// HasPrefix compares the beginning of an interface's name.
	HasPrefix struct {
		Field  Field
		Not    bool
		Prefix string
	}
	// Within compares an address with a prefix.
	Within struct {
		Field  Field
		Not    bool
		Prefix netip.Prefix
	}
	// Between compares a field with the first and the last of a range.
	Between struct {
		Field       Field
		Not         bool
		First, Last string
	}
	// Among looks up a field, or several concatenated, in a list of values or ranges. Ranges are of one field only, sorted and apart.
	Among struct {
		Fields []Field
		Not    bool
		Values []Element
		Ranges bool
	}
	// InSet looks up fields in a named set.
	InSet struct {
		Fields []Field
		Not    bool
		Set    string
	}
	// Add adds fields to a set whose elements expire. It matches if they are in the set afterwards.
	Add struct {
		Fields []Field
		Set    string
	}
	// Exceeds adds too, and matches if that happens more than PerHour times an hour, with a burst of as many.
	Exceeds struct {
		Add
		PerHour uint32
	}
	// Remove removes fields from such a set.
	Remove Add
	// Dispatch looks up a field in a verdict map.
	Dispatch struct {
		Field Field
		Map   string
	}
	// State matches any of the given states of connection tracking.
	State struct{ Invalid, Established, Related, New, Untracked bool }
	// Begins matches the first packet of a connection.
	Begins struct{}
	// OneIn matches one packet in so many, at random.
	OneIn struct{ Packets uint32 }
	// MarkIs matches the bits of the packet's mark.
	MarkIs struct{ Mask, Value uint32 }
	// MarkSet changes the bits of the packet's mark that are in Clear or Set.
	MarkSet struct{ Clear, Set uint32 }
	// Count counts packets and bytes.
	Count struct{}
	// Log writes the packet to the kernel's log, or to an NFLOG group.
	Log struct {
		Prefix string
		Group  uint16 // 0 = the kernel's log
	}
	// Verdict ends the rule.
	Verdict struct {
		Kind  VerdictKind
		Chain string
	}
	// NoTrack keeps the packet from connection tracking.
	NoTrack struct{}
	// Masquerade gives the packet the source address of the outgoing interface, and a random source port: two connections that begin at
	// once never get the same port, with which the kernel would drop the second.
	Masquerade struct{}
	// Translate gives the packet the address that a map has for its fields.
	Translate struct {
		Destination bool // otherwise the source
		Fields      []Field
		Map         string
	}
	// TranslateTo gives the packet another IPv4 destination.
	TranslateTo struct{ To netip.AddrPort }
	// Reject ends a TCP connection at once, with a reset.
	Reject struct{}
)

// VerdictKind is what happens to a packet.
type VerdictKind string

const (
	Accept VerdictKind = "accept"
	Drop   VerdictKind = "drop"
	Return VerdictKind = "return"
	Jump   VerdictKind = "jump"
	Goto   VerdictKind = "goto"
)

func (Is) statement()         {}
func (HasPrefix) statement()  {}
func (Within) statement()     {}
func (Between) statement()    {}
func (Among) statement()      {}
func (InSet) statement()      {}
func (Dispatch) statement()   {}
func (Add) statement()        {}
func (Exceeds) statement()    {}
func (Remove) statement()     {}
func (State) statement()      {}
func (Begins) statement()     {}
func (OneIn) statement()      {}
func (MarkIs) statement()     {}
func (MarkSet) statement()    {}
func (Count) statement()      {}
func (Log) statement()        {}
func (Verdict) statement()    {}
func (NoTrack) statement()    {}
func (Masquerade) statement() {}
func (Translate) statement()  {}

func (TranslateTo) statement() {}
func (Reject) statement()      {}

func not(n bool) string {
	if n {
		return "!= "
	}
	return ""
}

func (s Is) String() string {
	return s.Field.Text + " " + not(s.Not) + s.Field.Type.Text(s.Value)
}

func (s HasPrefix) String() string {
	return s.Field.Text + " " + not(s.Not) + quote(s.Prefix+"*")
}

func (s Within) String() string {
	return s.Field.Text + " " + not(s.Not) + s.Prefix.Masked().String()
}

func (s Between) String() string {
	return s.Field.Text + " " + not(s.Not) + s.Field.Type.Text(s.First) + "-" + s.Field.Type.Text(s.Last)
}

func (s Among) String() string {
	var values []string
	for _, v := range s.Values {
		switch {
		case !s.Ranges:
			values = append(values, KeyText(TypesOf(s.Fields), v.Key))
		case s.Fields[0].Type == TypeIPv4 || s.Fields[0].Type == TypeIPv6:
			values = append(values, rangeText(s.Fields[0].Type, v))
		default:
			text := s.Fields[0].Type.Text(v.Key)
			if last := v.Last(); last != v.Key {
				text += "-" + s.Fields[0].Type.Text(last)
			}
			values = append(values, text)
		}
	}
	return fieldsText(s.Fields) + " " + not(s.Not) + "{ " + strings.Join(values, ", ") + " }"
}

func (s InSet) String() string { return fieldsText(s.Fields) + " " + not(s.Not) + "@" + s.Set }

func (s Add) String() string { return "add @" + s.Set + " { " + fieldsText(s.Fields) + " }" }

func (s Remove) String() string { return "delete @" + s.Set + " { " + fieldsText(s.Fields) + " }" }

func (s Exceeds) String() string {
	return fmt.Sprintf("update @%s { %s limit rate over %d/hour burst %[3]d packets }", s.Set, fieldsText(s.Fields), s.PerHour)
}

func (s Dispatch) String() string { return s.Field.Text + " vmap @" + s.Map }

func (s State) String() string {
	var names []string
	for _, state := range [...]struct {
		on   bool
		name string
	}{{s.Invalid, "invalid"}, {s.Established, "established"}, {s.Related, "related"}, {s.New, "new"}, {s.Untracked, "untracked"}} {
		if state.on {
			names = append(names, state.name)
		}
	}
	return "ct state " + strings.Join(names, ",")
}

func (Begins) String() string { return "ct status ! confirmed" }

func (s OneIn) String() string { return fmt.Sprintf("numgen random mod %d 0", s.Packets) }

func (s MarkIs) String() string { return fmt.Sprintf("meta mark & 0x%08x == 0x%08x", s.Mask, s.Value) }

func (s MarkSet) String() string {
	if s.Clear == 0 {
		return fmt.Sprintf("meta mark set meta mark | 0x%08x", s.Set)
	}
	text := fmt.Sprintf("meta mark set meta mark & 0x%08x", ^(s.Clear &^ s.Set))
	if s.Set != 0 {
		text += fmt.Sprintf(" | 0x%08x", s.Set)
	}
	return text
}

func (Count) String() string { return "counter" }

func (s Log) String() string {
	text := "log prefix " + quote(s.Prefix)
	if s.Group != 0 {
		text += fmt.Sprintf(" group %d", s.Group)
	}
	return text
}

func (s Verdict) String() string { return strings.TrimSpace(string(s.Kind) + " " + s.Chain) }

func (NoTrack) String() string { return "notrack" }

func (Masquerade) String() string { return "masquerade fully-random" }

func (s TranslateTo) String() string { return "dnat ip to " + s.To.String() }

func (Reject) String() string { return "reject with tcp reset" }

func (s Translate) String() string {
	kind, family := "snat", "ip"
	if s.Destination {
		kind = "dnat"
	}
	if s.Fields[0].Family == FamilyIPv6 {
		family = "ip6"
	}
	return kind + " " + family + " to " + fieldsText(s.Fields) + " map @" + s.Map
}
