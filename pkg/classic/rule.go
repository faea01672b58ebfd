// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Rule allows packets from or to a group or a network; everything else is denied.
type Rule struct {
	Group              string       // whose members, "" = use CIDR
	CIDR               netip.Prefix // invalid = use Group
	Protocol           model.Protocol
	Port               model.Port // the zero value means all
	ICMPType, ICMPCode *uint8     // nil means all
}

// Rules are those of a group, or of an endpoint for one address family.
type Rules struct{ Inbound, Outbound []Rule }

// wireRule is the encoding of a rule.
type wireRule struct {
	Group    *string         `json:"group"`
	CIDR     *netip.Prefix   `json:"cidr"`
	Protocol *string         `json:"protocol"`
	Port     json.RawMessage `json:"port"`
	ICMPType *uint8          `json:"icmp_type,omitempty"`
	ICMPCode *uint8          `json:"icmp_code,omitempty"`
}

// wireRules is the encoding of a rules object.
type wireRules struct {
	Inbound         []Rule `json:"inbound"`
	Outbound        []Rule `json:"outbound"`
	InboundDefault  string `json:"inbound_default"`
	OutboundDefault string `json:"outbound_default"`
}

// MarshalJSON encodes the rule as specified.
func (r Rule) MarshalJSON() ([]byte, error) {
	w := wireRule{Port: json.RawMessage("null"), ICMPType: r.ICMPType, ICMPCode: r.ICMPCode}
	if r.Group != "" {
		w.Group = &r.Group
	}
	if r.CIDR.IsValid() {
		w.CIDR = &r.CIDR
	}
	if r.Protocol != 0 {
		s := r.Protocol.String()
		w.Protocol = &s
	}
	switch p := r.Port; {
	case p == model.Port{}:
	case p.Min == p.Max:
		w.Port = strconv.AppendUint(nil, uint64(p.Min), 10)
	default:
		w.Port = fmt.Appendf(nil, "[%d,%d]", p.Min, p.Max)
	}
	return json.Marshal(w)
}

// MarshalJSON also writes the defaults.
func (r Rules) MarshalJSON() ([]byte, error) {
	w := wireRules{r.Inbound, r.Outbound, "deny", "deny"}
	if w.Inbound == nil {
		w.Inbound = []Rule{}
	}
	if w.Outbound == nil {
		w.Outbound = []Rule{}
	}
	return json.Marshal(w)
}

// parseRules parses a rules object. It leaves out invalid rules and returns their errors in left.
func parseRules(o object) (rules Rules, left []error, err error) {
	for _, side := range [...]struct {
		name string
		to   *[]Rule
	}{{"inbound", &rules.Inbound}, {"outbound", &rules.Outbound}} {
		list, err := o.list(side.name)
		if err != nil {
			return Rules{}, nil, err
		}
		for i, raw := range list {
			r, err := parseRule(raw)
			switch {
			case err != nil:
				left = append(left, fmt.Errorf("rule %d of %s is left out: %w", i, side.name, err))
			case r.Group != "" || r.CIDR.IsValid():
				*side.to = append(*side.to, r)
			}
		}
		if given, err := o.optionalText(side.name + "_default"); err != nil || given != "" && given != "deny" {
			left = append(left, fmt.Errorf("%s_default is not deny, and taken for deny all the same", side.name))
		}
	}
	return rules, left, nil
}

// parseRule parses one rule. At most one of Group and CIDR is set.
func parseRule(raw json.RawMessage) (r Rule, err error) {
	var o object
	if json.Unmarshal(raw, &o) != nil || o == nil {
		return r, errors.New("want an object")
	}
	if r.Group, err = o.optionalText("group"); err != nil {
		return r, err
	}
	cidr, err := o.optionalText("cidr")
	if err != nil {
		return r, err
	}
	if cidr != "" {
		if r.CIDR, err = parseCIDR(cidr); err != nil {
			return r, &fieldError{"cidr", err}
		}
		if r.Group != "" {
			return r, errors.New("it has a group and a cidr")
		}
	}
	if !o.null("protocol") {
		if r.Protocol, err = parseProtocol(o["protocol"]); err != nil {
			return r, &fieldError{"protocol", err}
		}
	}
	if r.Port, err = parsePort(o["port"]); err != nil {
		return r, &fieldError{"port", err}
	}
	if r.Port != (model.Port{}) && !r.Protocol.HasPorts() {
		return r, &fieldError{"port", fmt.Errorf("protocol %s has none", r.Protocol)}
	}
	for _, f := range [...]struct {
		name string
		most int
		to   **uint8
	}{{"icmp_type", 254, &r.ICMPType}, {"icmp_code", 255, &r.ICMPCode}} {
		if o.null(f.name) {
			continue
		}
		n, err := number(o[f.name], f.most)
		if err != nil {
			return r, &fieldError{f.name, err}
		}
		v := uint8(n)
		*f.to = &v
	}
	switch {
	case r.ICMPType != nil && r.Protocol != model.ProtocolICMP && r.Protocol != model.ProtocolICMPv6:
		return r, &fieldError{"icmp_type", fmt.Errorf("protocol %s has none", r.Protocol)}
	case r.ICMPCode != nil && r.ICMPType == nil:
		return r, &fieldError{"icmp_code", errors.New("there is no icmp_type")}
	}
	return r, nil
}

// parseCIDR parses a network, ignoring host bits, or an address.
func parseCIDR(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := parseAddr(s)
		if err != nil {
			return netip.Prefix{}, err
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%.64q: want a network like 10.65.0.0/24", s)
	}
	return p.Masked(), nil
}

// parseAddr parses an address without a zone.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, fmt.Errorf("%.64q: want an IP address", s)
	}
	return a, nil
}

// parseProtocol parses a name or a number.
func parseProtocol(raw json.RawMessage) (model.Protocol, error) {
	text := string(raw)
	var s string
	if json.Unmarshal(raw, &s) == nil {
		text = s
	}
	return model.ParseProtocol(text)
}

// parsePort parses a number, possibly in a string, a pair of these, or one of the forms that mean all.
func parsePort(raw json.RawMessage) (model.Port, error) {
	var pair []json.RawMessage
	switch {
	case len(raw) == 0, string(raw) == "null", string(raw) == `"*"`:
		return model.Port{}, nil
	case json.Unmarshal(raw, &pair) != nil:
		pair = []json.RawMessage{raw, raw}
	case len(pair) != 2:
		return model.Port{}, fmt.Errorf("%.64s: want a list of two", raw)
	}
	low, err := number(pair[0], 65535)
	if err != nil {
		return model.Port{}, err
	}
	high, err := number(pair[1], 65535)
	if err == nil && (low == 0 || low > high) {
		err = fmt.Errorf("%.64s: want ports from 1 to 65535, the lower first", raw)
	}
	return model.Port{Min: uint16(low), Max: uint16(high)}, err
}
