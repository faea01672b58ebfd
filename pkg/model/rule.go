// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/selector"
)

// Rules are read strictly: ignoring a criterion that is misspelt, null or an empty list would widen what the rule
// allows.
var (
	errNull      = errors.New("null: leave the field out to match anything")
	errEmptyList = errors.New("empty list: leave the field out to match anything")
)

func parseRule(r *reader) (Rule, error) {
	rule := Rule{Action: ActionAllow}
	err := r.object(func(name string) (err error) {
		if r.next() == 'n' {
			return errNull
		}
		switch name {
		case "action":
			rule.Action, err = parseAction(r)
		case "ip_version":
			rule.IPVersion, err = r.integer(4, 6)
		case "log_prefix":
			rule.LogPrefix, err = r.str()
		default:
			if criterion, negated := strings.CutPrefix(name, "!"); negated {
				err = rule.Not.parse(r, criterion)
			} else {
				err = rule.Match.parse(r, criterion)
			}
		}
		return err
	})
	if err != nil {
		return rule, err
	}
	return rule, rule.check()
}

func parseAction(r *reader) (Action, error) {
	s, err := r.str()
	if err != nil {
		return "", err
	}
	if s == "pass" {
		return ActionNextTier, nil
	}
	return Action(s), nil
}

// parse reads one criterion.
func (m *Match) parse(r *reader, name string) (err error) {
	switch name {
	case "protocol":
		m.Protocol, err = parseProtocolField(r)
	case "src_tag":
		m.SrcTag, err = parseTag(r)
	case "dst_tag":
		m.DstTag, err = parseTag(r)
	case "src_selector":
		m.SrcSelector, err = r.str()
		m.HasSrcSelector = true
	case "dst_selector":
		m.DstSelector, err = r.str()
		m.HasDstSelector = true
	case "src_net":
		m.SrcNets, err = parseRuleNet(r, m.SrcNets)
	case "dst_net":
		m.DstNets, err = parseRuleNet(r, m.DstNets)
	case "src_nets":
		m.SrcNets, err = parseRuleNets(r, m.SrcNets)
	case "dst_nets":
		m.DstNets, err = parseRuleNets(r, m.DstNets)
	case "src_ports":
		m.SrcPorts, err = parseRulePorts(r)
	case "dst_ports":
		m.DstPorts, err = parseRulePorts(r)
	case "icmp_type":
		m.ICMPType, err = parseICMP(r, 254)
	case "icmp_code":
		m.ICMPCode, err = parseICMP(r, 255)
	default:
		return errors.New("unknown: a rule with a field that is not understood is not applied")
	}
	return err
}

func parseTag(r *reader) (string, error) {
	s, err := r.str()
	if err == nil && s == "" {
		err = errEmpty
	}
	return s, err
}

func parseRuleNet(r *reader, nets []netip.Prefix) ([]netip.Prefix, error) {
	p, err := r.prefix()
	return append(nets, p), err
}

func parseRuleNets(r *reader, nets []netip.Prefix) ([]netip.Prefix, error) {
	n := 0
	err := r.list(func(int) (err error) {
		n++
		nets, err = parseRuleNet(r, nets)
		return err
	})
	if err == nil && n == 0 {
		err = errEmptyList
	}
	return nets, err
}

func parseRulePorts(r *reader) ([]Port, error) {
	var out []Port
	err := r.list(func(int) error {
		p, err := parsePortField(r)
		out = append(out, p)
		return err
	})
	if err == nil && len(out) == 0 {
		err = errEmptyList
	}
	return out, err
}

func parseICMP(r *reader, high int) (*uint8, error) {
	n, err := r.integer(0, high)
	v := uint8(n)
	return &v, err
}

func (r *Rule) check() error {
	switch r.Action {
	case ActionAllow, ActionDeny, ActionLog, ActionNextTier:
	default:
		return inField("action", fmt.Errorf("%.32q: want allow, deny, log or next-tier", string(r.Action)))
	}
	if r.IPVersion != 0 && r.IPVersion != 4 && r.IPVersion != 6 {
		return inField("ip_version", fmt.Errorf("%d: want 4 or 6", r.IPVersion))
	}
	if err := r.Match.check("", r.Match.Protocol); err != nil {
		return err
	}
	if err := r.Not.check("!", r.Match.Protocol); err != nil {
		return err
	}
	return r.checkNames()
}

// The firewall has a set for each port name. A rule looks up all sets that it excludes, and the kernel has 4 KiB for
// that and everything else in a rule. A rule is split into one for each name that it matches, combined with each of the
// other side.
const (
	maxNamesNot   = 32
	maxNamesMatch = 256
)

