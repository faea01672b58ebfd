// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Matches reports whether a filter's CIDR, if it has one, suits a prefix. The other conditions are on more than that.
func (f RouteFilter) Matches(p netip.Prefix) bool {
	if !f.CIDR.IsValid() {
		return true
	}
	c := f.CIDR.Masked()
	if c.Addr().Is4() != p.Addr().Is4() {
		return false
	}
	switch f.Match {
	case MatchEqual:
		return p == c
	case MatchNotEqual:
		return p != c
	}
	least, most := f.Lengths()
	return (c.Contains(p.Addr()) && least <= p.Bits() && p.Bits() <= most) == (f.Match != MatchNotIn)
}

// Lengths returns the lengths of the prefixes that are in CIDR.
func (f RouteFilter) Lengths() (least, most int) {
	least, most = max(f.Min, f.CIDR.Bits()), f.CIDR.Addr().BitLen()
	if f.Max != 0 {
		most = f.Max
	}
	return least, most
}

// String returns the filter in words, as "reject in 10.0.0.0/8{16,24} community 64512:1".
func (f RouteFilter) String() string {
	words := []string{f.Action}
	if f.Match != "" {
		words = append(words, strings.ToLower(string(f.Match)))
	}
	if f.CIDR.IsValid() {
		words = append(words, f.CIDR.String())
	}
	if f.Min != 0 || f.Max != 0 {
		least, most := f.Lengths()
		words[len(words)-1] += fmt.Sprintf("{%d,%d}", least, most)
	}
	if f.Learned {
		words = append(words, "learned")
	}
	for _, w := range []struct{ name, value string }{{"peer", string(f.PeerType)}, {"community", f.Community}, {"as path", f.ASPath}} {
		if w.value != "" {
			words = append(words, w.name, w.value)
		}
	}
	return strings.Join(words, " ")
}

func parseBGPFilter(r *reader) (BGPFilter, error) {
	var f BGPFilter
	err := r.record(
		into("import_v4", &f.ImportV4, each(parseFilterRule)),
		into("export_v4", &f.ExportV4, each(parseFilterRule)),
		into("import_v6", &f.ImportV6, each(parseFilterRule)),
		into("export_v6", &f.ExportV6, each(parseFilterRule)),
		into("meta", &f.Meta, parseMeta),
	)
	return f, err
}

// parseFilterRule rejects unknown fields: they may be conditions.
func parseFilterRule(r *reader) (f RouteFilter, err error) {
	var source string
	var path []ASNumber
	unknown := func(string, []byte) error { return errors.New("unknown, and it may decide") }
	err = r.recordOr(unknown,
		into("cidr", &f.CIDR, (*reader).prefix),
		into("match_operator", &f.Match, word[MatchOperator]),
		field{"prefix_length", func(r *reader) error {
			return r.recordOr(unknown, into("min", &f.Min, optionalInt(0, 128)), into("max", &f.Max, optionalInt(1, 128)))
		}},
		into("source", &source, (*reader).optionalStr),
		into("peer_type", &f.PeerType, word[PeerType]),
		field{"communities", func(r *reader) error { return r.recordOr(unknown, into("values", &f.Community, parseOnly)) }},
		into("as_path_prefix", &path, each(parseASField)),
		into("action", &f.Action, func(r *reader) (string, error) {
			action, err := r.str()
			return strings.ToLower(action), err
		}),
	)
	f.Learned = source == remotePeers
	for _, n := range path {
		f.ASPath = strings.TrimPrefix(f.ASPath+" "+n.String(), " ")
	}
	if err == nil && source != "" && !f.Learned {
		err = inField("source", fmt.Errorf("%.32q: want %s", source, remotePeers))
	}
	return f, err
}

// parseOnly reads a list of one string.
func parseOnly(r *reader) (string, error) {
	list, err := r.strings()
	if err == nil && (len(list) != 1 || list[0] == "") {
		err = fmt.Errorf("%d values: want one, and a rule for each", len(list))
	}
	if err != nil {
		return "", err
	}
	return list[0], nil
}

// remotePeers is the source of routes that came from BGP peers.
const remotePeers = "RemotePeers"

