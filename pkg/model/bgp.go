// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ParseASNumber reads asplain and asdot (RFC 5396): "65000" or "1.10".
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

// String is asplain.
func (n ASNumber) String() string { return strconv.FormatUint(uint64(n), 10) }

// text is "" for 0, which means that none is set.
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

// parseHostText checks what a host says about itself; empty means not set.
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
			var a netip.Addr
			if a, err = r.addr(ip.Is6()); err == nil && a.IsValid() && a != ip {
				err = fmt.Errorf("%s, but the key says %s", a, ip)
			}
			return err
		}},
		into("as_num", &p.AS, parseASField),
		into("password_file", &p.PasswordFile, (*reader).optionalStr),
		into("ebgp_multihop", &p.EBGPMultihop, optionalInt(0, 255)),
		into("import", &p.Import, each(parseFilter)),
		into("export", &p.Export, each(parseFilter)),
	)
	return p, err
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
	switch {
	case !p.IP.IsValid():
		return missing("ip")
	case p.AS == 0:
		return missing("as_num")
	case p.EBGPMultihop < 0 || p.EBGPMultihop > 255:
		return inField("ebgp_multihop", fmt.Errorf("%d: want 0 to 255", p.EBGPMultihop))
	}
	if err := checkFamily(p.IP, p.IP.Is6()); err != nil {
		return inField("ip", err)
	}
	if err := checkFilters(p.Import); err != nil {
		return inField("import", err)
	}
	if err := checkFilters(p.Export); err != nil {
		return inField("export", err)
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
	w.str("as_num", p.AS.String())
	w.optional("password_file", p.PasswordFile)
	if p.EBGPMultihop > 0 {
		w.integer("ebgp_multihop", p.EBGPMultihop)
	}
	w.filters("import", p.Import)
	w.filters("export", p.Export)
	w.close('}')
	return nil
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
