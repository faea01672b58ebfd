// SPDX-License-Identifier: Apache-2.0

package render

import (
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// taps returns a rule per prefix that taps may have.
func (x Renderer) taps(match ...table.Statement) []table.Rule {
	var out []table.Rule
	for _, p := range x.Settings.Prefixes {
		from := []table.Statement{table.HasPrefix{Field: inName, Prefix: p}}
		switch {
		case strings.HasPrefix(p, policy.VethPrefix):
			continue
		case strings.HasPrefix(policy.VethPrefix, p):
			from = append(from, table.HasPrefix{Field: inName, Not: true, Prefix: policy.VethPrefix})
		}
		out = append(out, table.Rule{Do: append(from, match...)})
	}
	return out
}

func commented(rules []table.Rule, why string) []table.Rule {
	for i := range rules {
		rules[i].Comment = why
	}
	return rules
}

// asksMetadata matches machines' requests to the well-known address of metadata.
func asksMetadata() []table.Statement {
	return []table.Statement{
		table.Is{Field: address(4, true), Value: table.AddrBytes(policy.MetadataService().Addr())},
		table.Is{Field: port(model.ProtocolTCP, true), Value: table.PortBytes(policy.MetadataService().Port())},
	}
}

// answersMetadata matches the same requests on their way to the configured server.
func (x Renderer) answersMetadata() []table.Statement {
	return []table.Statement{
		table.Is{Field: calledIPv4, Value: table.AddrBytes(policy.MetadataService().Addr())},
		table.Is{Field: address(4, true), Value: table.AddrBytes(x.Settings.Metadata.Addr())},
		table.Is{Field: port(model.ProtocolTCP, true), Value: table.PortBytes(x.Settings.Metadata.Port())},
	}
}

// toMetadata translates machines' requests to the server, before kube-proxy's and others' rules.
func (x Renderer) toMetadata() []table.Rule {
	if !x.Settings.Metadata.IsValid() {
		return nil
	}
	return commented(x.taps(append(asksMetadata(), table.TranslateTo{To: x.Settings.Metadata})...), "metadata")
}

// metadata accepts the requests before policy is evaluated. Without a server it refuses them at once, so that a machine doesn't wait.
func (x Renderer) metadata() []table.Rule {
	if !x.Settings.Metadata.IsValid() {
		return commented(x.taps(append(asksMetadata(), table.Count{}, table.Reject{})...), "there is no metadata")
	}
	return commented(x.taps(append(x.answersMetadata(), table.MarkSet{Clear: markAll}, table.Verdict{Kind: table.Accept})...), "metadata")
}

// unmasqueraded preserves the machine's own address for the server.
func (x Renderer) unmasqueraded() []table.Rule {
	if !x.Settings.Metadata.IsValid() || len(x.taps()) == 0 {
		return nil
	}
	return []table.Rule{accept(table.Return, "metadata", slices.Clone(x.answersMetadata())...)}
}
