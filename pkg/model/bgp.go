// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/selector"
)

// ParseASNumber parses asplain and asdot (RFC 5396): "65000" or "1.10".
func ParseASNumber(s string) (ASNumber, error) {
	high, low, dotted := strings.Cut(s, ".")
	var n uint64
	var err error
	if dotted {
		var h, l uint64
		var errLow error
		h, err = strconv.ParseUint(high, 10, 16)
		l, errLow = strconv.ParseUint(low, 10, 16)
		n, err = h<<16|l, errors.Join(err, errLow)
	} else {
		n, err = strconv.ParseUint(s, 10, 32)
	}
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%.32q: want an AS number like 65000 or 1.10", s)
	}
	return ASNumber(n), nil
}

// String returns the number in asplain.
func (n ASNumber) String() string { return strconv.FormatUint(uint64(n), 10) }

// text returns "" for 0, which means that none is set.
func (n ASNumber) text() string {
	if n == 0 {
		return ""
	}
	return n.String()
}

func parseGlobalAS(data []byte) (ASNumber, error) {
	s := strings.TrimSpace(string(data))
	if s == "" {
		return 0, nil
	}
	return ParseASNumber(s)
}

// parseHostText parses a host's BGP setting. Empty means not set.
func parseHostText(field BGPHostField, data []byte) (Text, error) {
	s := strings.TrimSpace(string(data))
	if s == "" {
		return "", nil
	}
	var err error
	switch field {
	case BGPHostIPv4:
		_, err = parseIPName(s, false)
	case BGPHostReflector:
		var a netip.Addr
		if a, err = parseIPName(s, false); err == nil && a.IsUnspecified() {
			err = fmt.Errorf("%s: want any other number, in the form of an IPv4 address", a)
		}
	case BGPHostIPv6:
		_, err = parseIPName(s, true)
	case BGPHostAS:
		_, err = ParseASNumber(s)
	case BGPHostNetworkV4:
		var p netip.Prefix
		if p, err = parsePrefix(s); err == nil {
			err = checkFamily(p.Addr(), false)
		}
	default:
		err = fmt.Errorf("no BGP setting of a host: %.64q", string(field))
	}
	if err != nil {
		return "", err
	}
	return Text(s), nil
}

func parseMesh(r *reader) (Mesh, error) {
	var m Mesh
	found := false
	err := r.object(func(name string) (err error) {
		if name == "enabled" {
			found = true
			m.Enabled, err = r.boolean()
		} else {
			r.raw()
		}
		return err
	})
	if err == nil && !found {
		err = missing("enabled")
	}
	return m, err
}

func parsePeer(r *reader, k BGPPeerKey) (BGPPeer, error) {
	ip := k.IP
	p := BGPPeer{IP: ip}
	err := r.record(
		field{"ip", func(r *reader) (err error) {
			if k.Name != "" {
				p.IP, err = parseAnyAddr(r)
				return err
			}
			var a netip.Addr
			if a, err = r.addr(ip.Is6()); err == nil && a.IsValid() && a != ip {
				err = fmt.Errorf("%s, but the key says %s", a, ip)
			}
			return err
		}},
		into("as_num", &p.AS, parseASField),
		into("password_file", &p.PasswordFile, (*reader).optionalStr),
		into("ebgp_multihop", &p.EBGPMultihop, optionalInt(0, 255)),
		into("port", &p.Options.Port, optionalInt(0, 65535)),
		into("num_allowed_local_as_numbers", &p.Options.AllowedLocalAS, optionalInt(0, 10)),
		into("local_as", &p.Options.LocalAS, parseOptionalAS),
		into("ttl_security", &p.Options.TTLSecurity, optionalInt(0, 254)),
		into("keepalive_time", &p.Options.KeepaliveTime, optionalInt(0, 21845)),
		into("hold_time", &p.Options.HoldTime, optionalInt(0, 65535)),
		into("max_restart_time", &p.Options.MaxRestartTime, optionalInt(0, 4095)),
		into("source_address", &p.Options.Source, parseSource),
		into("next_hop_mode", &p.Options.NextHop, parseNextHopMode),
		into("import", &p.Import, each(parseFilter)),
		into("export", &p.Export, each(parseFilter)),
		into("filters", &p.Filters, (*reader).strings),
		into("node", &p.Host, (*reader).optionalStr),
		into("node_selector", &p.NodeSelector, (*reader).optionalStr),
		into("peer_selector", &p.PeerSelector, (*reader).optionalStr),
		into("reverse_peering", &p.OneWay, parseOneWay),
		into("meta", &p.Meta, parseMeta),
	)
	if err == nil && k.Name == "" && p.PeerHosts != (PeerHosts{}) {
		err = fmt.Errorf("only a peer at %speer/<name> has node, node_selector, peer_selector or reverse_peering", bgpRoot)
	}
	return p, err
}

func parseOneWay(r *reader) (bool, error) {
	s, err := r.optionalStr()
	if err != nil {
		return false, err
	}
	return ParseReversePeering(s)
}

