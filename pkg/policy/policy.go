// SPDX-License-Identifier: Apache-2.0

// Package policy computes what the firewall of one host should be: from the endpoints, profiles, policies and pools of
// the whole cluster to the ordered rules of each local endpoint and the address sets that they refer to.
//
// Engine does so incrementally. Evaluate returns what the result does with a packet.
package policy

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// RulesKind distinguishes the rules of policies and profiles.
type RulesKind string

const (
	KindPolicy  RulesKind = "policy"
	KindProfile RulesKind = "profile"
)

// RulesID names the rules of one policy or profile.
type RulesID struct {
	Kind RulesKind
	Tier string // of a policy's rules
	Name string
}

func profileID(name string) RulesID { return RulesID{Kind: KindProfile, Name: name} }

// PodsOnly reports whether the rules' selectors mean pods and hosts alone: Kubernetes' policies know no network sets.
func (id RulesID) PodsOnly() bool { return id.Kind == KindPolicy && model.KubernetesPolicy(id.Name) }

// String returns text like "policy web", or "policy tier/web" for a tier other than model.DefaultTier.
func (id RulesID) String() string {
	if id.Kind == KindPolicy && id.Tier != model.DefaultTier {
		return string(id.Kind) + " " + id.Tier + "/" + id.Name
	}
	return string(id.Kind) + " " + id.Name
}

// Rules are the rules of one policy or profile, with selectors and tags replaced by sets.
type Rules struct {
	ID                RulesID
	Inbound, Outbound []Rule
	// Invalid says why the object cannot be read or is missing, "" if it is valid. If set, it denies every packet that
	// reaches it.
	Invalid string
}

// Rule matches packets that meet all of its criteria, positive and negated.
type Rule struct {
	Action    model.Action
	IPVersion int      // 4, 6 or 0 for both
	Match     Criteria // must hold
	Not       Criteria // none of these may hold; ICMPType and ICMPCode negate together
	LogPrefix string
}

// Always reports whether the rule matches every packet.
func (r Rule) Always() bool { return r.equal(Rule{Action: r.Action, LogPrefix: r.LogPrefix}) }

// Criteria are conditions on a packet. A zero field does not constrain.
type Criteria struct {
	Protocol         model.Protocol
	SrcSets, DstSets []SetID        // of addresses and networks: in each of them; negated: in none
	SrcNets, DstNets []netip.Prefix // in any of them; negated: in none
	// A port matches if it is in one of the ranges, or if address, protocol and port are in one of the sets of ports.
	SrcPorts, DstPorts       []model.Port // without names
	SrcPortSets, DstPortSets []SetID
	ICMPType, ICMPCode       *uint8
}

// SetID identifies a set. It is derived from what the set contains, so that equal sets are one. It is at most 24 bytes
// of [a-z0-9-].
type SetID string

// SetKind is the kind of the members of a set.
type SetKind string

const (
	KindAddrs SetKind = "addrs" // Member.Addr alone; such a set may also have networks
	KindPorts SetKind = "ports" // Member.Addr, Protocol and Port
)

// Member is a member of a set.
type Member struct {
	Addr     netip.Addr
	Protocol model.Protocol
	Port     uint16
}

// Loopback is the interface through which a host talks to itself. It belongs to no endpoint: a policy that forgot it
// would cut the host off from its own etcd and probes.
const Loopback = "lo"

// Endpoint is one endpoint of this host with its rules.
type Endpoint struct {
	Path     string // of its key
	Workload bool   // false for a host endpoint
	// Interface is the host's end of a workload's link, or the interface found for a host endpoint: the one of its
	// name, existing or not, else one with an expected address; never Loopback. If it is "", there is none here,
	// nothing is enforced, and Engine.Invalid says why. The interface of a workload that is Dropped because no prefix
	// matches it passes nothing.
	Interface string
	// Wildcard marks a host endpoint named "*". It applies to every interface that is not a workload's, has no other
	// host endpoint and isn't Loopback.
	Wildcard bool
	// Dropped says why nothing passes: inactive or invalid. It is "" if the endpoint is active.
	Dropped           string
	MAC               model.MAC
	Addrs             []netip.Addr // allowed source addresses; none for a host endpoint
	NAT               []model.NAT  // for each ExtIP that belongs to no other endpoint
	MaxConnections    int          // if less than the settings'; 0 = it isn't
	Inbound, Outbound Verdicts
	// UntrackedInbound and UntrackedOutbound are the untracked policies, for host endpoints only, like
	// Verdicts.Policies. But a tier without a decision does not drop.
	UntrackedInbound, UntrackedOutbound []RulesID
	// PreDNAT are the policies for incoming packets before destination NAT, for host endpoints only. A tier without a
	// decision does not drop.
	PreDNAT []RulesID
	// ForwardInbound and ForwardOutbound apply to packets forwarded by the interface, for host endpoints only. They
	// have no Profiles: what every tier passes continues.
	ForwardInbound, ForwardOutbound Verdicts
}

