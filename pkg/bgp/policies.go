// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/osrg/gobgp/v4/api"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// The two policies, and the library's name for the table that they apply to.
const (
	importPolicy = "import"
	exportPolicy = "export"
	globalTable  = "global"
)

// Marks of our own paths, by their ORIGIN. They never leave this host: the export policy sets the real ORIGIN.
const (
	noMesh = api.OriginType_ORIGIN_TYPE_INCOMPLETE // not for the mesh
	nobody = api.OriginType_ORIGIN_TYPE_EGP        // for no neighbour
)

// unreflected marks routes that came by iBGP from a neighbour that isn't our client: they aren't sent to other non-clients
// (RFC 4456, section 6). Its AS number is reserved (RFC 7300), and the mark never leaves this host.
const unreflected = "4294967295:0:1"

// filters is the input of the policies, which are rebuilt when it changes.
type filters struct {
	importFrom []netip.Prefix
	reflector  bool
	mesh       []netip.Addr // sorted
	nonClients []netip.Addr // of iBGP, sorted; nil if no neighbour is another reflector
	neighbours []neighbourFilters
	nextHopUs  []netip.Addr // sorted: this host is the next hop of what is reflected to them

	communities []model.Community
}

// neighbourFilters are the filters of one neighbour.
type neighbourFilters struct {
	address netip.Addr
	in, out []model.RouteFilter
	prepend model.ASNumber // that comes before the AS path of what is sent to it, when it is filtered; 0 = none
}

// filtersOf returns the part of the desired state that the policies express.
func filtersOf(speaker plan.Speaker, neighbours map[netip.Addr]plan.Neighbour) filters {
	f := filters{importFrom: speaker.Import, reflector: speaker.ClusterID.IsValid(), communities: speaker.Communities}
	others := false
	for _, a := range slices.SortedFunc(maps.Keys(neighbours), netip.Addr.Compare) {
		n := neighbours[a]
		if n.Kind == plan.FromMesh {
			f.mesh = append(f.mesh, a)
		}
		if others = others || n.Reflector; f.reflector && n.AS == speaker.AS && !n.Client {
			f.nonClients = append(f.nonClients, a)
		}
		if f.reflector && n.Options.NextHop == model.NextHopSelf {
			f.nextHopUs = append(f.nextHopUs, a)
		}
		if len(n.Import) > 0 || len(n.Export) > 0 {
			own := neighbourFilters{address: a, in: n.Import, out: n.Export}
			if us := cmp.Or(n.Options.LocalAS, speaker.AS); n.AS != us {
				own.prepend = us
			}
			f.neighbours = append(f.neighbours, own)
		}
	}
	if !others { // the library tells clients from non-clients by itself
		f.nonClients = nil
	}
	return f
}

// sameImport and sameExport report whether f and g treat received, or sent, routes alike. If not, these routes must be looked
// at again.
func (f filters) sameImport(g filters) bool {
	return slices.Equal(f.importFrom, g.importFrom) && slices.Equal(f.nonClients, g.nonClients) &&
		slices.EqualFunc(f.neighbours, g.neighbours, func(a, b neighbourFilters) bool {
			return a.address == b.address && slices.Equal(a.in, b.in)
		})
}

func (f filters) sameExport(g filters) bool {
	return f.reflector == g.reflector && slices.Equal(f.mesh, g.mesh) && slices.Equal(f.nonClients, g.nonClients) &&
		slices.Equal(f.nextHopUs, g.nextHopUs) && slices.Equal(f.communities, g.communities) &&
		slices.EqualFunc(f.neighbours, g.neighbours, func(a, b neighbourFilters) bool {
			return a.address == b.address && a.prepend == b.prepend && slices.Equal(a.out, b.out)
		})
}

// A policyBuilder collects statements and the sets that they name.
type policyBuilder struct {
	sets       []*api.DefinedSet
	statements []*api.Statement
}

func (b *policyBuilder) add(c *api.Conditions, a *api.Actions) {
	b.statements = append(b.statements, &api.Statement{
		Name: fmt.Sprintf("statement-%d", len(b.statements)), Conditions: c, Actions: a,
	})
}

