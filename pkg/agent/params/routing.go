// SPDX-License-Identifier: Apache-2.0

package params

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// RoutingParams are the settings of the network to other hosts.
type RoutingParams struct {
	VXLANPort uint16
	VXLANVNI  uint32
	// MTU is that of the uplinks, the others those of the tunnels' devices; 0 = the links' own, and what that leaves for tunnels.
	MTU, VXLANMTU, VXLANMTU6, IPIPMTU int
	// MTULiveUpdate lowers the MTU of running workloads' interfaces when the network's shrinks.
	MTULiveUpdate bool

	BGPListen     []netip.Addr // empty = all
	BGPPort       uint16
	HoldTime      time.Duration
	KeepaliveTime time.Duration // 0 = a third of HoldTime
	RestartTime   time.Duration // 0 = no graceful restart
	MaxPrefixes   int
	Communities   []model.Community
}

// Routing returns the settings that concern routes, tunnels and BGP.
func (p Params) Routing() plan.Settings {
	r := p.RoutingParams
	s := plan.Settings{
		VXLANPort: r.VXLANPort, VXLANVNI: r.VXLANVNI, MTU: r.MTU,
		Listen: slices.Clone(r.BGPListen), ListenPort: r.BGPPort,
		HoldTime: r.HoldTime, KeepaliveTime: r.KeepaliveTime, RestartTime: r.RestartTime, MaxPrefixes: r.MaxPrefixes,
		Communities: slices.Clone(r.Communities),
	}
	if s.RestartTime == 0 {
		s.RestartTime = -1 // the plan's notation
	}
	// A keepalive must come several times per hold time (RFC 4271, 4.4).
	if s.KeepaliveTime > s.HoldTime/3 {
		s.KeepaliveTime = 0
	}
	for kind, mtu := range map[plan.TunnelKind]int{plan.VXLAN4: r.VXLANMTU, plan.VXLAN6: r.VXLANMTU6, plan.IPIP: r.IPIPMTU} {
		if mtu == 0 {
			continue
		}
		if s.TunnelMTU == nil {
			s.TunnelMTU = map[plan.TunnelKind]int{}
		}
		s.TunnelMTU[kind] = mtu
	}
	return s
}

// routingTable returns the parameters of routes, tunnels and BGP.
func routingTable() []param {
	return []param{
		{
			Name: "VXLANPort", Initial: "4789", Effect: atOnce,
			Values: number(1, 65535, func(p *Params) *uint16 { return &p.VXLANPort }),
			Does:   "UDP port of the VXLAN tunnels. It must be the same on all hosts.",
		},
		{
			Name: "VXLANVNI", Initial: "4096", Effect: atOnce,
			Values: number(1, 1<<24-1, func(p *Params) *uint32 { return &p.VXLANVNI }),
			Does:   "Network identifier of the VXLAN tunnels. It must be the same on all hosts.",
		},
		{
			Name: "UplinkMTU", Initial: "0", Effect: atOnce,
			Values: mtu(func(p *Params) *int { return &p.MTU }),
			Does: "MTU of the links to other hosts, from which those of tunnels and workloads follow. " +
				"0 is the least of the links' own. More than the greatest of theirs is reported, and that one used.",
		},
		{
			Name: "VXLANMTU", Initial: "0", Effect: atOnce,
			Values: mtu(func(p *Params) *int { return &p.VXLANMTU }),
			Does: "MTU of the VXLAN tunnel of IPv4. 0 is the uplinks' less 50. " +
				"More than the links leave, or UplinkMTU where it is set, is reported, and what they leave used.",
		},
		{
			Name: "VXLANMTUV6", Initial: "0", Effect: atOnce,
			Values: mtu(func(p *Params) *int { return &p.VXLANMTU6 }),
			Does:   "MTU of the VXLAN tunnel of IPv6. 0 is the uplinks' less 70. As with VXLANMTU, more is reported.",
		},
		{
			Name: "IpInIpMtu", Initial: "0", Effect: atOnce,
			Values: mtu(func(p *Params) *int { return &p.IPIPMTU }),
			Does:   "MTU of the IPIP tunnel. 0 is the uplinks' less 20. As with VXLANMTU, more is reported.",
		},
		{
			Name: "MTULiveUpdate", Aliases: []string{"mtu_live_update"}, Initial: "true", Effect: atOnce,
			Values: boolean(func(p *Params) *bool { return &p.MTULiveUpdate }),
			Does: "Whether the interfaces of running workloads are given a smaller MTU when that of the network has been smaller for ten seconds. " +
				"They are never given a greater one.",
		},
		{
			Name: "BGPListenAddresses", Initial: "", Effect: atStart, Local: true,
			Values: listenAddresses(func(p *Params) *[]netip.Addr { return &p.BGPListen }),
			Does: "Where BGP listens. A change ends all sessions, as a restart does. A value makes no sense on a host that has " +
				"not all of the addresses, or where nobody else reaches them; it is used as soon as the host has them. With addresses the kernel " +
				"no longer drops what no peer sends to the port: another speaker may listen at others.",
		},
		{
			Name: "BGPListenPort", Initial: "179", Effect: atOnce,
			Values: number(1, 65535, func(p *Params) *uint16 { return &p.BGPPort }),
			Does: "The TCP port of the same. It must be the same on all hosts of the mesh: each connects to the others at its own BGPListenPort. While another program has the " +
				"port, BGP stays at the one it had, where it had one.",
		},
		{
			Name: "BGPHoldTimeSecs", Initial: "90", Effect: nextSession,
			Values: seconds(3*time.Second, 65535*time.Second, func(p *Params) *time.Duration { return &p.HoldTime }),
			Does:   "How long a BGP neighbour may be silent until its session ends (RFC 4271). The lesser of both neighbours' holds.",
		},
		{
			Name: "BGPKeepaliveTimeSecs", Initial: "0", Effect: nextSession,
			Values: secondsOrNever(time.Second, 21845*time.Second, func(p *Params) *time.Duration { return &p.KeepaliveTime }),
			Does:   "How often a BGP neighbour is told that this host lives. 0, or more than a third of BGPHoldTimeSecs, is a third of that.",
		},
		{
			Name: "BGPRestartTimeSecs", Initial: "120", Effect: nextSession,
			Values: secondsOrNever(time.Second, 4095*time.Second, func(p *Params) *time.Duration { return &p.RestartTime }),
			Does: "How long BGP neighbours keep this host's routes while its agent restarts, and it theirs (RFC 4724). " +
				"0 is no graceful restart.",
		},
		{
			Name: "BGPMaxPrefixes", Initial: "50000", Effect: nextSession,
			Values: number(1, 10_000_000, func(p *Params) *int { return &p.MaxPrefixes }),
			Does:   "How many routes a BGP neighbour may send. One that sends more is left alone for 5 minutes.",
		},
		{
			Name: "BGPCommunities", Initial: "", Effect: atOnce,
			Values: communities(func(p *Params) *[]model.Community { return &p.Communities }),
			Does: "Communities of the blocks of addresses that the host advertises, for the routers of the fabric to act on: " +
				"`10.1.0.0/16=64512:100` gives one to what is inside the prefix. The BGPConfiguration has them as `prefixAdvertisements`.",
		},
	}
}

