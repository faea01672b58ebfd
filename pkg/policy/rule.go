// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

// maxLogPrefix is the maximum length of a prefix in the kernel's log, in bytes.
const maxLogPrefix = 27

// LogPrefix converts any text to a prefix that can be logged: at most maxLogPrefix bytes, with everything except
// [A-Za-z0-9_:-] replaced by "_".
func LogPrefix(s string) string {
	b := []byte(s[:min(len(s), maxLogPrefix)])
	for i, c := range b {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_', c == ':', c == '-':
		default:
			b[i] = '_'
		}
	}
	return string(b)
}

// Family returns the rule for one IP version, with its nets reduced to those of the family. ok is false if the rule
// does not apply to the family at all: ip_version says so, a list of nets (negated or not) has none of the family, or
// the protocol (negated or not) is the other family's ICMP.
func (r Rule) Family(version int) (f Rule, ok bool) {
	if r.IPVersion != 0 && r.IPVersion != version {
		return Rule{}, false
	}
	f = r
	for _, c := range [...]*Criteria{&f.Match, &f.Not} {
		if c.Protocol == model.ProtocolICMP && version != 4 || c.Protocol == model.ProtocolICMPv6 && version != 6 {
			return Rule{}, false
		}
		for _, nets := range [...]*[]netip.Prefix{&c.SrcNets, &c.DstNets} {
			all := *nets
			*nets = netsOf(all, version)
			if len(all) > 0 && len(*nets) == 0 {
				return Rule{}, false
			}
		}
	}
	return f, true
}

func netsOf(nets []netip.Prefix, version int) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range nets {
		if versionOf(p.Addr()) == version {
			out = append(out, p)
		}
	}
	return out
}

func versionOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// Reduced returns the expressible part of a rule. If err is nil, that is the rule itself. Otherwise err says what can't
// be expressed, and the returned rule lacks that part and drops: it must never allow what the whole rule might not
// have.
func (r Rule) Reduced() (reduced Rule, err error) {
	keep := func(problem error) {
		if err == nil {
			err = problem
		}
	}
	switch r.Action {
	case model.ActionAllow, model.ActionDeny, model.ActionLog, model.ActionNextTier:
	default:
		keep(fmt.Errorf("action %q is unknown", r.Action))
	}
	for _, c := range [...]*Criteria{&r.Match, &r.Not} {
		ofServices := c == &r.Match && r.Match.Protocol == 0 && len(c.SrcPorts)+len(c.DstPorts) == 0 // whose protocols the sets say
		if c.hasPorts() && !r.Match.Protocol.HasPorts() && !ofServices {
			keep(fmt.Errorf("protocol %s has no ports", r.Match.Protocol))
			c.SrcPorts, c.DstPorts, c.SrcPortSets, c.DstPortSets = nil, nil, nil, nil
		}
		icmp := r.Match.Protocol == model.ProtocolICMP || r.Match.Protocol == model.ProtocolICMPv6
		if (c.ICMPType != nil || c.ICMPCode != nil) && !icmp {
			keep(fmt.Errorf("protocol %s has no ICMP types", r.Match.Protocol))
			c.ICMPType, c.ICMPCode = nil, nil
		}
		if c.ICMPCode != nil && c.ICMPType == nil {
			keep(fmt.Errorf("ICMP code %d without a type", *c.ICMPCode))
			c.ICMPCode = nil
		}
	}
	if err != nil {
		r.Action = model.ActionDeny
	}
	return r, err
}

func (c *Criteria) hasPorts() bool {
	return len(c.SrcPorts) > 0 || len(c.DstPorts) > 0 || len(c.SrcPortSets) > 0 || len(c.DstPortSets) > 0
}
