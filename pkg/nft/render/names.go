// SPDX-License-Identifier: Apache-2.0

package render

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// The sets and maps that always exist: the caller fills them from endpoints, pools and tunnels.
const (
	SetWorkloads   = "workloads"           // interfaces with an endpoint
	SetClosed      = "closed"              // interfaces whose endpoint is inactive
	SetShut        = "shut"                // interfaces that an endpoint names and no prefix covers
	MapFrom        = "workloads-from"      // what their endpoints send
	MapTo          = "workloads-to"        // what is for their endpoints
	SetDeniedFrom  = "denied-from"         // counts packets from them that nothing allowed
	SetDeniedTo    = "denied-to"           // and packets to them
	SetMACs        = "macs"                // interface and MAC
	SetAnyMAC      = "any-mac"             // interfaces whose endpoint has none
	SetConnections = "connections"         // interfaces, and how many connections they may begin
	SetSampled     = "connections-sampled" // the same, counted by samples
	SetReached     = "connections-reached" // interfaces that lately reached that number
	SetNamed       = "hosts-named"         // interfaces with a host endpoint of their own
	MapHostIn      = "hosts-in"            // packets for the host itself, by interfaces of host endpoints
	MapHostOut     = "hosts-out"           // and packets from it
	MapUntrackIn   = "untracked-in"        // the same, before connection tracking
	MapUntrackOut  = "untracked-out"
	MapPreDNAT     = "hosts-pre-dnat"    // incoming packets, before their destination is translated
	MapForwardIn   = "hosts-forward-in"  // packets forwarded from interfaces of host endpoints
	MapForwardOut  = "hosts-forward-out" // and to them
)

// Sets and maps that exist once per IP version: see Versioned.
const (
	SetHosts      = "hosts"      // addresses of other hosts
	SetPeers      = "bgp-peers"  // addresses from which BGP sessions are opened
	MapDNAT       = "dnat"       // 1:1 NAT: own address by the outer one
	MapHairpin    = "hairpin"    // outer address with which an endpoint connects to itself
	SetPools      = "pools"      // all
	SetMasquerade = "masquerade" // those with masquerading
)

// Sets per IP version that only this package names.
const (
	setSources    = "sources" // see Source
	setIndexed    = "sources-by-index"
	setSessions   = "bgp-sessions"         // how often each peer lately opened a session
	setLinkLocals = "link-locals-by-index" // of links, as last seen
	setFull       = "connections-full"     // interfaces that aren't counted for a moment
	setNext       = "connections-next"     // interfaces whose next connection is a sample
	setLearning   = "learning-by-index"    // links that lately used another one
	setCut        = "cut"                  // flows that can't begin a connection
	setAddrs      = "s"                    // + IP version - ID
	setPorts      = "p"                    // + IP version - ID
	setNets       = "n"                    // + IP version - ID
)

// ChainMetrics is the chain of the metrics ports' endpoint.
const ChainMetrics = "metrics"

// ChainSNAT is the chain that translates sources.
const ChainSNAT = "nat-postrouting"

const (
	chainSpoof       = "workload-source"
	chainMAC         = "workload-mac"
	chainConnections = "workload-connections"
	chainFull        = "connections-over"
	chainLinkLocal   = "workload-link-local"
	chainFrom        = "from-workload"
	chainTo          = "to-workload"
	chainToHost      = "workload-to-host"
	chainRelated     = "related-packets"
	chainCut         = "cut-connections"
	chainCutIn       = "cut-input"
	chainCutOut      = "cut-output"
	chainServices    = "host-services"
	chainForward     = "forward-calico"
	chainAllow       = "allow"
	chainNextTier    = "next-tier"
	chainUntracked   = "accept-untracked"
	chainAdmitted    = "accept-pre-dnat"
)

// Versioned returns the name of a set or map for an IP version.
func Versioned(name string, version int) string {
	if version == 6 {
		return name + "6"
	}
	return name + "4"
}

// PolicySetName returns the name of a policy's set for an IP version.
func PolicySetName(version int, id policy.SetID, kind policy.SetKind) string {
	name := setAddrs
	if kind == policy.KindPorts {
		name = setPorts
	}
	return Versioned(name, version) + "-" + string(id)
}

// NetSetName returns the name of the set of the networks in a policy's set.
func NetSetName(version int, id policy.SetID) string {
	return Versioned(setNets, version) + "-" + string(id)
}

// RulesChain returns the chain of one direction of a policy or profile: for example in-policy-web, or in-tier-tier/web for a policy of a
// tier other than model.DefaultTier.
func RulesChain(id policy.RulesID, d model.Direction) string {
	prefix := "in-"
	if d == model.Outbound {
		prefix = "out-"
	}
	if id.Kind == policy.KindPolicy && id.Tier != model.DefaultTier {
		return prefix + "tier-" + identifier(id.Tier, maxTier) + "/" + identifier(id.Name, maxIdentifier)
	}
	return prefix + string(id.Kind) + "-" + identifier(id.Name, maxIdentifier)
}

// Everywhere is the name of the host endpoint of all interfaces that have no other.
const Everywhere = "*"

// HostChain returns the chain of one direction of the host endpoint that has an interface, or of Everywhere.
func HostChain(name string, d model.Direction) string {
	return directed("host", d) + identifier(name, maxIdentifier)
}

// UntrackedChain returns the chain of its untracked policies.
func UntrackedChain(name string, d model.Direction) string {
	return directed("untracked", d) + identifier(name, maxIdentifier)
}

// PreDNATChain returns the chain of its policies before DNAT.
func PreDNATChain(name string) string { return "pre-dnat-in-" + identifier(name, maxIdentifier) }

// ForwardChain returns the chain of its policies for forwarded packets.
func ForwardChain(name string, d model.Direction) string {
	return directed("forward", d) + identifier(name, maxIdentifier)
}

func directed(name string, d model.Direction) string {
	if d == model.Outbound {
		return name + "-out-"
	}
	return name + "-in-"
}

// The kernel allows 127 bytes in the name of a chain.
const (
	maxIdentifier = 64
	maxTier       = 48
)

// identifier turns any bytes into a name that nft accepts, not much longer than most. A changed name ends with a slash and a hash, which no
// other does.
func identifier(s string, most int) string {
	if s == Everywhere {
		return "/all"
	}
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, s)
	if clean == s && len(s) <= most {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return clean[:min(len(clean), most/2)] + "/" + hex.EncodeToString(sum[:8])
}

// Comment joins a name, shortened in its middle, and a rest to one comment.
func Comment(name, rest string) string {
	name, rest = table.Plain(name), table.Plain(rest)
	rest = rest[:min(len(rest), table.MaxComment/2)]
	if room := table.MaxComment - len(rest); len(name) > room {
		half := (room - 3) / 2
		name = name[:half] + "..." + name[len(name)-half:]
	}
	return name + rest
}
