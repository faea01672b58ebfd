// SPDX-License-Identifier: Apache-2.0

package render

import (
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// servesHost reports whether there is the chain for what the cluster's agents themselves serve.
func (u Uses) servesHost() bool { return u.BGPPort != 0 || u.Metrics }

// asksServices sends the first packets of connections with the host itself through the chain of services, which returns those that may go
// on. Packets of a connection cost one comparison.
func (u Uses) asksServices(match ...table.Statement) []table.Rule {
	if !u.servesHost() {
		return nil
	}
	r := jump(chainServices, "")
	r.Do = append(append(match, table.State{New: true, Invalid: true, Untracked: true}), r.Do...)
	return []table.Rule{r}
}

// maxSessions is how many times an hour a peer may open a session. A peer retries a failed one after seconds.
const maxSessions = 3600

// services drops strangers' packets for the agent's own servers, which would cost the host each time.
func (x Renderer) services(u Uses) []table.Rule {
	var out []table.Rule
	if u.BGPPort != 0 {
		to := table.Is{Field: port(model.ProtocolTCP, true), Value: table.PortBytes(u.BGPPort)}
		for _, version := range [...]int{4, 6} {
			from, stranger, many := []table.Field{address(version, false)}, drop("BGP from no peer"), drop("too many BGP sessions of a peer")
			stranger.Do = append([]table.Statement{to, table.InSet{Fields: from, Not: true, Set: Versioned(SetPeers, version)}}, stranger.Do...)
			opens := table.Exceeds{Add: table.Add{Fields: from, Set: Versioned(setSessions, version)}, PerHour: maxSessions}
			many.Do = append([]table.Statement{to, table.State{New: true}, opens}, many.Do...)
			out = append(out, stranger, many)
		}
	}
	if u.Metrics {
		for _, r := range failsafe(x.Settings.MetricsPorts, true, table.Jump, "metrics") {
			r.Do[len(r.Do)-1] = table.Verdict{Kind: table.Jump, Chain: ChainMetrics}
			out = append(out, r)
		}
	}
	return out
}

// Metrics returns the chain of the endpoint that has the metrics ports: allowed packets return.
func (x Renderer) Metrics(ep *policy.Endpoint) table.Chain {
	out := append(failsafe(x.Settings.FailsafeInbound, true, table.Return, "fail-safe"), asks(ep.Inbound, model.Inbound)...)
	return table.Chain{Name: ChainMetrics, Comment: "who may read the metrics of this host", Rules: out}
}
