// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// The sets and maps that there always are.
const (
	setWorkloads   = "workloads"      // interfaces with an endpoint
	setClosed      = "closed"         // those whose endpoint is inactive
	setShut        = "shut"           // those that an endpoint names and no prefix covers
	mapFrom        = "workloads-from" // what their endpoints send
	mapTo          = "workloads-to"   // what is for their endpoints
	setDeniedFrom  = "denied-from"    // counts what nothing allowed them to send
	setDeniedTo    = "denied-to"      // and to receive
	mapHostIn      = "hosts-in"
	mapHostOut     = "hosts-out"
	mapUntrackIn   = "untracked-in"
	mapUntrackOut  = "untracked-out"
	setHosts       = "hosts"      // + IP version: addresses of other hosts
	setSources     = "sources"    // + IP version: interface and address
	setMACs        = "macs"       // interface and MAC
	setAnyMAC      = "any-mac"    // interfaces whose endpoint has none
	mapDNAT        = "dnat"       // + IP version
	mapHairpin     = "hairpin"    // + IP version
	setPools       = "pools"      // + IP version
	setMasquerade  = "masquerade" // + IP version
	setCut         = "cut"        // + IP version: flows that can't begin a connection
	setCutPortless = "cut-portless"
	setCutFrom     = "cut-from" // the same + IP version, by one of its addresses
	setCutTo       = "cut-to"
	cutByPort      = "-port" // after the name of either: and by the port that sends
	setAddrs       = "s"     // + IP version - ID
	setPorts       = "p"     // + IP version - ID
	chainSpoof     = "workload-source"
	chainMAC       = "workload-mac"
	chainFrom      = "from-workload"
	chainTo        = "to-workload"
	chainToHost    = "workload-to-host"
	chainRelated   = "related-packets"
	chainCut       = "cut-connections"
	chainCutIn     = "cut-input"
	chainCutOut    = "cut-output"
	chainForward   = "forward-calico"
	chainAllow     = "allow"
	chainNextTier  = "next-tier"
	chainUntracked = "accept-untracked"
	chainSNAT      = "nat-postrouting"
	chainWildIn    = "wildcard-in"
	chainWildOut   = "wildcard-out"
)

// versioned is the name of what there is one of per IP version.
func versioned(name string, version int) string {
	if version == 6 {
		return name + "6"
	}
	return name + "4"
}

func addrSet(version int, id policy.SetID) string {
	return versioned(setAddrs, version) + "-" + string(id)
}
func portSet(version int, id policy.SetID) string {
	return versioned(setPorts, version) + "-" + string(id)
}

// rulesChain is the chain of one direction of a policy or profile.
func rulesChain(id policy.RulesID, d model.Direction) string {
	prefix := "in-"
	if d == model.Outbound {
		prefix = "out-"
	}
	return prefix + string(id.Kind) + "-" + identifier(id.Name)
}

const maxIdentifier = 64

// identifier makes of any bytes what nft takes in a name. What had to be changed
// ends with a slash and a hash, which nothing else does.
func identifier(s string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, s)
	if clean == s && len(s) <= maxIdentifier {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return clean[:min(len(clean), maxIdentifier/2)] + "/" + hex.EncodeToString(sum[:8])
}

// comment fits two texts into one: the name, shortened in its middle, and what follows.
func comment(name, rest string) string {
	name, rest = table.Plain(name), table.Plain(rest)
	rest = rest[:min(len(rest), table.MaxComment/2)]
	if room := table.MaxComment - len(rest); len(name) > room {
		half := (room - 3) / 2
		name = name[:half] + "..." + name[len(name)-half:]
	}
	return name + rest
}
