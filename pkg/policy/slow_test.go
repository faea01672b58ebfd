// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// slow computes the whole State from a whole snapshot, without any index, in
// the plainest way: for every question it walks over everything.
type slow struct {
	host       string
	prefixes   []string
	interfaces []Interface
	entries    map[string]model.Entry // that exist, by path
	state      State
}

// counting gives the entry that counts for each key that there is one of.
func (s *slow) counting() map[model.Key]model.Entry {
	out := map[model.Key]model.Entry{}
	for _, path := range slices.Sorted(maps.Keys(s.entries)) {
		entry := s.entries[path]
		old, there := out[entry.Key]
		if !there || path == entry.Key.Path() && old.Path != path {
			out[entry.Key] = entry
		}
	}
	return out
}

// thing is any valid endpoint.
type thing struct {
	path     string
	labels   map[string]string
	tags     map[string]bool
	profiles []string
	addrs    []netip.Addr
	nets     []netip.Prefix
	set      bool // a network set
	ports    []model.EndpointPort
	workload *model.WorkloadEndpoint
	host     *model.HostEndpoint
	local    bool
	lost     bool // it isn't known what it is on
	id       string
	created  int64
	invalid  error
}

func (s *slow) things() []thing {
	var out []thing
	counting := s.counting()
	for _, path := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[path]
		t := thing{path: path, created: e.Created, invalid: e.Err}
		switch k := e.Key.(type) {
		case model.WorkloadEndpointKey:
			t.local = k.Host == s.host
			w, _ := e.Value.(model.WorkloadEndpoint)
			t.workload, t.labels, t.profiles, t.addrs, t.ports = &w, w.Labels, w.ProfileIDs, w.Addrs(), w.Ports
		case model.HostEndpointKey:
			t.local, t.id = k.Host == s.host, k.Endpoint
			h, on := e.Value.(model.HostEndpoint)
			var invalid *model.InvalidHostEndpointError
			if !on && errors.As(e.Err, &invalid) {
				h, on = invalid.On, true
			}
			t.addrs = slices.Concat(h.ExpectedIPv4Addrs, h.ExpectedIPv6Addrs)
			if t.host = &h; e.Err == nil {
				t.labels, t.profiles = h.Labels, h.ProfileIDs
			}
			t.lost = !on
		case model.NetworkSetKey:
			v, ok := e.Value.(model.NetworkSet)
			if !ok || counting[k].Path != path {
				continue
			}
			t.set, t.nets, t.labels, t.invalid = true, v.Nets, map[string]string{"projectcalico.org/name": k.Name, "projectcalico.org/kind": "GlobalNetworkSet"}, nil
			if before, after, ok := strings.Cut(k.Name, "/"); ok {
				t.labels = map[string]string{"projectcalico.org/name": after, "projectcalico.org/kind": "NetworkSet", "calico/k8s_ns": before}
				t.profiles = []string{"k8s_ns." + before}
			}
			for name, value := range v.Labels {
				if !strings.Contains(name, "/") {
					t.labels[name] = value
				}
			}
		default:
			continue
		}
		labels := map[string]string{}
		t.tags = map[string]bool{}
		for _, p := range t.profiles {
			tags, _ := counting[model.ProfileTagsKey{Profile: p}].Value.(model.Tags)
			for _, tag := range tags {
				labels[tag], t.tags[tag] = "", true
			}
		}
		for _, p := range t.profiles {
			more, _ := counting[model.ProfileLabelsKey{Profile: p}].Value.(model.Labels)
			maps.Copy(labels, more)
		}
		maps.Copy(labels, t.labels)
		t.labels = labels
		out = append(out, t)
	}
	return out
}

func (t *thing) matches(text string) bool {
	sel, err := selector.Parse(text)
	return err == nil && sel.Matches(func(name string) (string, bool) { v, ok := t.labels[name]; return v, ok })
}