// Bound returns how many connections a workload may have begun at a time if the settings allow most; 0 means any
// number.
func (ep *Endpoint) Bound(most int) int {
	if ep.MaxConnections > 0 && (most == 0 || ep.MaxConnections < most) {
		return ep.MaxConnections
	}
	return most
}

// Forwards reports whether a host endpoint applies to packets forwarded by its interface.
func (ep *Endpoint) Forwards() bool {
	return len(ep.ForwardInbound.Policies)+len(ep.ForwardOutbound.Policies) > 0
}

// Lists returns an endpoint's lists, each in order: inbound and outbound policies and profiles, the untracked policies,
// those before DNAT, and those for forwarded packets. They are empty for nil.
func (ep *Endpoint) Lists() [9][]RulesID {
	if ep == nil {
		return [9][]RulesID{}
	}
	return [...][]RulesID{ep.Inbound.Policies, ep.Inbound.Profiles, ep.Outbound.Policies, ep.Outbound.Profiles,
		ep.UntrackedInbound, ep.UntrackedOutbound, ep.PreDNAT, ep.ForwardInbound.Policies, ep.ForwardOutbound.Policies}
}

// Trim returns two lists without their common beginning and end. If a policy was added to an endpoint, it returns
// nothing and that policy.
func Trim(before, after []RulesID) (had, has []RulesID) {
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	return before, after
}

// Verdicts are the rules for one direction in the order of evaluation.
type Verdicts struct {
	// Policies has those of a tier side by side: see ByTier. If no policy of a tier decides, the packet is dropped, or
	// passed on. next-tier continues with the next tier that has a policy here, and after the last one with the
	// profiles.
	Policies []RulesID
	// Passing has the tiers of Policies, in order, that pass on packets which none of their policies decides.
	Passing []string
	// Profiles are evaluated if no tier decides. If none of them decides either, the packet is dropped.
	Profiles []RulesID
}

// Passes reports whether a tier passes on packets which none of its policies decides.
func (v *Verdicts) Passes(tier string) bool { return slices.Contains(v.Passing, tier) }

func (v Verdicts) equal(o Verdicts) bool {
	return slices.Equal(v.Policies, o.Policies) && slices.Equal(v.Passing, o.Passing) && slices.Equal(v.Profiles, o.Profiles)
}

// Place identifies verdicts by where their lists are in memory. Endpoints with the same verdicts have the same place if
// an Engine reports them in one Flush.
type Place struct {
	policies, profiles        *RulesID
	policyCount, profileCount int
}

// Place returns the place of the lists.
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

// Pools are the networks that determine masquerading.
type Pools struct {
	All        []netip.Prefix // sorted, none inside another
	Masquerade []netip.Prefix // sorted, none inside another; sources in one are masqueraded if the destination is in no pool
}

// Changes are the differences for this host found by a Flush.
type Changes struct {
	Endpoints map[string]*Endpoint // by path; nil = gone
	Rules     map[RulesID]*Rules   // nil = not used by any endpoint of this host any more
	Sets      map[SetID]*SetChange
	Pools     *Pools // nil = unchanged
}

// SetChange is a change of a set. For a new set, Added has all members.
type SetChange struct {
	Kind           SetKind
	Text           string // where its members come from: `selector role == "db"`, `tag web`, `port http`
	Gone           bool   // no rule uses it any more
	New            bool
	Added, Removed []Member
	// Nets are all networks in it now, those of network sets: sorted, none inside another. The caller must not modify
	// them.
	Nets []netip.Prefix
}

// EndpointToHost says what happens to a workload's packet for the host itself that none of the exemptions accepted.
type EndpointToHost string

const (
	ToHostDrop   EndpointToHost = "DROP"
	ToHostReturn EndpointToHost = "RETURN" // left to the host's other rules, for us: accepted
	ToHostAccept EndpointToHost = "ACCEPT"
)

// ProtoPort is a port of a protocol.
type ProtoPort struct {
	Protocol model.Protocol // TCP or UDP
	Port     uint16
}

// Settings are the agent's settings that affect packets.
type Settings struct {
	Prefixes         []string // of workload interfaces
	EndpointToHost   EndpointToHost
	Metadata         netip.AddrPort // destination for requests of taps to MetadataService; the zero AddrPort: they are refused
	EndpointDNS      bool           // workloads may ask the host's own DNS server
	FailsafeInbound  []ProtoPort    // to the host, on host endpoints
	FailsafeOutbound []ProtoPort
	MetricsPorts     []ProtoPort // of the host, guarded by the endpoint of MetricsPath
	FlowLogGroup     uint16      // NFLOG group of rules that log, 0 = only the kernel's log
	MaxConnections   int         // that each workload may have begun at a time, 0 = any number
	LogPrefix        string      // for rules that log without a prefix of their own
}

// Interface is one of the host's own interfaces.
type Interface struct {
	Name  string
	Addrs []netip.Addr
}