// take returns the statements so far as a policy, and starts the next.
func (b *policyBuilder) take(name string) *api.Policy {
	p := &api.Policy{Name: name, Statements: b.statements}
	for _, s := range p.Statements {
		s.Name = name + "-" + s.Name
	}
	b.statements = nil
	return p
}

// inside matches all prefixes inside p; exactly matches p only.
func (b *policyBuilder) inside(p netip.Prefix) *api.MatchSet {
	return b.prefixes(p, uint32(p.Bits()), uint32(p.Addr().BitLen()))
}

func (b *policyBuilder) exactly(p netip.Prefix) *api.MatchSet {
	return b.prefixes(p, uint32(p.Bits()), uint32(p.Bits()))
}

func (b *policyBuilder) prefixes(p netip.Prefix, shortest, longest uint32) *api.MatchSet {
	return b.set(&api.DefinedSet{
		DefinedType: api.DefinedType_DEFINED_TYPE_PREFIX,
		Prefixes: []*api.Prefix{{
			IpPrefix: p.String(), MaskLengthMin: shortest, MaskLengthMax: longest,
		}},
	})
}

func (b *policyBuilder) neighbours(addrs ...netip.Addr) *api.MatchSet {
	s := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR}
	for _, a := range addrs {
		s.List = append(s.List, netip.PrefixFrom(a, a.BitLen()).String())
	}
	return b.set(s)
}

func (b *policyBuilder) set(s *api.DefinedSet) *api.MatchSet {
	s.Name = fmt.Sprintf("set-%d", len(b.sets))
	b.sets = append(b.sets, s)
	return &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: s.Name}
}

func decide(accept bool) *api.Actions {
	if accept {
		return &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT}
	}
	return &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT}
}

// filter adds a neighbour's own filters: the first one that matches decides.
func (b *policyBuilder) filter(neighbour netip.Addr, list []model.RouteFilter, prepend model.ASNumber) {
	for _, f := range list {
		sources := []api.Conditions_RouteType{api.Conditions_ROUTE_TYPE_UNSPECIFIED}
		if f.Learned {
			sources = []api.Conditions_RouteType{api.Conditions_ROUTE_TYPE_INTERNAL, api.Conditions_ROUTE_TYPE_EXTERNAL}
		}
		for _, source := range sources {
			c := &api.Conditions{NeighborSet: b.neighbours(neighbour), RouteType: source}
			b.conditions(c, f, prepend)
			b.add(c, decide(f.Action == "accept"))
		}
	}
}

// conditions adds what a filter requires of a route.
func (b *policyBuilder) conditions(c *api.Conditions, f model.RouteFilter, prepend model.ASNumber) {
	if f.CIDR.IsValid() {
		least, most := f.Lengths()
		if f.Match == model.MatchEqual || f.Match == model.MatchNotEqual {
			most = f.CIDR.Bits()
		}
		c.PrefixSet = b.prefixes(f.CIDR.Masked(), uint32(least), uint32(most))
		if f.Match == model.MatchNotEqual || f.Match == model.MatchNotIn {
			c.PrefixSet.Type = api.MatchSet_TYPE_INVERT
		}
	}
	if f.Community != "" {
		s := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_COMMUNITY, List: []string{f.Community}}
		if model.IsLarge(f.Community) {
			s.DefinedType = api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY
			c.LargeCommunitySet = b.set(s)
		} else {
			c.CommunitySet = b.set(s)
		}
	}
	if f.ASPath != "" {
		path := f.ASPath
		if prepend != 0 { // the library has put it there by then
			path = prepend.String() + " " + path
		}
		c.AsPathSet = b.set(&api.DefinedSet{
			DefinedType: api.DefinedType_DEFINED_TYPE_AS_PATH, List: []string{"^" + strings.ReplaceAll(path, " ", "_") + "_"},
		})
	}
}

