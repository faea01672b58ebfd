// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Packet is one packet as it reaches this host.
type Packet struct {
	// In is the interface that the packet comes from, "" for the host itself.
	In string
	// Out is the interface that it is routed to, "" for the host itself. Packets for the ExtIP of a local endpoint are
	// routed to that endpoint, whatever Out says.
	Out                string
	MAC                model.MAC // source, zero = unknown
	Src, Dst           netip.Addr
	Protocol           model.Protocol
	SrcPort, DstPort   uint16
	ICMPType, ICMPCode uint8
	Conn               Conn
	// Ends are the ends of the connection that a ConnRelated packet is about, by their own addresses: the side that
	// began it and the side that answers.
	Ends [2]netip.Addr
	// Translated says that other software's rules have changed the packet's destination to Dst.
	Translated bool
	// Called is the original destination if that is known to differ from Dst, else the zero AddrPort.
	Called netip.AddrPort
}

// Conn is the state of a packet in connection tracking.
type Conn string

const (
	ConnNew         Conn = "" // the first of a connection
	ConnEstablished Conn = "established"
	ConnRelated     Conn = "related"
	ConnInvalid     Conn = "invalid"
)

// Verdict is the verdict on a packet.
type Verdict string

const (
	Accept Verdict = "accept"
	Drop   Verdict = "drop"
)

// Result is what happens to a packet on this host.
type Result struct {
	Verdict Verdict
	// Untracked says that connection tracking does not see the packet: an untracked policy allowed it, or it is DHCP
	// from an address other than the endpoint's.
	Untracked bool
	// Failsafe says that a fail-safe port let it pass, whatever policy says.
	Failsafe bool
	// Logged has the prefixes of the rules that logged it, in order.
	Logged []string
	// Masqueraded says that it leaves with the host's address as its source.
	Masqueraded bool
	DNAT, SNAT  netip.Addr // its new destination and source; zero = unchanged
	Trail       []Step
}

// Step is one decision that led to the verdict, or a rule that only logged.
type Step struct {
	Endpoint  string          // path, "" = no endpoint
	Direction model.Direction // seen from the endpoint
	Rules     RulesID         // zero = not by a rule
	Rule      int             // index into the rules of the direction; -1 = the policy or profile as a whole
	Untracked bool            // before connection tracking
	What      string          // what it did, and why if that isn't obvious
}

// String returns text like "to endpoint X: policy allow-web rule 2: allow". Rules count from 0.
func (s Step) String() string {
	var b strings.Builder
	if s.Endpoint != "" {
		if s.Direction == model.Outbound {
			b.WriteString("from endpoint ")
		} else {
			b.WriteString("to endpoint ")
		}
		b.WriteString(s.Endpoint)
		b.WriteString(": ")
	}
	if s.Untracked {
		b.WriteString("untracked ")
	}
	if s.Rules != (RulesID{}) {
		b.WriteString(s.Rules.String())
		if s.Rule >= 0 {
			fmt.Fprintf(&b, " rule %d", s.Rule)
		}
		b.WriteString(": ")
	}
	b.WriteString(s.What)
	return b.String()
}
