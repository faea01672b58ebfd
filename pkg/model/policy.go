// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/calico-go/calico/pkg/selector"
)

// InvalidPolicyError is the error of an invalid policy whose selector can still be read: the endpoints that it selects
// must be denied.
type InvalidPolicyError struct {
	Selector string // this parses
	Forward  bool   // it may apply to forwarded packets, too
	Err      error
}

// Error returns the text of Err.
func (e *InvalidPolicyError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *InvalidPolicyError) Unwrap() error { return e.Err }

// parsePolicy reads the selector first, so that it is known whatever else is wrong.
func parsePolicy(r *reader) (Policy, error) {
	start := *r
	text, forward, err := parsePolicySelector(r)
	if err != nil {
		return Policy{}, err
	}
	*r = start
	p := Policy{Selector: text}
	err = r.recordOr(undecided,
		field{"selector", func(r *reader) error { r.raw(); return nil }},
		into("order", &p.Order, parseOrder),
		into("inbound_rules", &p.Inbound, each(parseRule)),
		into("outbound_rules", &p.Outbound, each(parseRule)),
		into("untracked", &p.Untracked, boolean(false)),
		into("pre_dnat", &p.PreDNAT, boolean(false)),
		into("apply_on_forward", &p.Forward, boolean(false)),
		into("types", &p.Types, parseTypes),
		into("meta", &p.Meta, parseMeta),
	)
	if err == nil {
		err = p.check()
	}
	if err != nil {
		return p, &InvalidPolicyError{text, forward, err}
	}
	return p, nil
}

func (p Policy) check() error {
	switch {
	case p.PreDNAT && p.Untracked:
		return inField("pre_dnat", errors.New("an untracked policy is asked before connections are known: want one of the two"))
	case p.PreDNAT && (len(p.Outbound) > 0 || len(p.Types) > 0 && !p.Applies(Inbound)):
		return inField("pre_dnat", errors.New("such a policy is asked of what comes in: want no outbound_rules, and no types but inbound"))
	}
	return checkSets(p.Inbound, p.Outbound)
}

// policyFields are the fields of a policy.
var policyFields = [...]string{"selector", "order", "inbound_rules", "outbound_rules", "untracked", "pre_dnat", "apply_on_forward", "types", "meta"}

// notes are unknown fields of a policy that don't affect what it applies to: other programs' and people's notes.
var notes = [...]string{"annotations", "comment", "description", "performance_hints"}

// mayDecide reports whether an unknown field of a policy may say when, or to what, the policy applies. Its author
// relies on it: ignoring the field could allow what the policy should deny.
func mayDecide(name string, value []byte) bool {
	switch string(value) {
	case "null", "false", `""`, "[]", "{}":
		return false
	}
	return !slices.Contains(notes[:], name)
}

// undecided rejects such a field.
func undecided(name string, value []byte) error {
	if !mayDecide(name, value) {
		return nil
	}
	return errors.New("unknown, and may say when or to what the policy applies: take it away, or correct its name")
}

// parsePolicySelector also reports whether the policy may apply to forwarded packets.
func parsePolicySelector(r *reader) (text string, forward bool, err error) {
	found := false
	err = r.fields(func(name string) (err error) {
		if name != "selector" {
			value := r.raw()
			forward = forward || !slices.Contains(policyFields[:], name) && mayDecide(name, value) || (name == "pre_dnat" || name == "apply_on_forward") && mayDecide(name, value)
			return nil
		}
		if found {
			return errTwice
		}
		found = true
		text, err = r.str()
		if err == nil {
			_, err = selector.Parse(text)
		}
		return err
	})
	if err == nil && !found {
		err = inField("selector", errors.New(`missing: "" and "all()" pick every endpoint`))
	}
	return text, forward, err
}

// parseOrder reads a number; "default" and null mean last.
func parseOrder(r *reader) (*float64, error) {
	if r.null() {
		return nil, nil
	}
	if r.isNumber() {
		f, err := r.float()
		return &f, err
	}
	s, err := r.str()
	if err != nil || s != "default" {
		return nil, errors.New(`want a number or "default"`)
	}
	return nil, nil
}

