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
	// In is where it comes from, "" = the host itself.
	In string
	// Out is where it is routed to, "" = the host itself. What is bound for the
	// ExtIP of a local endpoint is routed to that one, whatever Out says.
	Out                string
	MAC                model.MAC // source, zero = unknown
	Src, Dst           netip.Addr
	Protocol           model.Protocol
	SrcPort, DstPort   uint16
	ICMPType, ICMPCode uint8
	Conn               Conn
	// Ends are those of the connection that it is about, where it is ConnRelated: who
	// began it, and who answers, by addresses of their own.
	Ends [2]netip.Addr
	// Translated: Dst isn't what it was sent to, by rules of somebody else's.
	Translated bool
	// Called is what it was sent to where that is known to be another than Dst; the zero AddrPort: it isn't.
	Called netip.AddrPort
}

// Conn is what connection tracking says of a packet.
type Conn string

const (
	ConnNew         Conn = "" // the first of a connection
	ConnEstablished Conn = "established"
	ConnRelated     Conn = "related"
	ConnInvalid     Conn = "invalid"
)

// Verdict on a packet.
type Verdict string

const (
	Accept Verdict = "accept"
	Drop   Verdict = "drop"
)

// Result is what happens to a packet on this host.
type Result struct {
	Verdict Verdict
	// Untracked: an untracked policy allowed it, or it is DHCP from an address that
	// isn't the endpoint's, so that connection tracking does not see it.
	Untracked bool
	// Failsafe: a fail-safe port let it pass, whatever policy says.
	Failsafe bool
	// Logged are the prefixes of the rules that logged it, in order.
	Logged []string
	// Masqueraded: it leaves with the host's address as its source.
	Masqueraded bool
	DNAT, SNAT  netip.Addr // its new destination and source; zero = as it was
	Trail       []Step
}

// Step is one decision that leads to a verdict, or a rule that only logged.
type Step struct {
	Endpoint  string          // path, "" = of no endpoint
	Direction model.Direction // seen from the endpoint
	Rules     RulesID         // zero = not of a rule
	Rule      int             // index into the rules of the direction; -1 = the policy or profile as a whole
	Untracked bool            // before connection tracking
	What      string          // what it did, and why where that isn't plain
}

// String is like "to endpoint X: policy allow-web rule 2: allow". Rules count from 0.
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