func (f BGPFilter) check() error {
	for _, l := range f.lists() {
		for i, rule := range *l.rules {
			if err := rule.check(l.v6, l.in); err != nil {
				return inField(l.name, atIndex(i, err))
			}
		}
	}
	return nil
}

// filterRules are the rules of one family and direction.
type filterRules struct {
	name   string
	rules  *[]RouteFilter
	v6, in bool
}

func (f *BGPFilter) lists() []filterRules {
	return []filterRules{
		{"import_v4", &f.ImportV4, false, true}, {"export_v4", &f.ExportV4, false, false},
		{"import_v6", &f.ImportV6, true, true}, {"export_v6", &f.ExportV6, true, false},
	}
}

func (f RouteFilter) check(v6, in bool) error {
	if f.CIDR.IsValid() {
		if err := checkFamily(f.CIDR.Addr(), v6); err != nil {
			return inField("cidr", err)
		}
	}
	if err := f.checkMatch(); err != nil {
		return err
	}
	switch {
	case f.Learned && in:
		return inField("source", errors.New("every route that is imported is of a peer: leave it out"))
	case !slices.Contains([]PeerType{"", ExternalPeer, InternalPeer}, f.PeerType):
		return inField("peer_type", fmt.Errorf("%.32q: want eBGP or iBGP", string(f.PeerType)))
	case f.Action == "":
		return missing("action")
	case f.Action != "accept" && f.Action != "reject":
		return inField("action", fmt.Errorf("%.32q: want Accept or Reject", f.Action))
	}
	if f.Community != "" {
		if err := checkCommunity(f.Community); err != nil {
			return inField("communities", err)
		}
	}
	return nil
}

// checkMatch checks the conditions on prefixes.
func (f RouteFilter) checkMatch() error {
	ranged := f.Match == MatchIn || f.Match == MatchNotIn
	least, most := 0, 0
	if f.CIDR.IsValid() {
		least, most = f.Lengths()
	}
	switch {
	case !ranged && f.Match != "" && f.Match != MatchEqual && f.Match != MatchNotEqual:
		return inField("match_operator", fmt.Errorf("%.32q: want Equal, NotEqual, In or NotIn", string(f.Match)))
	case f.CIDR.IsValid() && f.Match == "":
		return missing("match_operator")
	case f.Match != "" && !f.CIDR.IsValid():
		return missing("cidr")
	case (f.Min != 0 || f.Max != 0) && !ranged:
		return inField("prefix_length", errors.New("only beside In or NotIn"))
	case least > most || f.CIDR.IsValid() && most > f.CIDR.Addr().BitLen():
		return inField("prefix_length", fmt.Errorf("%d to %d: want lengths from %d to %d", least, most, f.CIDR.Bits(), f.CIDR.Addr().BitLen()))
	}
	return nil
}

func (f BGPFilter) format(w *writer) error {
	w.open('{')
	for _, l := range f.lists() {
		if len(*l.rules) > 0 {
			writeList(w, l.name, *l.rules, (*writer).filterRule)
		}
	}
	w.meta(f.Meta)
	w.close('}')
	return nil
}

func (w *writer) filterRule(f RouteFilter) {
	w.open('{')
	if f.CIDR.IsValid() {
		w.prefix("cidr", f.CIDR)
		w.str("match_operator", string(f.Match))
	}
	if f.Min != 0 || f.Max != 0 {
		w.name("prefix_length")
		w.open('{')
		for _, l := range []struct {
			name string
			n    int
		}{{"min", f.Min}, {"max", f.Max}} {
			if l.n != 0 {
				w.integer(l.name, l.n)
			}
		}
		w.close('}')
	}
	if f.Learned {
		w.str("source", remotePeers)
	}
	w.optional("peer_type", string(f.PeerType))
	if f.Community != "" {
		w.name("communities")
		w.open('{')
		w.strings("values", []string{f.Community})
		w.close('}')
	}
	if f.ASPath != "" {
		w.strings("as_path_prefix", strings.Fields(f.ASPath))
	}
	w.str("action", map[string]string{"accept": "Accept", "reject": "Reject"}[f.Action])
	w.close('}')
}
