// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"maps"
	"net/netip"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// ProbeRules identifies the rules of the agent's own workloads, which aren't in etcd: they may talk only with each other, whatever policy
// says.
func ProbeRules() policy.RulesID {
	return policy.RulesID{Kind: policy.KindProfile, Name: "calico-node/probe"}
}

// own are the agent's own workloads.
type own struct {
	paths   map[string]struct{}
	changes policy.Changes // not taken in yet
}

// SetProbe sets the agent's own workloads.
func (r *Reconciler) SetProbe(ends []board.ProbeEnd) {
	r.own.changes = policy.Changes{Endpoints: map[string]*policy.Endpoint{}, Rules: map[policy.RulesID]*policy.Rules{ProbeRules(): nil}}
	for path := range r.own.paths {
		r.own.changes.Endpoints[path] = nil
	}
	r.own.paths = map[string]struct{}{}
	if len(ends) == 0 {
		return
	}
	by := policy.Verdicts{Profiles: []policy.RulesID{ProbeRules()}}
	var nets []netip.Prefix
	for _, e := range ends {
		path := "probe " + e.Interface
		r.own.paths[path] = struct{}{}
		r.own.changes.Endpoints[path] = &policy.Endpoint{
			Path: path, Workload: true, Interface: e.Interface, MAC: e.MAC, Addrs: e.Addrs, Inbound: by, Outbound: by,
		}
		for _, a := range e.Addrs {
			nets = append(nets, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	allow := func(c policy.Criteria) []policy.Rule {
		c.Protocol = model.ProtocolUDP
		return []policy.Rule{{Action: model.ActionAllow, Match: c}}
	}
	r.own.changes.Rules[ProbeRules()] = &policy.Rules{
		ID: ProbeRules(), Inbound: allow(policy.Criteria{SrcNets: nets}), Outbound: allow(policy.Criteria{DstNets: nets}),
	}
}

// isOwn reports whether an endpoint is the agent's own, not in etcd.
func (r *Reconciler) isOwn(path string) bool {
	_, own := r.own.paths[path]
	return own || path == policy.MetricsPath
}

// addOwn adds the changes of SetProbe, once.
func (r *Reconciler) addOwn(c policy.Changes) {
	maps.Copy(c.Endpoints, r.own.changes.Endpoints)
	maps.Copy(c.Rules, r.own.changes.Rules)
	r.own.changes = policy.Changes{}
}
