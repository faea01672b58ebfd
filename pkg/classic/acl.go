// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/calico-go/calico/pkg/model"
)

// ACL is what an endpoint allows, by address family. The zero value denies everything.
type ACL struct {
	V4 Rules `json:"v4"`
	V6 Rules `json:"v6"`
}

// parseACL parses an ACLUPDATE. It leaves out invalid rules and returns their errors in left.
func parseACL(o object) (acl ACL, left []error, err error) {
	acls, err := o.object("acls")
	if err == nil && acls == nil {
		err = &fieldError{field: "acls"}
	}
	if err != nil {
		return ACL{}, nil, err
	}
	for _, family := range [...]struct {
		name string
		to   *Rules
		v6   bool
	}{{"v4", &acl.V4, false}, {"v6", &acl.V6, true}} {
		part, err := acls.object(family.name)
		if err != nil {
			return ACL{}, nil, err
		}
		rules, told, err := parseRules(part)
		if err != nil {
			return ACL{}, nil, fmt.Errorf("%s: %w", family.name, err)
		}
		for _, why := range told {
			left = append(left, fmt.Errorf("%s: %w", family.name, why))
		}
		for _, list := range [...]*[]Rule{&rules.Inbound, &rules.Outbound} {
			kept := (*list)[:0]
			for _, r := range *list {
				ok, err := r.fit(family.v6)
				if err != nil {
					left = append(left, fmt.Errorf("%s: a rule is left out: %w", family.name, err))
				}
				if ok {
					kept = append(kept, r)
				}
			}
			*list = kept
		}
		*family.to = rules
	}
	return acl, left, nil
}

// fit adapts the rule to an endpoint and a family: icmp means the family's own. ok is false if no packet matches the
// rule.
func (r *Rule) fit(v6 bool) (ok bool, err error) {
	switch {
	case r.Group != "":
		return false, errors.New("it has a group: an ACL has networks only")
	case r.CIDR.Addr().Is6() != v6:
		return false, fmt.Errorf("cidr %s is of the other address family", r.CIDR)
	case r.Protocol == model.ProtocolICMP && v6:
		r.Protocol = model.ProtocolICMPv6
	}
	return v6 || r.Protocol != model.ProtocolICMPv6, nil
}

// Model returns the ACL in the data model. Rules that differ only in the network become one, since all of them allow.
func (a ACL) Model() model.Rules {
	var out model.Rules
	for _, f := range [...]struct {
		version int
		rules   Rules
	}{{4, a.V4}, {6, a.V6}} {
		out.Inbound = append(out.Inbound, joined(f.version, f.rules.Inbound, model.Inbound)...)
		out.Outbound = append(out.Outbound, joined(f.version, f.rules.Outbound, model.Outbound)...)
	}
	return out
}

// criteria are those of a rule without its network, in comparable form.
type criteria struct {
	protocol   model.Protocol
	port       model.Port
	icmp, code int // -1 means all
}

func (r Rule) criteria() criteria {
	c := criteria{r.Protocol, r.Port, -1, -1}
	if r.ICMPType != nil {
		c.icmp = int(*r.ICMPType)
	}
	if r.ICMPCode != nil {
		c.code = int(*r.ICMPCode)
	}
	return c
}

func joined(version int, rules []Rule, d model.Direction) []model.Rule {
	var order []criteria
	first, nets := map[criteria]Rule{}, map[criteria]*netipx.IPSetBuilder{}
	for _, r := range rules {
		c := r.criteria()
		if nets[c] == nil {
			order = append(order, c)
			first[c], nets[c] = r, new(netipx.IPSetBuilder)
		}
		nets[c].AddPrefix(r.CIDR)
	}
	var out []model.Rule
	for _, c := range order {
		set, err := nets[c].IPSet()
		if err != nil {
			continue // can't happen: no prefix is invalid
		}
		r := first[c]
		m := model.Rule{Action: model.ActionAllow, IPVersion: version, Match: model.Match{Protocol: r.Protocol, ICMPType: r.ICMPType, ICMPCode: r.ICMPCode}}
		if r.Port != (model.Port{}) {
			m.Match.DstPorts = []model.Port{r.Port}
		}
		prefixes := set.Prefixes()
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
			prefixes = nil // the IP version is enough
		}
		if d == model.Inbound {
			m.Match.SrcNets = prefixes
		} else {
			m.Match.DstNets = prefixes
		}
		out = append(out, m)
	}
	return out
}