// number accepts numbers of any size and type.
func number[T ~int | ~uint16 | ~uint32](least, most int, field func(*Params) *T) values {
	allowed := fmt.Sprintf("%d to %d", least, most)
	return read("number", allowed, field, func(text string) (T, error) {
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
		if err != nil || int(n) < least || int(n) > most {
			return 0, fmt.Errorf("%.64q: want a number, %s", text, allowed)
		}
		return T(n), nil
	})
}

// mtu accepts 0, and what a link may have: from IPv4's minimum (RFC 791) to the kernel's maximum.
func mtu(field func(*Params) *int) values {
	return read("bytes", "0, or 68 to 65535", field, func(text string) (int, error) {
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
		if err != nil || n != 0 && n < 68 {
			return 0, fmt.Errorf("MTU %.64q: want bytes, 68 to 65535, or 0 for what follows from the links", text)
		}
		return int(n), nil
	})
}

func listenAddresses(field func(*Params) *[]netip.Addr) values {
	return read("addresses", "comma list of IP addresses of the host, or nothing for all", field, parseListenAddresses)
}

// parseListenAddresses parses a comma list of a host's addresses, empty = none, and returns them sorted without duplicates.
func parseListenAddresses(text string) ([]netip.Addr, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var all []netip.Addr
	for one := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(one))
		if err == nil && (a.Zone() != "" || a.Is4In6() || a.IsMulticast()) {
			err = errors.New("none of a host")
		}
		if err != nil {
			return nil, fmt.Errorf("address %.64q: want a comma list of IP addresses of the host, or nothing for all", one)
		}
		all = append(all, a)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// maxCommunities bounds one setting; each community is a statement evaluated for every route.
const maxCommunities = 64

func communities(field func(*Params) *[]model.Community) values {
	return read("communities", "comma list of PREFIX=COMMUNITY, or nothing", field, func(text string) ([]model.Community, error) {
		if strings.TrimSpace(text) == "" {
			return nil, nil
		}
		var all []model.Community
		for one := range strings.SplitSeq(text, ",") {
			prefix, value, _ := strings.Cut(strings.TrimSpace(one), "=")
			c, err := model.ParseCommunity(prefix, value)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
		if len(all) > maxCommunities {
			return nil, fmt.Errorf("%d communities: want at most %d", len(all), maxCommunities)
		}
		return all, nil
	})
}