// parseTypes returns nil for both directions, as if the field were absent.
func parseTypes(r *reader) ([]Direction, error) {
	names, err := r.strings()
	if err != nil {
		return nil, err
	}
	in, out := false, false
	for i, s := range names {
		switch Direction(s) {
		case Inbound:
			in = true
		case Outbound:
			out = true
		default:
			return nil, atIndex(i, fmt.Errorf("%.32q: want inbound or outbound", s))
		}
	}
	switch {
	case in == out:
		return nil, nil
	case in:
		return []Direction{Inbound}, nil
	default:
		return []Direction{Outbound}, nil
	}
}

// Applies reports whether the policy decides at all in a direction.
func (p Policy) Applies(d Direction) bool {
	return len(p.Types) == 0 && !(p.PreDNAT && d == Outbound) || slices.Contains(p.Types, d)
}

func (p Policy) format(w *writer) error {
	if _, err := selector.Parse(p.Selector); err != nil {
		return inField("selector", err)
	}
	if err := p.check(); err != nil {
		return err
	}
	w.open('{')
	w.str("selector", p.Selector)
	if err := w.order(p.Order); err != nil {
		return err
	}
	if err := w.rules("inbound_rules", p.Inbound); err != nil {
		return err
	}
	if err := w.rules("outbound_rules", p.Outbound); err != nil {
		return err
	}
	w.flag("untracked", p.Untracked, false)
	w.flag("pre_dnat", p.PreDNAT, false)
	w.flag("apply_on_forward", p.Forward, false)
	for i, d := range p.Types {
		if d != Inbound && d != Outbound {
			return inField("types", atIndex(i, fmt.Errorf("%.32q: want inbound or outbound", string(d))))
		}
	}
	if len(p.Types) > 0 && p.Applies(Inbound) != p.Applies(Outbound) {
		w.strings("types", []string{string(p.Types[0])})
	}
	w.meta(p.Meta)
	w.close('}')
	return nil
}

func (w *writer) order(order *float64) error {
	if order == nil {
		return nil
	}
	if math.IsNaN(*order) || math.IsInf(*order, 0) {
		return inField("order", fmt.Errorf("%v: want a number", *order))
	}
	w.float("order", *order)
	return nil
}

func parseTier(r *reader) (Tier, error) {
	var t Tier
	err := r.record(into("order", &t.Order, parseOrder), into("default_action", &t.DefaultAction, parseTierAction), into("meta", &t.Meta, parseMeta))
	return t, err
}

func parseTierAction(r *reader) (TierAction, error) {
	if r.null() {
		return TierDeny, nil
	}
	s, err := r.str()
	switch {
	case err != nil:
		return "", err
	case s == "deny":
		return TierDeny, nil
	case s == string(TierPass):
		return TierPass, nil
	}
	return "", fmt.Errorf("%.32q: want deny or pass", s)
}

func (t Tier) format(w *writer) error {
	w.open('{')
	if err := w.order(t.Order); err != nil {
		return err
	}
	switch t.DefaultAction {
	case TierDeny:
	case TierPass:
		w.str("default_action", string(t.DefaultAction))
	default:
		return inField("default_action", fmt.Errorf("%.32q: want deny or pass", string(t.DefaultAction)))
	}
	w.meta(t.Meta)
	w.close('}')
	return nil
}

func parseRules(r *reader) (Rules, error) {
	var rules Rules
	err := r.record(
		into("inbound_rules", &rules.Inbound, each(parseRule)),
		into("outbound_rules", &rules.Outbound, each(parseRule)),
	)
	if err == nil {
		err = checkSets(rules.Inbound, rules.Outbound)
	}
	return rules, err
}

func (r Rules) format(w *writer) error {
	if err := checkSets(r.Inbound, r.Outbound); err != nil {
		return err
	}
	w.open('{')
	if err := w.rules("inbound_rules", r.Inbound); err != nil {
		return err
	}
	if err := w.rules("outbound_rules", r.Outbound); err != nil {
		return err
	}
	w.close('}')
	return nil
}

func parseTags(r *reader) (Tags, error) {
	tags, err := listOf(r, parseTag)
	return Tags(tags), err
}

func (t Tags) format(w *writer) error {
	if err := checkNames(t); err != nil {
		return err
	}
	w.openList(len(t))
	for _, s := range t {
		w.sep()
		w.quote(s)
	}
	w.close(']')
	return nil
}

func parseLabels(r *reader) (Labels, error) {
	m, err := r.stringMap()
	return Labels(m), err
}