// compute fills the state.
func (s *slow) compute() *State {
	s.state = State{Endpoints: map[string]*Endpoint{}, Rules: map[RulesID]*Rules{}, Sets: map[SetID]*Set{}}
	things := s.things()
	for _, t := range things {
		if t.local {
			s.state.Endpoints[t.path] = s.endpoint(t, things)
		}
	}
	for _, ep := range s.state.Endpoints {
		for _, ids := range [][]RulesID{ep.Inbound.Policies, ep.Inbound.Profiles, ep.Outbound.Policies, ep.Outbound.Profiles, ep.UntrackedInbound, ep.UntrackedOutbound, ep.PreDNAT, ep.ForwardInbound.Policies, ep.ForwardOutbound.Policies} {
			for _, id := range ids {
				if s.state.Rules[id] == nil {
					s.state.Rules[id] = s.rules(id, things)
				}
			}
		}
	}
	s.pools()
	return &s.state
}

func (s *slow) workloadName(name string) bool {
	return len(s.prefixes) == 0 || slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func (s *slow) endpoint(t thing, things []thing) *Endpoint {
	ep := &Endpoint{Path: t.path, Workload: t.workload != nil}
	switch {
	case t.invalid != nil && (t.workload != nil || s.placed(t, things) == ""):
		ep.Dropped = "invalid: " + t.invalid.Error()
		return ep
	case t.workload != nil:
		w := t.workload
		ep.MAC = w.MAC
		if !s.workloadName(w.Name) {
			ep.Interface = w.Name
			ep.Dropped = "interface " + w.Name + ": the name of a workload's interface begins with " + strings.Join(s.prefixes, " or ") + " here"
			return ep
		}
		if ep.Dropped = s.loses(t, things); ep.Dropped != "" {
			return ep
		}
		ep.Interface = w.Name
		if w.State == model.StateInactive {
			ep.Dropped = "inactive"
			return ep
		}
		ep.Addrs = w.Addrs()
		for _, n := range slices.Concat(w.IPv4NAT, w.IPv6NAT) {
			if s.holder(t, things, "address "+n.ExtIP.String()).path == t.path {
				ep.NAT = append(ep.NAT, n)
			}
		}
	default:
		ep.Interface = s.placed(t, things)
		if ep.Interface == "*" {
			ep.Interface, ep.Wildcard = "", true
		}
		if ep.Interface == "" && !ep.Wildcard || t.invalid != nil {
			return ep
		}
	}
	for _, p := range t.profiles {
		if id := (RulesID{Kind: KindProfile, Name: p}); !slices.Contains(ep.Inbound.Profiles, id) {
			ep.Inbound.Profiles = append(ep.Inbound.Profiles, id)
			ep.Outbound.Profiles = append(ep.Outbound.Profiles, id)
		}
	}
	for _, p := range s.policiesOf(t) {
		in, out := &ep.Inbound.Policies, &ep.Outbound.Policies
		if p.preDNAT {
			if !ep.Workload {
				ep.PreDNAT = append(ep.PreDNAT, p.id)
			}
			continue
		}
		if p.untracked {
			if in, out = &ep.UntrackedInbound, &ep.UntrackedOutbound; ep.Workload {
				continue
			}
		}
		if p.in {
			*in = append(*in, p.id)
		}
		if p.out {
			*out = append(*out, p.id)
		}
		if p.forward && !p.untracked && !ep.Workload {
			if p.in {
				ep.ForwardInbound.Policies = append(ep.ForwardInbound.Policies, p.id)
			}
			if p.out {
				ep.ForwardOutbound.Policies = append(ep.ForwardOutbound.Policies, p.id)
			}
		}
		for _, v := range []*Verdicts{&ep.Inbound, &ep.Outbound, &ep.ForwardInbound, &ep.ForwardOutbound} {
			if slices.Contains(v.Policies, p.id) && p.tier.pass && !v.Passes(p.id.Tier) {
				v.Passing = append(v.Passing, p.id.Tier)
			}
		}
	}
	return ep
}

// loses says which claim an older endpoint of the host holds that this one can't be without.
func (s *slow) loses(t thing, things []thing) string {
	for _, c := range slowClaims(t.workload) {
		if holder := s.holder(t, things, c); holder.path != t.path {
			return c + " belongs to an older endpoint, " + holder.path
		}
	}
	return ""
}

// slowClaims are what an endpoint can't be without.
func slowClaims(w *model.WorkloadEndpoint) []string {
	claims := []string{"interface " + w.Name}
	for _, a := range slices.SortedFunc(slices.Values(w.Addrs()), netip.Addr.Compare) {
		claims = append(claims, "address "+a.String())
	}
	return claims
}

// holder is the endpoint of the host that has what t claims: the oldest that can't be
// without, or else the oldest that has it as ext_ip.
func (s *slow) holder(t thing, things []thing, claim string) thing {
	var can, cannot []thing
	for _, o := range things {
		if !o.local || o.workload == nil || o.invalid != nil || !s.workloadName(o.workload.Name) {
			continue
		}
		if slices.Contains(slowClaims(o.workload), claim) {
			cannot = append(cannot, o)
		}
		for _, n := range slices.Concat(o.workload.IPv4NAT, o.workload.IPv6NAT) {
			if claim == "address "+n.ExtIP.String() {
				can = append(can, o)
			}
		}
	}
	older := func(a, b thing) int { return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.path, b.path)) }
	if len(cannot) > 0 {
		return slices.MinFunc(cannot, older)
	}
	return slices.MinFunc(can, older)
}

