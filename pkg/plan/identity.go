// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// MethodKind says how a host finds its own address.
type MethodKind string

const (
	MethodNone       MethodKind = "none"           // no address of the family
	MethodFirstFound MethodKind = "first-found"    // the first link with a suitable address
	MethodCanReach   MethodKind = "can-reach"      // the source address that the kernel uses for a target
	MethodInterface  MethodKind = "interface"      // the first link that matches one of the patterns
	MethodSkip       MethodKind = "skip-interface" // like first-found, without the links that match a pattern
	MethodCIDR       MethodKind = "cidr"           // the first address inside one of the CIDRs
	MethodAddress    MethodKind = "address"        // exactly this address
)

// Method is how a host finds its own address of one family: the value of IP or IP6. The zero value is invalid: use
// ParseMethod.
type Method struct {
	Kind MethodKind
	// Target is the target of can-reach: an address, or a name to look up.
	Target   string
	patterns []*regexp.Regexp
	cidrs    []netip.Prefix
	// address is a single address if no prefix length was given.
	address netip.Prefix
	text    string
	// Unset says that the value was empty.
	Unset bool
}

// ParseMethod parses the value of IP (v6 false) or IP6. "autodetect" and "first-found" are synonyms. The empty value
// means first-found for IPv4 and none for IPv6, as in Calico.
func ParseMethod(text string, v6 bool) (Method, error) {
	text = strings.TrimSpace(text)
	unset := text == ""
	if unset {
		text = string(MethodFirstFound)
		if v6 {
			text = string(MethodNone)
		}
	}
	m := Method{text: text, Unset: unset}
	name, value, hasValue := strings.Cut(text, "=")
	m.Kind = MethodKind(name)
	var err error
	switch {
	case !hasValue && (text == "autodetect" || m.Kind == MethodFirstFound):
		m.Kind = MethodFirstFound
		m.patterns, err = compile(notUplinks)
	case !hasValue && m.Kind == MethodNone:
	case hasValue && m.Kind == MethodCanReach:
		if m.Target = strings.TrimSpace(value); m.Target == "" {
			err = errors.New("want an address or a name to reach")
		} else if a, notAddr := netip.ParseAddr(m.Target); notAddr == nil {
			err = ofFamily(a, v6)
		}
	case hasValue && m.Kind == MethodInterface:
		m.patterns, err = compile(value)
	case hasValue && m.Kind == MethodSkip:
		m.patterns, err = compile(value + "," + notUplinks)
	case hasValue && m.Kind == MethodCIDR:
		m.cidrs, err = parseCIDRs(value, v6)
	case !hasValue:
		m.Kind = MethodAddress
		m.address, err = parseOwn(text, v6)
	default:
		err = errWord
	}
	if err != nil {
		return Method{}, fmt.Errorf("%.128q: %w", text, err)
	}
	return m, nil
}

var errWord = errors.New("want an address, none, autodetect, first-found, can-reach=, interface=, skip-interface= or cidr=")

// String returns the text passed to ParseMethod.
func (m Method) String() string { return m.text }

// notUplinks are patterns for links through which no host is reached from outside.
const notUplinks = `^docker.*,^cbr.*,^dummy.*,^virbr.*,^lxcbr.*,^veth.*,^lo$,^cali.*,^tap.*,^tunl.*,^flannel.*,^kube-ipvs.*,^cni.*,^vxlan.*,^wireguard.*,^nodelocaldns.*,^br-.*`

// compile compiles a comma-separated list of regular expressions. As in Calico they match anywhere in a name:
// interface=eth0 also matches veth0a; write ^eth0$.
func compile(list string) ([]*regexp.Regexp, error) {
	var all []*regexp.Regexp
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			return nil, errors.New("want regular expressions for names of links, with commas between")
		}
		re, err := regexp.Compile(text)
		if err != nil {
			return nil, err
		}
		all = append(all, re)
	}
	return all, nil
}

func parseCIDRs(list string, v6 bool) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for text := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%.64q: want a CIDR like 192.168.0.0/24", text)
		}
		if err := ofFamily(p.Addr(), v6); err != nil {
			return nil, err
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

func parseOwn(text string, v6 bool) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, errWord
		}
		p = single(a)
	}
	if !suits(p.Addr(), v6) {
		return netip.Prefix{}, fmt.Errorf("want an %s address that other hosts can reach", familyName(familyIndex(v6)))
	}
	return p, nil
}

