// SPDX-License-Identifier: Apache-2.0

// Package policy works out what the firewall of one host is to be: from the
// endpoints, profiles, policies and pools of the whole cluster to the ordered
// rules of each local endpoint and the address sets that they refer to.
//
// Engine does so incrementally; Evaluate tells what the result does with a packet.
package policy

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// RulesKind tells the rules of a policy from those of a profile.
type RulesKind string

const (
	KindPolicy  RulesKind = "policy"
	KindProfile RulesKind = "profile"
)

// RulesID names the rules of one policy or profile.
type RulesID struct {
	Kind RulesKind
	Tier string // of a policy
	Name string
}

func profileID(name string) RulesID { return RulesID{Kind: KindProfile, Name: name} }

// String is like "policy web", of another tier than model.DefaultTier like "policy tier/web".
func (id RulesID) String() string {
	if id.Kind == KindPolicy && id.Tier != model.DefaultTier {
		return string(id.Kind) + " " + id.Tier + "/" + id.Name
	}
	return string(id.Kind) + " " + id.Name
}

// Rules are what one policy or profile says, its selectors and tags replaced by sets.
type Rules struct {
	ID                RulesID
	Inbound, Outbound []Rule
	// Invalid says why the object cannot be read or is missing; then it denies
	// all that reaches it. "" = it is valid.
	Invalid string
}

// Rule matches packets by all of its criteria, positive and negated, at once.
type Rule struct {
	Action    model.Action
	IPVersion int      // 4, 6 or 0 for both
	Match     Criteria // must hold
	Not       Criteria // none of these may hold; ICMPType and ICMPCode negate together
	LogPrefix string
}

// Always reports whether the rule matches every packet.
func (r Rule) Always() bool { return r.equal(Rule{Action: r.Action, LogPrefix: r.LogPrefix}) }

// Criteria are of a packet; a zero field does not constrain.
type Criteria struct {
	Protocol         model.Protocol
	SrcSets, DstSets []SetID        // of addresses: in each of them; negated: in none
	SrcNets, DstNets []netip.Prefix // in any of them; negated: in none
	// A port matches if it is in one of the ranges, or address, protocol and
	// port are in one of the sets of ports.
	SrcPorts, DstPorts       []model.Port // without names
	SrcPortSets, DstPortSets []SetID
	ICMPType, ICMPCode       *uint8
}

// SetID names a set; it follows from what the set is of, so that equal sets are one.
// It is at most 24 bytes of [a-z0-9-].
type SetID string

// SetKind says what the members of a set are.
type SetKind string

const (
	KindAddrs SetKind = "addrs" // Member.Addr alone
	KindPorts SetKind = "ports" // Member.Addr, Protocol and Port
)

// Member of a set.
type Member struct {
	Addr     netip.Addr
	Protocol model.Protocol
	Port     uint16
}

// Loopback is the interface by which a host talks to itself. No endpoint has it:
// a policy that forgot it would cut the host off from its own etcd and probes.
const Loopback = "lo"

// Endpoint is one endpoint of this host with the rules that hold for it.
type Endpoint struct {
	Path     string // of its key
	Workload bool   // else a host endpoint
	// Interface is the host's end of a workload's, or the interface that a host
	// endpoint was found to be: the one of its name, there or not, else one with
	// an expected address; never Loopback. "" = it has none here; then nothing is
	// enforced, and Engine.Invalid says why. That of a workload which is Dropped as
	// no prefix covers it passes nothing.
	Interface string
	// Wildcard is a host endpoint named "*": every interface that is no workload's and has no other host
	// endpoint, but Loopback.
	Wildcard bool
	// Dropped says why nothing passes: inactive or invalid. "" = it is active.
	Dropped           string
	MAC               model.MAC
	Addrs             []netip.Addr // that it may send from; none of a host endpoint's
	NAT               []model.NAT  // to an ExtIP that is no other's
	MaxConnections    int          // where that is less than the settings', 0 = it isn't
	Inbound, Outbound Verdicts
	// The untracked policies, host endpoints only, as Verdicts.Policies: but no tier drops what none
	// of its policies decides.
	UntrackedInbound, UntrackedOutbound []RulesID
	// PreDNAT are the policies that are asked of what comes in before its destination is translated, host endpoints only:
	// no tier of theirs drops what none decides.
	PreDNAT []RulesID
	// ForwardInbound and ForwardOutbound are asked of what is forwarded by the interface, host endpoints only.
	// They have no Profiles: what every tier passes on goes on.
	ForwardInbound, ForwardOutbound Verdicts
}

// Bound is how many connections a workload may begin and have at a time where the settings say most; 0 = any number.
func (ep *Endpoint) Bound(most int) int {
	if ep.MaxConnections > 0 && (most == 0 || ep.MaxConnections < most) {
		return ep.MaxConnections
	}
	return most
}

