// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// RuleAction is what a rule does.
type RuleAction string

// UnmarshalText reads it in any case.
func (a *RuleAction) UnmarshalText(text []byte) error {
	return word(a, text, a.words())
}

func (RuleAction) words() []string { return []string{"Allow", "Deny", "Log", "Pass"} }

var actions = map[RuleAction]model.Action{"Allow": model.ActionAllow, "Deny": model.ActionDeny, "Log": model.ActionLog, "Pass": model.ActionNextTier}

// ICMP is an ICMP type, with or without a code.
type ICMP struct {
	Type *int `json:"type,omitempty" range:"0,254" doc:"0 to 254."`
	Code *int `json:"code,omitempty" range:"0,255" doc:"0 to 255, with a type."`
}

// EntityRule is one side of a rule.
type EntityRule struct {
	Nets              []Net            `json:"nets,omitempty" most:"256" doc:"An address in any of these, at most 256, of one family. Host bits are cleared."`
	NotNets           []Net            `json:"notNets,omitempty" most:"256" doc:"An address in none of these."`
	Selector          string           `json:"selector,omitempty" doc:"Selector of endpoints; in a NetworkPolicy, of those in its namespace."`
	NotSelector       string           `json:"notSelector,omitempty" doc:"Selector of endpoints that it is none of."`
	NamespaceSelector string           `json:"namespaceSelector,omitempty" doc:"Selector of namespaces that the endpoint is in; global() is an endpoint in none."`
	ServiceAccounts   *ServiceAccounts `json:"serviceAccounts,omitempty" doc:"An endpoint with one of these service accounts."`
	Ports             []Port           `json:"ports,omitempty" most:"50" doc:"Any of these, at most 50: numbers, ranges as 80:90, or names of the endpoint's ports. With a protocol that has ports."`
	NotPorts          []Port           `json:"notPorts,omitempty" most:"50" doc:"None of these."`
	Tag               string           `json:"tag,omitempty" doc:"Ours. An endpoint with a profile of this tag."`
	NotTag            string           `json:"notTag,omitempty" doc:"Ours. No such endpoint."`
	Services          *ServiceMatch    `json:"services,omitempty" doc:"In the destination of egress rules, alone: the endpoints of a Service, at the ports that it leads to."`
}

// ServiceMatch names a Service.
type ServiceMatch struct {
	Name      string `json:"name" doc:"Its name."`
	Namespace string `json:"namespace,omitempty" doc:"Its namespace; absent in a NetworkPolicy: that of the policy."`
}

// RuleNotes are what people and programs note of a rule.
type RuleNotes struct {
	Annotations map[string]string `json:"annotations,omitempty" doc:"Any names and values."`
}

// Rule matches packets that meet all of its fields.
type Rule struct {
	Action      RuleAction  `json:"action" doc:"What becomes of a packet that matches all that follows. Log goes on with the next rule; Pass with the next tier."`
	IPVersion   int         `json:"ipVersion,omitempty" doc:"4 or 6."`
	Protocol    *Protocol   `json:"protocol,omitempty" doc:"A name as TCP, or 1 to 255."`
	NotProtocol *Protocol   `json:"notProtocol,omitempty" doc:"Any other protocol."`
	ICMP        *ICMP       `json:"icmp,omitempty" doc:"The kind of message, with protocol ICMP or ICMPv6."`
	NotICMP     *ICMP       `json:"notICMP,omitempty" doc:"Any other kind of message."`
	Source      *EntityRule `json:"source,omitempty" doc:"Where the packet comes from."`
	Destination *EntityRule `json:"destination,omitempty" doc:"Where it goes to."`
	LogPrefix   string      `json:"logPrefix,omitempty" doc:"Ours. The packet is logged, whatever the action, in a line that begins so."`
	HTTP        anything    `json:"http,omitempty" refused:"http needs a proxy: not supported"`
	Metadata    *RuleNotes  `json:"metadata,omitempty" doc:"Notes, without effect."`
}

func (ICMP) validations() []Validation {
	return []Validation{{"has(self.type)", "type: missing"}}
}

func (Rule) validations() []Validation {
	const ported = "has(self.protocol) && string(self.protocol).matches('^(?i:tcp|udp|sctp|udplite|6|17|132|136)$')"
	var all []Validation
	for _, end := range []string{"source", "destination"} {
		for _, field := range []string{"ports", "notPorts"} {
			at := end + "." + field
			all = append(all, Validation{"!has(self." + end + ") || !has(self." + at + ") || " + ported, at + ": needs protocol TCP, UDP, SCTP or UDPLite"})
		}
	}
	const icmp = " || has(self.protocol) && string(self.protocol).matches('^(?i:icmp|icmpv6|1|58)$')"
	return append(all, Validation{"!has(self.icmp)" + icmp, "icmp: needs protocol ICMP or ICMPv6"}, Validation{"!has(self.notICMP)" + icmp, "notICMP: needs protocol ICMP or ICMPv6"})
}