// ParseReversePeering parses auto and manual, and reports whether it is manual. Nothing means auto.
func ParseReversePeering(s string) (oneWay bool, err error) {
	switch strings.ToLower(s) {
	case "", "auto":
		return false, nil
	case "manual":
		return true, nil
	}
	return false, fmt.Errorf("%.64q: want Auto or Manual", s)
}

func parseOptionalAS(r *reader) (ASNumber, error) {
	if r.null() {
		return 0, nil
	}
	return parseASField(r)
}

func parseSource(r *reader) (PeerSource, error) {
	s, err := r.optionalStr()
	if err != nil {
		return PeerSource{}, err
	}
	return ParsePeerSource(s)
}

// ParsePeerSource parses a peer's source_address: an address, "none", or "UseNodeIP" or nothing.
func ParsePeerSource(s string) (PeerSource, error) {
	switch strings.ToLower(s) {
	case "", "usenodeip":
		return PeerSource{}, nil
	case "none":
		return PeerSource{Any: true}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() {
		return PeerSource{}, fmt.Errorf("%.64q: want UseNodeIP, None, or an address of the host", s)
	}
	return PeerSource{Address: a}, nil
}

// String returns the form that [ParsePeerSource] parses; "" is the host's address.
func (s PeerSource) String() string {
	switch {
	case s.Any:
		return "none"
	case s.Address.IsValid():
		return s.Address.String()
	}
	return ""
}

func parseNextHopMode(r *reader) (NextHopMode, error) {
	s, err := r.optionalStr()
	if err != nil {
		return "", err
	}
	return ParseNextHopMode(s)
}

// ParseNextHopMode parses auto, self and keep. Nothing means auto.
func ParseNextHopMode(s string) (NextHopMode, error) {
	switch m := NextHopMode(strings.ToLower(s)); m {
	case "", NextHopSelf, NextHopKeep:
		return m, nil
	case "auto":
		return "", nil
	}
	return "", fmt.Errorf("%.64q: want Auto, Self or Keep", s)
}

// parseASField reads a string, or a number as it is written: 1.10 is not 1.1.
func parseASField(r *reader) (ASNumber, error) {
	if r.isNumber() {
		return ParseASNumber(string(r.raw()))
	}
	s, err := r.str()
	if err != nil {
		return 0, err
	}
	return ParseASNumber(strings.TrimSpace(s))
}

func parseFilter(r *reader) (f RouteFilter, err error) {
	err = r.object(func(name string) (err error) {
		switch name {
		case "cidr":
			f.CIDR, err = r.prefix()
		case "action":
			f.Action, err = r.str()
		default:
			err = errors.New("unknown: a filter has cidr and action")
		}
		return err
	})
	return f, err
}

func (p BGPPeer) check() error {
	if p.PeerSelector != "" {
		if err := p.checkSelected(); err != nil {
			return err
		}
	}
	switch {
	case p.PeerSelector == "" && !p.IP.IsValid():
		return missing("ip")
	case p.PeerSelector == "" && p.AS == 0:
		return missing("as_num")
	case p.OneWay && p.PeerSelector == "":
		return inField("reverse_peering", errors.New("only beside peer_selector"))
	case p.Host != "" && p.NodeSelector != "":
		return inField("node_selector", errors.New("a peer has node or node_selector, not both"))
	case p.EBGPMultihop < 0 || p.EBGPMultihop > 255:
		return inField("ebgp_multihop", fmt.Errorf("%d: want 0 to 255", p.EBGPMultihop))
	}
	if err := p.Options.check(p.EBGPMultihop); err != nil {
		return err
	}
	if a := p.Options.Source.Address; a.IsValid() && a.Is4() != p.IP.Is4() {
		return inField("source_address", fmt.Errorf("%s is not of the family of the peer, %s", a, p.IP))
	}
	if p.IP.IsValid() {
		if err := checkPeerIP(p.IP); err != nil {
			return inField("ip", err)
		}
	}
	for _, s := range []struct{ field, text string }{{"node_selector", p.NodeSelector}, {"peer_selector", p.PeerSelector}} {
		if _, err := selector.Parse(s.text); err != nil {
			return inField(s.field, err)
		}
	}
	for i, name := range p.Filters {
		if name == "" {
			return inField("filters", atIndex(i, errors.New("want the name of a BGPFilter")))
		}
	}
	if err := checkFilters(p.Import); err != nil {
		return inField("import", err)
	}
	if err := checkFilters(p.Export); err != nil {
		return inField("export", err)
	}
	return nil
}

// checkSelected requires that a peer by selector has nothing that only one with an address can have.
func (p BGPPeer) checkSelected() error {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"ip", p.IP.IsValid()}, {"as_num", p.AS != 0}, {"port", p.Options.Port != 0}, {"local_as", p.Options.LocalAS != 0},
		{"source_address", p.Options.Source.Address.IsValid()},
	} {
		if f.given {
			return inField(f.name, errors.New("not beside peer_selector: the nodes say it"))
		}
	}
	return nil
}