// checkNames limits the number of port names. A packet must be logged only once, so in a rule that logs, the part for
// one name excludes those of the names before it.
func (r *Rule) checkNames() error {
	src, dst := namedPorts(r.Match.SrcPorts), namedPorts(r.Match.DstPorts)
	not, field := namedPorts(r.Not.SrcPorts)+namedPorts(r.Not.DstPorts), "!src_ports and !dst_ports"
	if r.Action == ActionLog {
		not, field = not+src+dst, "ports of a rule that logs"
	}
	if not > maxNamesNot {
		return fmt.Errorf("%s: %d names of ports: at most %d; make rules of fewer, or write numbers", field, not, maxNamesNot)
	}
	src, dst = alternatives(src, r.Match.SrcPorts), alternatives(dst, r.Match.DstPorts)
	if n := src * dst; n > maxNamesMatch {
		return fmt.Errorf("src_ports and dst_ports: %d combinations of names of ports: at most %d; make rules of fewer, or write numbers", n, maxNamesMatch)
	}
	return nil
}

func namedPorts(ports []Port) int {
	n := 0
	for i := range ports {
		if ports[i].Name != "" {
			n++
		}
	}
	return n
}

// alternatives returns the number of alternatives of one side: each name, and all numbers together.
func alternatives(names int, ports []Port) int {
	if names < len(ports) || names == 0 {
		names++
	}
	return names
}

// check takes the rule's positive protocol, which negated ports and ICMP types need too.
func (m *Match) check(not string, protocol Protocol) error {
	if m.Protocol.isExtension() {
		return inField(not+"protocol", fmt.Errorf("%d is an extension header of IPv6, which no packet has for its protocol: want that of what follows such headers", m.Protocol))
	}
	for _, s := range [...]struct{ field, text string }{
		{"src_selector", m.SrcSelector}, {"dst_selector", m.DstSelector},
	} {
		if _, err := selector.Parse(s.text); err != nil {
			return inField(not+s.field, err)
		}
	}
	for _, n := range [...]struct {
		field string
		nets  []netip.Prefix
	}{{"src_nets", m.SrcNets}, {"dst_nets", m.DstNets}} {
		if err := checkNetworks(n.nets); err != nil {
			return inField(not+n.field, err)
		}
	}
	for _, p := range [...]struct {
		field string
		ports []Port
	}{{"src_ports", m.SrcPorts}, {"dst_ports", m.DstPorts}} {
		if len(p.ports) > 0 && !protocol.HasPorts() && (not != "" || protocol != 0 || !areServices(p.ports)) {
			return inField(not+p.field, errors.New("needs protocol tcp, udp, sctp or udplite"))
		}
		for i := range p.ports {
			if err := p.ports[i].check(); err != nil {
				return inField(not+p.field, atIndex(i, err))
			}
		}
	}
	icmp := protocol == ProtocolICMP || protocol == ProtocolICMPv6
	switch {
	case m.ICMPType != nil && !icmp:
		return inField(not+"icmp_type", errors.New("needs protocol icmp or icmpv6"))
	case m.ICMPType != nil && *m.ICMPType == 255:
		return inField(not+"icmp_type", errors.New("255: want 0 to 254"))
	case m.ICMPCode != nil && m.ICMPType == nil:
		return inField(not+"icmp_code", fmt.Errorf("needs %sicmp_type", not))
	}
	return nil
}

// checkNetworks checks networks of either family.
func checkNetworks(nets []netip.Prefix) error {
	for i, p := range nets {
		if !p.IsValid() {
			return atIndex(i, errMissing)
		}
		if err := checkFamily(p.Addr(), isV6(p)); err != nil {
			return atIndex(i, err)
		}
	}
	return nil
}

// maxSets limits the sources of addresses and ports in rules. Each takes two sets in the kernel, which searches for
// each among all: 1,000 take it half a second, 8,000 most of a minute.
const maxSets = 1000

// Limits for what lists of values become in the kernel. In a policy with many rules, each combination of values from
// the lists becomes a rule; above maxApart combinations, they become a set, which takes the kernel as long as so many
// rules. 65,536 take it some seconds, since it processes everything written together one by one.
const (
	maxApart    = 32
	maxApartNot = 22
	maxApartAll = 1 << 16
)