func (r Resource) rules(field string, list []Rule, namespace string) ([]model.Rule, error) {
	if len(list) > 1024 {
		return nil, r.at(field, "%d rules: at most 1024", len(list))
	}
	var out []model.Rule
	for i, rule := range list {
		m, err := r.rule(field+"["+strconv.Itoa(i)+"]", rule, namespace)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func (r Resource) rule(field string, v Rule, namespace string) (model.Rule, error) {
	if v.Action == "" {
		return model.Rule{}, r.at(field+".action", "missing: want Allow, Deny, Log or Pass")
	}
	m := model.Rule{Action: actions[v.Action], IPVersion: v.IPVersion, LogPrefix: v.LogPrefix}
	if v.IPVersion != 0 && v.IPVersion != 4 && v.IPVersion != 6 {
		return m, r.at(field+".ipVersion", "%d: want 4 or 6", v.IPVersion)
	}
	if v.Protocol != nil {
		m.Match.Protocol = v.Protocol.Number
	}
	if v.NotProtocol != nil {
		m.Not.Protocol = v.NotProtocol.Number
	}
	var err error
	if m.Match.ICMPType, m.Match.ICMPCode, err = r.icmp(field+".icmp", v.ICMP); err != nil {
		return m, err
	}
	if m.Not.ICMPType, m.Not.ICMPCode, err = r.icmp(field+".notICMP", v.NotICMP); err != nil {
		return m, err
	}
	if (v.ICMP != nil || v.NotICMP != nil) && m.Match.Protocol != model.ProtocolICMP && m.Match.Protocol != model.ProtocolICMPv6 {
		return m, r.at(field+".icmp", "needs protocol ICMP or ICMPv6")
	}
	for _, end := range []struct {
		name string
		e    *EntityRule
		of   func(*model.Match) side
	}{{"source", v.Source, source}, {"destination", v.Destination, destination}} {
		if end.e == nil {
			continue
		}
		e, at, match, not := end.e, field+"."+end.name, end.of(&m.Match), end.of(&m.Not)
		if err := r.entity(at, e, m.Match.Protocol); err != nil {
			return m, err
		}
		*match.nets, *not.nets = netsOf(e.Nets), netsOf(e.NotNets)
		*match.ports, *not.ports = ports(e.Ports), ports(e.NotPorts)
		if e.Services != nil {
			name, err := r.service(at, *e, namespace, m.Match.Protocol)
			if err != nil {
				return m, err
			}
			*match.ports = []model.Port{{Name: name}}
		}
		*match.tag, *not.tag = e.Tag, e.NotTag
		if *match.selector, *match.hasSelector, err = e.pick(namespace).compile(namespace); err != nil {
			return m, r.notPicked(at, err)
		}
		if *not.selector, *not.hasSelector, err = notPicked(e); err != nil {
			return m, r.at(at+".notSelector", "%w", err)
		}
	}
	return m, nil
}

// A side points to the fields of a match that concern one end of a packet.
type side struct {
	nets          *[]netip.Prefix
	ports         *[]model.Port
	tag, selector *string
	hasSelector   *bool
}

func source(m *model.Match) side {
	return side{&m.SrcNets, &m.SrcPorts, &m.SrcTag, &m.SrcSelector, &m.HasSrcSelector}
}

func destination(m *model.Match) side {
	return side{&m.DstNets, &m.DstPorts, &m.DstTag, &m.DstSelector, &m.HasDstSelector}
}

func (e *EntityRule) pick(namespace string) pick {
	p := pick{e.Selector, e.NamespaceSelector, e.ServiceAccounts}
	if namespace != "" && p.selector == "" && p.namespaces == "" && p.accounts == nil && e.NotSelector != "" {
		p.selector = "all()" // notSelector applies within the policy's namespace
	}
	return p
}

func notPicked(e *EntityRule) (string, bool, error) {
	if e.NotSelector == "" {
		return "", false, nil
	}
	s, err := checked(e.NotSelector, asWritten)
	return s, err == nil, err
}

// entity checks one side of a rule. An empty list is an error: it would match anything.
func (r Resource) entity(field string, e *EntityRule, protocol model.Protocol) error {
	for _, list := range []struct {
		name        string
		empty       bool
		n, most     int
		needsPorted bool
	}{
		{"nets", e.Nets != nil, len(e.Nets), 256, false}, {"notNets", e.NotNets != nil, len(e.NotNets), 256, false},
		{"ports", e.Ports != nil, len(e.Ports), 50, true}, {"notPorts", e.NotPorts != nil, len(e.NotPorts), 50, true},
	} {
		at := field + "." + list.name
		switch {
		case list.empty && list.n == 0:
			return r.at(at, "empty list: leave the field out to match anything")
		case list.n > list.most:
			return r.at(at, "%d entries: at most %d", list.n, list.most)
		case list.needsPorted && list.n > 0 && !protocol.HasPorts():
			return r.at(at, "needs protocol TCP, UDP, SCTP or UDPLite")
		}
	}
	for name, list := range map[string][]Port{"ports": e.Ports, "notPorts": e.NotPorts} {
		for i, p := range list {
			if p.Name == "" && p.Min == 0 {
				return r.at(field+"."+name+"["+strconv.Itoa(i)+"]", "%s: want 1 to 65535", p)
			}
		}
	}
	for i, c := range e.NotNets {
		if c.Bits() == 0 {
			return r.at(field+".notNets["+strconv.Itoa(i)+"]", "%s: such a rule matches nothing", c)
		}
	}
	var families [2]bool
	for _, c := range append(append([]Net{}, e.Nets...), e.NotNets...) {
		families[c.Addr().BitLen()/64-c.Addr().BitLen()/128] = true
	}
	if families[0] && families[1] {
		return r.at(field+".nets", "IPv4 and IPv6 in one rule: write a rule for each")
	}
	return nil
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// service returns the name of the ports of the Service that one side of a rule names.
func (r Resource) service(field string, e EntityRule, namespace string, protocol model.Protocol) (string, error) {
	s := e.Services
	of := cmp.Or(s.Namespace, namespace)
	port := model.ServicePort(of, s.Name)
	at := field + ".services"
	switch e.Services = nil; {
	case !strings.HasPrefix(field, "spec.egress") || !strings.HasSuffix(field, ".destination"):
		return "", r.at(at, "only the destination of egress rules has services: use selector or nets")
	case !reflect.DeepEqual(e, EntityRule{}):
		return "", r.at(at, "nothing else may be beside it: write another rule")
	case protocol != 0 && !protocol.HasPorts():
		return "", r.at(at, "needs protocol TCP, UDP, SCTP or UDPLite, or none: it has ports")
	case of == "":
		return "", r.at(at+".namespace", "missing: in a GlobalNetworkPolicy want the Service's namespace")
	}
	if !dnsLabel.MatchString(s.Name) || !dnsLabel.MatchString(of) {
		return "", r.at(at, "%.64q in %.64q: not the name of a Service", s.Name, of)
	}
	return port, nil
}

func (r Resource) icmp(field string, i *ICMP) (typ, code *uint8, err error) {
	if i == nil {
		return nil, nil, nil
	}
	if i.Type == nil {
		return nil, nil, r.at(field+".type", "missing")
	}
	if typ, err = r.octet(field+".type", i.Type, 254); err == nil {
		code, err = r.octet(field+".code", i.Code, 255)
	}
	return typ, code, err
}

func (r Resource) octet(field string, n *int, most int) (*uint8, error) {
	switch {
	case n == nil:
		return nil, nil
	case *n < 0 || *n > most:
		return nil, r.at(field, "%d: want 0 to %d", *n, most)
	}
	return new(uint8(*n)), nil
}

func ports(list []Port) []model.Port {
	return converted(list, func(p Port) model.Port { return p.Port })
}

func portsOf(list []model.Port) []Port {
	return converted(list, func(p model.Port) Port { return Port{p} })
}

var errNoWords = errors.New("it was not written by calicoctl, and its selectors can't be said in the words of a NetworkPolicy")

func rulesOf(list []model.Rule, namespace string) ([]Rule, error) {
	var out []Rule
	for _, m := range list {
		v := Rule{IPVersion: m.IPVersion, LogPrefix: m.LogPrefix, ICMP: icmpOf(m.Match), NotICMP: icmpOf(m.Not)}
		for word, action := range actions {
			if action == m.Action {
				v.Action = word
			}
		}
		if p := m.Match.Protocol; p != 0 {
			v.Protocol = &Protocol{p}
		}
		if p := m.Not.Protocol; p != 0 {
			v.NotProtocol = &Protocol{p}
		}
		var errs [2]error
		v.Source, errs[0] = entityOf(source(&m.Match), source(&m.Not), namespace)
		v.Destination, errs[1] = entityOf(destination(&m.Match), destination(&m.Not), namespace)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// entityOf returns one side of a rule in the form of a resource, nil = anything.
func entityOf(match, not side, namespace string) (*EntityRule, error) {
	e := EntityRule{Nets: nets(*match.nets), NotNets: nets(*not.nets), Ports: portsOf(*match.ports), NotPorts: portsOf(*not.ports), Tag: *match.tag, NotTag: *not.tag}
	if *match.hasSelector {
		p, ok := decompile(cmp.Or(*match.selector, "all()"), namespace, true)
		if !ok && namespace != "" {
			return nil, errNoWords
		}
		e.Selector, e.NamespaceSelector, e.ServiceAccounts = p.selector, p.namespaces, p.accounts
	}
	if *not.hasSelector {
		e.NotSelector = cmp.Or(*not.selector, "all()")
	}
	if len(e.Ports) == 1 {
		if of, name, is := model.ServiceOf(e.Ports[0].Name); is {
			e.Ports, e.Services = nil, &ServiceMatch{name, of}
		}
	}
	if reflect.DeepEqual(e, EntityRule{}) {
		return nil, nil
	}
	return &e, nil
}

func icmpOf(m model.Match) *ICMP {
	if m.ICMPType == nil {
		return nil
	}
	i := &ICMP{Type: new(int(*m.ICMPType))}
	if m.ICMPCode != nil {
		i.Code = new(int(*m.ICMPCode))
	}
	return i
}