// Forwards says whether a host endpoint is asked of what is forwarded by its interface.
func (ep *Endpoint) Forwards() bool {
	return len(ep.ForwardInbound.Policies)+len(ep.ForwardOutbound.Policies) > 0
}

// Lists are what an endpoint asks, each list in its order: inbound and outbound
// policies and profiles, the untracked, those before DNAT, and those of forwarded packets. nil asks nothing.
func (ep *Endpoint) Lists() [9][]RulesID {
	if ep == nil {
		return [9][]RulesID{}
	}
	return [...][]RulesID{ep.Inbound.Policies, ep.Inbound.Profiles, ep.Outbound.Policies, ep.Outbound.Profiles,
		ep.UntrackedInbound, ep.UntrackedOutbound, ep.PreDNAT, ep.ForwardInbound.Policies, ep.ForwardOutbound.Policies}
}

// Trim returns two lists without what both begin and end with: of a policy that comes
// to an endpoint, nothing and that policy.
func Trim(before, after []RulesID) (had, has []RulesID) {
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	return before, after
}

// Verdicts are the rules of one direction in the order in which they are asked.
type Verdicts struct {
	// Policies are those that apply, those of a tier side by side: see ByTier. Where
	// none of a tier decides, the packet is dropped, or passed on. next-tier goes on to the next
	// tier that has a policy here, after the last to the profiles.
	Policies []RulesID
	// Passing are the tiers of Policies, in order, that pass on what none of their policies decides.
	Passing []string
	// Profiles are asked where no tier decides; if none of them
	// decides, the packet is dropped.
	Profiles []RulesID
}

// Passes says whether a tier passes on what none of its policies decides.
func (v *Verdicts) Passes(tier string) bool { return slices.Contains(v.Passing, tier) }

func (v Verdicts) equal(o Verdicts) bool {
	return slices.Equal(v.Policies, o.Policies) && slices.Equal(v.Passing, o.Passing) && slices.Equal(v.Profiles, o.Profiles)
}

// Place tells verdicts by where their lists are in memory: those of endpoints that ask
// the same are at the same place, as an Engine tells of them in one Flush.
type Place struct {
	policies, profiles        *RulesID
	policyCount, profileCount int
}

// Place is where they are.
func (v Verdicts) Place() Place {
	p := Place{policyCount: len(v.Policies), profileCount: len(v.Profiles)}
	if p.policyCount > 0 {
		p.policies = &v.Policies[0]
	}
	if p.profileCount > 0 {
		p.profiles = &v.Profiles[0]
	}
	return p
}

// Pools are what masquerading goes by.
type Pools struct {
	All        []netip.Prefix // sorted, none inside another
	Masquerade []netip.Prefix // sorted, none inside another; a source in one, bound for no pool, is masqueraded
}

// Changes are what a Flush found different for this host.
type Changes struct {
	Endpoints map[string]*Endpoint // by path; nil = gone
	Rules     map[RulesID]*Rules   // nil = no endpoint of this host goes by them any more
	Sets      map[SetID]*SetChange
	Pools     *Pools // nil = as before
}

// SetChange is what happened to a set. For a set that is new, Added is all of it.
type SetChange struct {
	Kind           SetKind
	Text           string // what it is of: `selector role == "db"`, `tag web`, `port http`
	Gone           bool   // no rule uses it any more
	New            bool
	Added, Removed []Member
}

// EndpointToHost is what happens to a workload's packet for the host itself once the exemptions are over.
type EndpointToHost string

const (
	ToHostDrop   EndpointToHost = "DROP"
	ToHostReturn EndpointToHost = "RETURN" // as the host's other rules say, for us: accepted
	ToHostAccept EndpointToHost = "ACCEPT"
)

// ProtoPort is a port of a protocol.
type ProtoPort struct {
	Protocol model.Protocol // TCP or UDP
	Port     uint16
}

// Settings are those of the agent that bear on packets.
type Settings struct {
	Prefixes         []string // of workload interfaces
	EndpointToHost   EndpointToHost
	Metadata         netip.AddrPort // where what taps ask of MetadataService goes; the zero AddrPort: it is refused
	EndpointDNS      bool           // workloads may ask the host's own DNS server
	FailsafeInbound  []ProtoPort    // to the host, on host endpoints
	FailsafeOutbound []ProtoPort
	MetricsPorts     []ProtoPort // of the host, which the endpoint of MetricsPath is asked about
	FlowLogGroup     uint16      // NFLOG group of rules that log, 0 = the kernel's log alone
	MaxConnections   int         // that each workload may begin and have at a time, 0 = any number
	LogPrefix        string      // of rules that log and say no prefix
}

// Interface is one of the host's own.
type Interface struct {
	Name  string
	Addrs []netip.Addr
}