// checkApart limits this number for one policy or profile.
func checkApart(lists ...[]Rule) error {
	n := 0
	for _, list := range lists {
		for i := range list {
			n += list[i].apart()
		}
	}
	if n > maxApartAll {
		return fmt.Errorf("its rules come to %d in the kernel, one for each value of a list with each of the others: at most %d; make policies of fewer rules, or rules of shorter lists", n, maxApartAll)
	}
	return nil
}

func (r *Rule) apart() int {
	m := &r.Match
	src, dst := namedPorts(m.SrcPorts), namedPorts(m.DstPorts)
	n := 1
	for _, values := range [...]int{len(m.SrcNets), len(m.DstNets), len(m.SrcPorts) - src, len(m.DstPorts) - dst} {
		n = min(n*max(values, 1), maxApart)
	}
	if len(r.Not.SrcNets)+len(r.Not.DstNets)+len(r.Not.SrcPorts)+len(r.Not.DstPorts) > maxApartNot {
		n = maxApart
	}
	return n * alternatives(src, m.SrcPorts) * alternatives(dst, m.DstPorts)
}

// checkSets limits the number of different selectors, tags and port names in one policy or profile.
func checkSets(lists ...[]Rule) error {
	if err := checkApart(lists...); err != nil {
		return err
	}
	all := 0
	eachSet(lists, func(string, string) { all++ })
	if all <= maxSets {
		return nil
	}
	seen := map[[2]string]struct{}{}
	eachSet(lists, func(kind, name string) { seen[[2]string{kind, name}] = struct{}{} })
	if len(seen) > maxSets {
		return fmt.Errorf("its rules name %d different selectors, tags and ports: at most %d; pick by labels that many endpoints have", len(seen), maxSets)
	}
	return nil
}

func eachSet(lists [][]Rule, fn func(kind, name string)) {
	for _, list := range lists {
		for i := range list {
			list[i].Match.sets(fn)
			list[i].Not.sets(fn)
		}
	}
}

func (m *Match) sets(fn func(kind, name string)) {
	if m.HasSrcSelector || m.SrcSelector != "" {
		fn("selector", m.SrcSelector)
	}
	if m.HasDstSelector || m.DstSelector != "" {
		fn("selector", m.DstSelector)
	}
	for _, tag := range [...]string{m.SrcTag, m.DstTag} {
		if tag != "" {
			fn("tag", tag)
		}
	}
	for _, ports := range [...][]Port{m.SrcPorts, m.DstPorts} {
		for _, p := range ports {
			if p.Name != "" {
				fn("port", p.Name)
			}
		}
	}
}

func (w *writer) rules(name string, rules []Rule) error {
	w.name(name)
	w.openList(len(rules))
	for i := range rules {
		if err := w.rule(&rules[i]); err != nil {
			return inField(name, atIndex(i, err))
		}
	}
	w.close(']')
	return nil
}

func (w *writer) rule(r *Rule) error {
	if err := r.check(); err != nil {
		return err
	}
	w.open('{')
	w.str("action", string(r.Action))
	if r.IPVersion != 0 {
		w.integer("ip_version", r.IPVersion)
	}
	w.match("", &r.Match)
	w.match("!", &r.Not)
	w.optional("log_prefix", r.LogPrefix)
	w.close('}')
	return nil
}

func (w *writer) match(not string, m *Match) {
	if m.Protocol != 0 {
		w.name(not + "protocol")
		w.protocol(m.Protocol)
	}
	w.optional(not+"src_tag", m.SrcTag)
	if m.HasSrcSelector || m.SrcSelector != "" {
		w.str(not+"src_selector", m.SrcSelector)
	}
	w.ruleNets(not+"src_net", m.SrcNets)
	w.ports(not+"src_ports", m.SrcPorts)
	w.optional(not+"dst_tag", m.DstTag)
	if m.HasDstSelector || m.DstSelector != "" {
		w.str(not+"dst_selector", m.DstSelector)
	}
	w.ruleNets(not+"dst_net", m.DstNets)
	w.ports(not+"dst_ports", m.DstPorts)
	if m.ICMPType != nil {
		w.integer(not+"icmp_type", int(*m.ICMPType))
	}
	if m.ICMPCode != nil {
		w.integer(not+"icmp_code", int(*m.ICMPCode))
	}
}

// ruleNets writes a single net as src_net, which every reader knows, and only several as src_nets.
func (w *writer) ruleNets(name string, nets []netip.Prefix) {
	switch len(nets) {
	case 0:
	case 1:
		w.prefix(name, nets[0])
	default:
		w.prefixes(name+"s", nets)
	}
}

func (w *writer) ports(name string, ports []Port) {
	if len(ports) == 0 {
		return
	}
	writeList(w, name, ports, (*writer).port)
}