// policies returns the statements in order. A route that none decides about is rejected on import and sent on export.
func (f filters) policies() *api.SetPoliciesRequest {
	var b policyBuilder
	ours := &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL}

	b.add(ours, decide(true))
	// A default route is the fabric's own business: one learned here would compete with the host's.
	for _, p := range []string{"0.0.0.0/0", "::/0"} {
		b.add(&api.Conditions{PrefixSet: b.exactly(netip.MustParsePrefix(p))}, decide(false))
	}
	mark := &api.CommunityAction{Type: api.CommunityAction_TYPE_ADD, Communities: []string{unreflected}}
	internal := api.Conditions_ROUTE_TYPE_INTERNAL
	if len(f.nonClients) > 0 {
		b.add(&api.Conditions{RouteType: internal, NeighborSet: b.neighbours(f.nonClients...)}, &api.Actions{LargeCommunity: mark})
	}
	for _, n := range f.neighbours {
		b.filter(n.address, n.in, 0)
	}
	for _, p := range f.importFrom {
		b.add(&api.Conditions{PrefixSet: b.inside(p.Masked())}, decide(true))
	}
	in := b.take(importPolicy)

	b.add(&api.Conditions{RouteType: ours.RouteType, Origin: nobody}, decide(false))
	if len(f.mesh) > 0 {
		b.add(&api.Conditions{RouteType: ours.RouteType, Origin: noMesh, NeighborSet: b.neighbours(f.mesh...)}, decide(false))
	}
	b.add(ours, &api.Actions{
		LocalPref:    &api.LocalPrefAction{Value: defaultPreference},
		OriginAction: &api.OriginAction{Origin: api.OriginType_ORIGIN_TYPE_IGP},
	})
	for _, c := range f.communities {
		add := &api.CommunityAction{Type: api.CommunityAction_TYPE_ADD, Communities: []string{c.Value}}
		do := &api.Actions{Community: add}
		if model.IsLarge(c.Value) {
			do = &api.Actions{LargeCommunity: add}
		}
		b.add(&api.Conditions{RouteType: ours.RouteType, PrefixSet: b.inside(c.CIDR)}, do)
	}
	if len(f.nonClients) > 0 {
		marked := b.set(&api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY, List: []string{unreflected}})
		b.add(&api.Conditions{RouteType: internal, NeighborSet: b.neighbours(f.nonClients...), LargeCommunitySet: marked}, decide(false))
		b.add(&api.Conditions{RouteType: internal, LargeCommunitySet: marked}, &api.Actions{
			LargeCommunity: &api.CommunityAction{Type: api.CommunityAction_TYPE_REMOVE, Communities: mark.Communities},
		})
	}
	for _, learned := range []api.Conditions_RouteType{internal, api.Conditions_ROUTE_TYPE_EXTERNAL} {
		c := &api.Conditions{RouteType: learned}
		if f.reflector {
			b.add(c, &api.Actions{Nexthop: &api.NexthopAction{Unchanged: true}})
			if len(f.nextHopUs) > 0 {
				b.add(&api.Conditions{RouteType: learned, NeighborSet: b.neighbours(f.nextHopUs...)}, &api.Actions{Nexthop: &api.NexthopAction{Self: true}})
			}
		} else {
			b.add(c, decide(false))
		}
	}
	for _, n := range f.neighbours {
		b.filter(n.address, n.out, n.prepend)
	}
	out := b.take(exportPolicy)

	return &api.SetPoliciesRequest{DefinedSets: b.sets, Policies: []*api.Policy{in, out}}
}

// assignments attach the policies to the table.
func assignments() []*api.PolicyAssignment {
	return []*api.PolicyAssignment{{
		Name: globalTable, Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT,
		Policies:      []*api.Policy{{Name: importPolicy}},
		DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}, {
		Name: globalTable, Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT,
		Policies:      []*api.Policy{{Name: exportPolicy}},
		DefaultAction: api.RouteAction_ROUTE_ACTION_ACCEPT,
	}}
}

// sends reports whether an advertisement goes to a neighbour. It repeats the export policy, for counting.
func sends(n plan.Neighbour, a plan.Advertisement, communities []model.Community) bool {
	if a.Prefix.Addr().Is4() != n.Address.Is4() || a.NoMesh && n.Kind == plan.FromMesh {
		return false
	}
	for _, f := range n.Export {
		has := f.Community == "" || slices.ContainsFunc(communities, func(c model.Community) bool {
			return c.Value == f.Community && model.RouteFilter{CIDR: c.CIDR}.Matches(a.Prefix)
		})
		if has && !f.Learned && f.ASPath == "" && f.Matches(a.Prefix) {
			return f.Action == "accept"
		}
	}
	return true
}

// comparePrefixes sorts by address, then length.
func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
