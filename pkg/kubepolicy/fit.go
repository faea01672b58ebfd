// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"errors"
	"fmt"
	"sort"

	"github.com/calico-go/calico/pkg/model"
)

// part is the result of one rule of an object.
type part struct {
	field     string
	direction model.Direction
	rules     []model.Rule
	instead   []model.Rule // to be used if rules exceed the model's limits; it allows nothing that rules would not
}

// fit adds parts to the policy. If one part, or all together, exceed the model's limits, it uses instead for that part,
// or for the last ones.
func (r *report) fit(p model.Policy, parts []part) model.Policy {
	whole := assemble(p, parts, len(parts))
	if bound(whole) == nil {
		return whole
	}
	for i := range parts {
		if err := bound(assemble(p, parts[i:i+1], 1)); err != nil {
			r.add(parts[i].field, err.Error()+", so the rule lets nothing through", "make rules and policies of fewer peers and ports")
			parts[i].rules = parts[i].instead
		}
	}
	n := sort.Search(len(parts), func(i int) bool { return bound(assemble(p, parts, i+1)) != nil })
	if n < len(parts) {
		err := bound(assemble(p, parts, n+1))
		r.add(parts[n].field, fmt.Sprintf("%s, so this rule and the %d after it let nothing through", err, len(parts)-n-1), "make several policies of this one")
	}
	return assemble(p, parts, n)
}

// bound returns which of the model's limits a policy exceeds.
func bound(p model.Policy) error {
	_, err := model.FormatValue(p)
	if reason := errors.Unwrap(err); reason != nil {
		return reason
	}
	return err
}

// assemble adds the rules of the first n parts, and instead of the others.
func assemble(p model.Policy, parts []part, n int) model.Policy {
	for i, part := range parts {
		rules := part.rules
		if i >= n {
			rules = part.instead
		}
		if part.direction == model.Inbound {
			p.Inbound = append(p.Inbound, rules...)
		} else {
			p.Outbound = append(p.Outbound, rules...)
		}
	}
	return p
}
