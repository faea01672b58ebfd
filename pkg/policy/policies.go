// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

// policy is a policy with a known selector.
type policy struct {
	id      RulesID
	tier    *tier
	rank    rank // in its tier
	how     how
	in, out bool // it decides in this direction
	value   model.Policy
	invalid string
	query   *query
}

// how says at which stage a policy applies.
type how struct{ untracked, preDNAT, forward bool }

func howOf(p model.Policy) how { return how{p.Untracked, p.PreDNAT, p.Forward} }

func (p *policy) compare(o *policy) int {
	if c := cmp.Or(p.tier.compare(o.tier), p.rank.compare(o.rank)); c != 0 {
		return c
	}
	return strings.Compare(p.id.Name, o.id.Name)
}

// parsePolicy returns nil for a policy that doesn't exist or selects nothing, and the text of the selector.
func parsePolicy(key model.PolicyKey, entry model.Entry) (*policy, string) {
	p := &policy{id: RulesID{KindPolicy, key.Tier, key.Policy}, in: true, out: true}
	var invalid *model.InvalidPolicyError
	text := ""
	switch value, ok := entry.Value.(model.Policy); {
	case ok && entry.Err == nil && entry.Exists():
		p.value, text = value, value.Selector
		p.how, p.in, p.out = howOf(value), value.Applies(model.Inbound), value.Applies(model.Outbound)
		p.rank = rankOf(value.Order)
	case entry.Exists() && errors.As(entry.Err, &invalid):
		p.invalid, text, p.how.forward = invalid.Error(), invalid.Selector, invalid.Forward
	case ok && entry.Exists(): // its selector can't be read: keep what it selected before
		p.invalid, text, p.how.forward = entry.Err.Error(), value.Selector, value.Forward || value.PreDNAT
	default:
		return nil, ""
	}
	return p, text
}

// policies has the policies with a known selector, and which of this host's endpoints they select.
type policies struct {
	own       *matcher
	tiers     map[string]*tier
	selectors map[string]*query // by canonical text
}

// update processes a policy.
func (ps *policies) update(key model.PolicyKey, entry model.Entry) {
	t := ps.tier(key.Tier)
	defer ps.settle(t)
	old := t.all[key.Policy]
	p, text := parsePolicy(key, entry)
	var q *query
	if p != nil {
		if sel, err := selector.Parse(text); err != nil {
			p = nil // it selects nothing, and was never valid
		} else {
			q = ps.query(sel)
			p.tier, p.query = t, q
			p.id.Tier = t.name // strings that share memory are cheap to compare
		}
	}
	if old != nil && p != nil && old.query == q && old.rank == p.rank &&
		old.how == p.how && old.in == p.in && old.out == p.out {
		q.policies[slices.Index(q.policies, old)] = p
		t.all[key.Policy] = p
		return
	}
	if p != nil {
		t.all[key.Policy] = p
		q.policies = append(q.policies, p)
		if len(q.policies) == 1 {
			ps.own.ask(q)
		} else {
			ps.touchAll(q)
		}
	}
	if old != nil {
		if p == nil {
			delete(t.all, key.Policy)
		}
		ps.drop(old)
	}
}

// checkPolicy returns the problem with a parsed policy, or nil.
func checkPolicy(p model.Policy) error {
	if _, err := selector.Parse(p.Selector); err != nil {
		return fmt.Errorf("selector: %w", err)
	}
	return nil
}

// query returns the query of a selector. Policies with equal selectors share it.
func (ps *policies) query(sel *selector.Selector) *query {
	text := sel.String()
	q := ps.selectors[text]
	if q == nil {
		q = &query{selector: sel, text: text}
		ps.selectors[text] = q
	}
	return q
}

func (ps *policies) drop(p *policy) {
	q := p.query
	i := slices.Index(q.policies, p)
	q.policies = slices.Delete(q.policies, i, i+1)
	if len(q.policies) == 0 {
		ps.own.drop(q)
		delete(ps.selectors, q.text)
		return
	}
	ps.touchAll(q)
}

// touchAll causes the rules of all endpoints that match a query to be determined again.
func (ps *policies) touchAll(q *query) {
	for _, ep := range q.endpoints {
		ps.own.changed(ep.endpoint, q, true)
	}
}