// checkPeerIP returns an error if an address can't be that of a peer.
func checkPeerIP(a netip.Addr) error {
	switch {
	case a.Is6() && a.IsLinkLocalUnicast():
		return fmt.Errorf("%s is link-local, which the address of a BGP peer can't be", a)
	case a.IsUnspecified(), a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is nobody's address, so it can't be that of a BGP peer", a)
	}
	return checkFamily(a, a.Is6())
}

func (o PeerOptions) check(multihop int) error {
	for _, c := range []struct {
		field            string
		value, low, high int
	}{
		{"port", o.Port, 1, 65535}, {"num_allowed_local_as_numbers", o.AllowedLocalAS, 1, 10}, {"ttl_security", o.TTLSecurity, 1, 254},
		{"keepalive_time", o.KeepaliveTime, 1, 21845}, {"hold_time", o.HoldTime, 3, 65535}, {"max_restart_time", o.MaxRestartTime, 1, 4095},
	} {
		if c.value != 0 && (c.value < c.low || c.value > c.high) {
			return inField(c.field, fmt.Errorf("%d: want %d to %d", c.value, c.low, c.high))
		}
	}
	if o.TTLSecurity != 0 && multihop != 0 {
		return inField("ttl_security", errors.New("not beside ebgp_multihop: it says how many hops there may be as well"))
	}
	return nil
}

func checkFilters(filters []RouteFilter) error {
	for i, f := range filters {
		if !f.CIDR.IsValid() {
			return atIndex(i, missing("cidr"))
		}
		if err := checkFamily(f.CIDR.Addr(), isV6(f.CIDR)); err != nil {
			return atIndex(i, inField("cidr", err))
		}
		switch f.Action {
		case "accept", "reject":
		case "":
			return atIndex(i, missing("action"))
		default:
			return atIndex(i, inField("action", fmt.Errorf("%.32q: want accept or reject", f.Action)))
		}
	}
	return nil
}

func (p BGPPeer) format(w *writer) error {
	w.open('{')
	w.addr("ip", p.IP)
	w.optional("as_num", p.AS.text())
	w.optional("password_file", p.PasswordFile)
	if p.EBGPMultihop > 0 {
		w.integer("ebgp_multihop", p.EBGPMultihop)
	}
	w.options(p.Options)
	w.filters("import", p.Import)
	w.filters("export", p.Export)
	if len(p.Filters) > 0 {
		w.strings("filters", p.Filters)
	}
	w.optional("node", p.Host)
	w.optional("node_selector", p.NodeSelector)
	w.optional("peer_selector", p.PeerSelector)
	if p.OneWay {
		w.str("reverse_peering", "manual")
	}
	w.meta(p.Meta)
	w.close('}')
	return nil
}

func (w *writer) options(o PeerOptions) {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"port", o.Port}, {"num_allowed_local_as_numbers", o.AllowedLocalAS}, {"ttl_security", o.TTLSecurity},
		{"keepalive_time", o.KeepaliveTime}, {"hold_time", o.HoldTime}, {"max_restart_time", o.MaxRestartTime},
	} {
		if f.value != 0 {
			w.integer(f.name, f.value)
		}
	}
	if o.LocalAS != 0 {
		w.str("local_as", o.LocalAS.String())
	}
	for _, f := range []struct{ name, value string }{{"source_address", o.Source.String()}, {"next_hop_mode", string(o.NextHop)}} {
		if f.value != "" {
			w.str(f.name, f.value)
		}
	}
}

func (w *writer) filters(name string, filters []RouteFilter) {
	if len(filters) == 0 {
		return
	}
	writeList(w, name, filters, func(w *writer, f RouteFilter) {
		w.open('{')
		w.prefix("cidr", f.CIDR)
		w.str("action", f.Action)
		w.close('}')
	})
}

// Community is a community attached to prefixes inside CIDR when advertising them: "65000:100" (RFC 1997), or three
// numbers (RFC 8092).
type Community struct {
	CIDR  netip.Prefix `json:"cidr"`
	Value string       `json:"value"`
}

// ParseCommunity parses a community: two 16-bit numbers or three 32-bit numbers, separated by colons.
func ParseCommunity(cidr, value string) (Community, error) {
	p, err := netip.ParsePrefix(cidr)
	if err != nil || p != p.Masked() {
		return Community{}, fmt.Errorf("%.64q: want the prefix that a community is for, as 10.1.0.0/16", cidr)
	}
	return Community{p, value}, checkCommunity(value)
}

func checkCommunity(value string) error {
	numbers := strings.Split(value, ":")
	bits := map[int]int{2: 16, 3: 32}[len(numbers)]
	for _, n := range numbers {
		if v, err := strconv.ParseUint(n, 10, max(bits, 1)); err != nil || bits == 0 || strconv.FormatUint(v, 10) != n {
			return fmt.Errorf("community %.64q: want two numbers to 65535, as 64512:100, or three to 4294967295", value)
		}
	}
	return nil
}

// IsLarge reports whether a community has three numbers (RFC 8092).
func IsLarge(community string) bool { return strings.Count(community, ":") == 2 }