// placed is the interface that a host endpoint is, or "*".
func (s *slow) placed(t thing, things []thing) string {
	var hosts []thing
	for _, o := range things {
		if o.local && o.host != nil && !o.lost {
			hosts = append(hosts, o)
		}
	}
	slices.SortFunc(hosts, func(a, b thing) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.path, b.path)) })
	names := map[string][]netip.Addr{}
	for _, i := range s.interfaces {
		names[i.Name] = i.Addrs
	}
	taken := map[string]bool{}
	for _, o := range hosts {
		found := ""
		if n := o.host.Name; n != "" {
			if !taken[n] && n != "lo" && (len(s.prefixes) == 0 || !s.workloadName(n)) {
				found = n
			}
		} else {
			for _, n := range slices.Sorted(maps.Keys(names)) {
				if !taken[n] && n != "lo" && slices.ContainsFunc(names[n], func(a netip.Addr) bool { return slices.Contains(o.addrs, a) }) {
					found = n
					break
				}
			}
		}
		taken[found] = true
		if o.path == t.path {
			return found
		}
	}
	return ""
}

type slowPolicy struct {
	id               RulesID
	tier             slowTier
	class            int
	order            float64
	untracked        bool
	preDNAT, forward bool
	in, out          bool
}

type slowTier struct {
	class   int
	order   float64
	pass    bool
	invalid string
}

func (s *slow) tier(name string) slowTier {
	if name == "default" {
		return slowTier{class: 1, order: 1000000}
	}
	e := s.counting()[model.TierKey{Tier: name}]
	if e.Err != nil {
		return slowTier{invalid: "the metadata of tier " + name + ": " + e.Err.Error()}
	}
	t := slowTier{class: 2}
	if v, ok := e.Value.(model.Tier); ok {
		t.pass = v.DefaultAction == "pass"
		if v.Order != nil {
			t.class, t.order = 1, *v.Order
		}
	}
	return t
}

func (s *slow) policiesOf(t thing) []slowPolicy {
	var out []slowPolicy
	for key, e := range s.counting() {
		k, ok := key.(model.PolicyKey)
		if !ok {
			continue
		}
		p := slowPolicy{id: RulesID{KindPolicy, k.Tier, k.Policy}, tier: s.tier(k.Tier), in: true, out: true}
		text := ""
		var invalid *model.InvalidPolicyError
		v, ok := e.Value.(model.Policy)
		if ok && e.Err == nil {
			text = v.Selector
			p.untracked, p.preDNAT, p.forward = v.Untracked, v.PreDNAT, v.Forward
			p.in, p.out = v.Applies(model.Inbound), v.Applies(model.Outbound)
			p.class = 2
			if v.Order != nil {
				p.class, p.order = 1, *v.Order
			}
		} else if errors.As(e.Err, &invalid) {
			text, p.forward = invalid.Selector, invalid.Forward
		} else if ok {
			text, p.forward = v.Selector, v.Forward || v.PreDNAT
		} else {
			continue
		}
		if t.matches(text) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b slowPolicy) int {
		return cmp.Or(a.tier.class-b.tier.class, cmp.Compare(a.tier.order, b.tier.order), cmp.Compare(a.id.Tier, b.id.Tier),
			a.class-b.class, cmp.Compare(a.order, b.order), cmp.Compare(a.id.Name, b.id.Name))
	})
	return out
}
