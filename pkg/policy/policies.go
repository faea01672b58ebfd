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

// defaultTier is the only one there is: see otherTier.
const defaultTier = "default"

// otherTier are the rules of any policy of another tier. What such a policy
// should decide, and when, is not known here, so it denies.
var otherTier = RulesID{KindPolicy, ""}

// policy is one whose selector is known.
type policy struct {
	id        RulesID
	order     policyOrder
	untracked bool
	in, out   bool // it decides in this direction
	value     model.Policy
	invalid   string
	query     *query
}

// policyOrder is what policies are sorted by. An invalid one comes first: what
// its order was meant to be is not known, and it must deny.
type policyOrder struct {
	class int // 0 invalid, 1 with an order, 2 without
	order float64
}

func (p *policy) compare(o *policy) int {
	if c := cmp.Or(cmp.Compare(p.order.class, o.order.class), cmp.Compare(p.order.order, o.order.order)); c != 0 {
		return c
	}
	return strings.Compare(p.id.Name, o.id.Name)
}

// parsePolicy gives nil for a policy that is not there or picks nothing.
func parsePolicy(key model.PolicyKey, entry model.Entry) (*policy, string) {
	p := &policy{id: RulesID{KindPolicy, key.Policy}, in: true, out: true}
	var invalid *model.InvalidPolicyError
	text := ""
	switch value, ok := entry.Value.(model.Policy); {
	case ok && entry.Err == nil && entry.Exists():
		p.value, text = value, value.Selector
		p.untracked, p.in, p.out = value.Untracked, value.Applies(model.Inbound), value.Applies(model.Outbound)
		p.order.class = 2
		if value.Order != nil {
			p.order = policyOrder{1, *value.Order}
		}
	case entry.Exists() && errors.As(entry.Err, &invalid):
		p.invalid, text = invalid.Error(), invalid.Selector
	case ok && entry.Exists(): // what it picked before, as its selector can't be read
		p.invalid, text = entry.Err.Error(), value.Selector
	default:
		return nil, ""
	}
	if key.Tier != defaultTier {
		*p = policy{id: otherTier, in: true, out: true, invalid: "it is in a tier other than " + defaultTier}
	}
	return p, text
}

// policies keep those whose selector is known, and what they pick among this host's endpoints.
type policies struct {
	own       *matcher
	byKey     map[model.PolicyKey]*policy
	selectors map[string]*query // by canonical text
}

// update takes in a policy.
func (ps *policies) update(key model.PolicyKey, entry model.Entry) {
	old := ps.byKey[key]
	p, text := parsePolicy(key, entry)
	var q *query
	if p != nil {
		if sel, err := selector.Parse(text); err != nil {
			p = nil // it picks nothing, and was never valid
		} else {
			q = ps.query(sel)
			p.query = q
		}
	}
	if old != nil && p != nil && old.query == q && old.id == p.id && old.order == p.order &&
		old.untracked == p.untracked && old.in == p.in && old.out == p.out {
		q.policies[slices.Index(q.policies, old)] = p
		ps.byKey[key] = p
		return
	}
	if p != nil {
		ps.byKey[key] = p
		q.policies = append(q.policies, p)
		if len(q.policies) == 1 {
			ps.own.ask(q)
		} else {
			ps.touchAll(q)
		}
	}
	if old != nil {
		if p == nil {
			delete(ps.byKey, key)
		}
		ps.drop(old)
	}
}

// checkPolicy says what is wrong with a policy that was parsed.
func checkPolicy(key model.PolicyKey, p model.Policy) error {
	if _, err := selector.Parse(p.Selector); err != nil {
		return fmt.Errorf("selector: %w", err)
	}
	if key.Tier != defaultTier {
		return fmt.Errorf("tier %s: policies of tiers other than %s are not known here, so it denies: move it to tier %s", key.Tier, defaultTier, defaultTier)
	}
	return nil
}

// query is the query of a selector; policies with equal ones share it.
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

// touchAll has what is applied to the endpoints that a query picks worked out again.
func (ps *policies) touchAll(q *query) {
	for _, ep := range q.endpoints {
		ps.own.changed(ep, q, true)
	}
}