func familyIndex(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

func ofFamily(a netip.Addr, v6 bool) error {
	if a.Is4() == v6 || a.Is4In6() {
		return fmt.Errorf("%s: want %s", a, familyName(familyIndex(v6)))
	}
	return nil
}

// suits reports whether a host may be known to others by an address.
func suits(a netip.Addr, v6 bool) bool {
	return a.IsGlobalUnicast() && a.Is4() != v6 && !a.Is4In6() && a.Zone() == ""
}

// Identity is the address that a host found for itself.
type Identity struct {
	// Addr has the prefix length of its subnet, or that of a single address if no link gives one.
	Addr netip.Prefix
	// Link has the address; "" = none does.
	Link string
}

// Surroundings are what a host's choice of its address depends on.
type Surroundings struct {
	Links
	// Pools are the pools of pods.
	Pools []netip.Prefix
	// Reached is the kernel's source address for the target of can-reach or, if all links are searched, for etcd;
	// invalid if there is no route.
	Reached netip.Addr
	// Former is the address that the host has had until now, invalid = none.
	Former netip.Addr
}

// Choose returns the host's own address from those of its links, in their order: the kernel lists IPv4's in the order
// in which they were added, IPv6's in reverse. The former address is kept while the method allows it, since all others
// know the host by it. Temporary addresses come after permanent ones. If all links are searched, the link through which
// etcd is reached comes first, then that of the default route: others lead to containers of other software, a VPN or a
// management card. Among the rest, and on one link, an address in a pool of pods is the last choice: it may be a pod's
// gateway, or the pool may overlap the hosts' subnet. The zero Identity means that the host has no address of the
// family, as configured.
func (m Method) Choose(s Surroundings, v6 bool) (Identity, error) {
	var found []candidate
	for _, l := range s.Links.Links {
		for _, p := range l.Addrs {
			usable := l.Up && !slices.Contains(l.Pending, p.Addr())
			if suits(p.Addr(), v6) && (usable || m.Kind == MethodAddress) {
				found = append(found, candidate{Identity{p, l.Name}, slices.Contains(l.Passing, p.Addr())})
			}
		}
	}
	var fits func(Identity) bool
	switch m.Kind {
	case MethodNone:
		return Identity{}, nil
	case MethodAddress:
		return m.given(found), nil
	case MethodCanReach:
		if !s.Reached.IsValid() {
			return Identity{}, fmt.Errorf("%s: no route of this host leads to %s", m, m.Target)
		}
		fits = func(i Identity) bool { return i.Addr.Addr() == s.Reached }
	case MethodInterface:
		fits = func(i Identity) bool { return matches(m.patterns, i.Link) }
	case MethodFirstFound, MethodSkip:
		fits = func(i Identity) bool { return !matches(m.patterns, i.Link) }
	case MethodCIDR:
		fits = func(i Identity) bool {
			return slices.ContainsFunc(m.cidrs, func(p netip.Prefix) bool { return p.Contains(i.Addr.Addr()) })
		}
	default:
		return Identity{}, errors.New("no way to find the host's address was chosen")
	}
	inPool := func(i Identity) bool {
		return slices.ContainsFunc(s.Pools, func(p netip.Prefix) bool { return p.Contains(i.Addr.Addr()) && p.Bits() > 0 })
	}
	toEtcd, byDefault := s.Of(s.Reached).Name, s.defaultLink(v6)
	best, least := Identity{}, 0
	for _, c := range found {
		if !fits(c.Identity) {
			continue
		}
		rank := 1
		if c.passing {
			rank++
		}
		if m.Kind == MethodFirstFound || m.Kind == MethodSkip {
			if c.Addr.Addr() != s.Reached {
				rank++
			}
			if inPool(c.Identity) {
				rank += 3
			}
			if c.Link != toEtcd {
				rank += 6
			}
			if c.Link != toEtcd && c.Link != byDefault {
				rank += 6
			}
		}
		if c.Addr.Addr() == s.Former {
			rank = 0
		}
		if best.Link == "" || rank < least {
			best, least = c.Identity, rank
		}
	}
	if best.Link != "" {
		return best, nil
	}
	return Identity{}, fmt.Errorf("%s finds no %s address on a link that is up; there are: %s", m, familyName(familyIndex(v6)), describe(found, s.Links.Links, v6))
}

// Of returns the link that has the address, or the zero Link.
func (l Links) Of(a netip.Addr) Link {
	for _, link := range l.Links {
		if slices.ContainsFunc(link.Addrs, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return link
		}
	}
	return Link{}
}

// defaultLink returns the link of the family's best default route, "" if there is none.
func (l Links) defaultLink(v6 bool) string {
	at := slices.IndexFunc(l.Routes, func(r HostRoute) bool { return r.Destination.Bits() == 0 && r.Destination.Addr().Is4() != v6 })
	if at < 0 {
		return ""
	}
	return l.Routes[at].Device
}

// candidate is an address that a host may choose.
type candidate struct {
	Identity
	passing bool
}

// given returns the address named by the method, with the subnet of its link unless the method has one.
func (m Method) given(found []candidate) Identity {
	out := Identity{Addr: m.address}
	for _, i := range found {
		if i.Addr.Addr() == m.address.Addr() {
			out.Link = i.Link
			if m.address.IsSingleIP() {
				out.Addr = i.Addr
			}
			break
		}
	}
	return out
}

func matches(patterns []*regexp.Regexp, name string) bool {
	return slices.ContainsFunc(patterns, func(re *regexp.Regexp) bool { return re.MatchString(name) })
}

// describe lists the addresses found, and those that the kernel withholds.
func describe(found []candidate, links []Link, v6 bool) string {
	var words []string
	for _, f := range found {
		words = append(words, fmt.Sprintf("%s on %s", f.Addr, f.Link))
	}
	for _, l := range links {
		for _, a := range l.Pending {
			if l.Up && suits(a, v6) {
				words = append(words, fmt.Sprintf("%s on %s, of which the kernel has yet to find out whether another host has it", a, l.Name))
			}
		}
	}
	for _, r := range RefusedAddresses(links, v6) {
		words = append(words, fmt.Sprintf("%s on %s, which another host there has", r.Addr, r.Link))
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// RefusedAddresses returns the addresses of a family that links were given but the kernel doesn't use because another
// host has them.
func RefusedAddresses(links []Link, v6 bool) []Identity {
	var all []Identity
	for _, l := range links {
		for _, p := range l.Refused {
			if suits(p.Addr(), v6) {
				all = append(all, Identity{p, l.Name})
			}
		}
	}
	return all
}
