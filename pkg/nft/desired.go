// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

var (
	directions = [...]model.Direction{model.Inbound, model.Outbound}
	versions   = [...]int{4, 6}
)

func versionOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// desired is the firewall that policy wants. It turns what it is told into the ruleset, and does no I/O.
type desired struct {
	ruleset    *ruleset
	rules      *ruleChains
	interfaces *interfaces
	settings   policy.Settings
	tunnels    render.Tunnels
	bgpPort    uint16
	pools      policy.Pools
	uses       render.Uses
}

func newDesired() *desired {
	d := &desired{ruleset: newRuleset()}
	d.rules = newRuleChains(d.ruleset, d.renderer)
	d.interfaces = newInterfaces(d.ruleset, d.rules, d.renderer)
	return d
}

func (d *desired) renderer() render.Renderer {
	return render.Renderer{Settings: d.settings, Tunnels: d.tunnels, Fits: nfnl.Fits, Known: func(id policy.SetID) bool { _, ok := d.rules.known[id]; return ok }, Nets: d.rules.hasNets}
}

// configure applies new settings; every chain may depend on them.
func (d *desired) configure(s policy.Settings) {
	d.settings = s
	d.interfaces.setMost(s.MaxConnections)
	d.ruleset.renderAll()
	d.interfaces.setPrefixes(s.Prefixes)
	d.interfaces.groups.settle()
	d.putUses()
	d.putBase()
}

// putBase renders the chains that don't belong to an endpoint, policy or profile.
func (d *desired) putBase() {
	needed := make(map[string]bool)
	for _, c := range d.renderer().Base(d.uses) {
		needed[c.Name] = true
		d.ruleset.putChain(c.Name, func() table.Chain {
			all := d.renderer().Base(d.uses)
			return all[slices.IndexFunc(all, func(o table.Chain) bool { return o.Name == c.Name })]
		})
	}
	for _, c := range d.renderer().Base(render.All()) {
		if !needed[c.Name] {
			d.ruleset.removeChain(c.Name)
		}
	}
}

// update applies changes.
func (d *desired) update(c policy.Changes) {
	for id, change := range c.Sets {
		d.rules.changeSet(id, change)
	}
	for id, r := range c.Rules {
		d.putRules(id, r)
	}
	for path, ep := range c.Endpoints {
		d.interfaces.put(path, ep)
	}
	d.interfaces.groups.settle()
	if c.Pools != nil {
		d.pools = *c.Pools
		for _, version := range versions {
			d.ruleset.replace(render.Versioned(render.SetPools, version), intervals(d.pools.All, version))
			d.ruleset.replace(render.Versioned(render.SetMasquerade, version), intervals(d.pools.Masquerade, version))
		}
	}
	d.putUses()
}

func (d *desired) putRules(id policy.RulesID, r *policy.Rules) {
	var before [len(directions)]render.Effect
	for i, direction := range directions {
		before[i] = d.rules.effect(id, direction)
	}
	d.rules.put(id, r)
	for i, direction := range directions {
		if d.rules.effect(id, direction) != before[i] {
			d.interfaces.groups.renderUsers(id, direction)
		}
	}
}

func (d *desired) setTunnels(t policy.Tunnels) {
	if t.VXLANPort == 0 && !t.IPIP {
		t.Hosts = nil // no rule looks them up
	}
	d.putAddrs(render.SetHosts, t.Hosts)
	d.putAddrs(render.SetPeers, t.BGP.Peers)
	d.bgpPort = t.BGP.Port
	if now := (render.Tunnels{VXLANPort: t.VXLANPort, IPIP: t.IPIP}); now != d.tunnels {
		d.tunnels = now
		d.interfaces.putHosts() // untracked policies come before everything else
	}
	d.putUses()
}

// putAddrs replaces the addresses in the sets with this name, for both IP versions.
func (d *desired) putAddrs(set string, addrs []netip.Addr) {
	of := map[int]map[string]string{4: {}, 6: {}}
	for _, a := range addrs {
		if a = a.Unmap().WithZone(""); a.IsValid() {
			of[versionOf(a)][table.AddrBytes(a)] = ""
		}
	}
	for version, elements := range of {
		d.ruleset.replace(render.Versioned(set, version), elements)
	}
}

// putUses renders the chains that every packet passes again if the uses changed.
func (d *desired) putUses() {
	wild := &policy.Endpoint{}
	if paths := d.interfaces.hosts[render.Everywhere]; len(paths) > 0 {
		wild = d.interfaces.byPath[paths[0]]
	}
	u := render.Uses{
		Wildcard: wild.Path != "", Hosts: len(d.interfaces.hosts) > 0,
		NAT:        d.ruleset.filled(render.Versioned(render.MapDNAT, 4), render.Versioned(render.MapDNAT, 6)),
		Untracked:  len(wild.UntrackedInbound)+len(wild.UntrackedOutbound) > 0 || d.ruleset.filled(render.MapUntrackIn, render.MapUntrackOut),
		PreDNAT:    len(wild.PreDNAT) > 0 || d.ruleset.filled(render.MapPreDNAT),
		Forward:    wild.Forwards() || d.ruleset.filled(render.MapForwardIn, render.MapForwardOut),
		Masquerade: len(d.pools.Masquerade) > 0,
		Shut:       d.ruleset.filled(render.SetShut),
		Tunnels:    d.tunnels,
		BGPPort:    d.bgpPort,
		Metrics:    d.interfaces.byPath[policy.MetricsPath] != nil && len(d.settings.MetricsPorts) > 0,
		Bounds:     len(d.interfaces.bounds) > 0,
	}
	u.Translated = d.uses.Translated || u.NAT || u.Masquerade || u.Tunnels != (render.Tunnels{})
	if u != d.uses {
		d.uses = u
		d.putBase()
	}
}

// keepTranslating preserves connections that an earlier run of this program translated.
func (d *desired) keepTranslating(t nfnl.Contents) {
	if _, there := t.Chains[render.ChainSNAT]; there && !d.uses.Translated {
		d.uses.Translated = true
		d.putBase()
	}
}
