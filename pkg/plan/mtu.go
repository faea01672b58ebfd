// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
)

const (
	// minMTU is the least MTU for IPv4 (RFC 791), minMTU6 the least for IPv6 (RFC 8200).
	minMTU, minMTU6 = 68, 1280
)

// mtuLimit is the greatest MTU that the links allow.
type mtuLimit struct {
	most        int // 0 = unknown
	says, raise string
}

// setMTU computes the MTUs of uplinks and workloads, and returns those of tunnels in the order of tunnelTypes.
func (v *view) setMTU(s Settings, uplinks []Link, used map[TunnelKind][]netip.Prefix) (inside [3]int) {
	least, most := 0, 0
	for _, l := range uplinks {
		if l.Loopback {
			continue // no packet to another host leaves by it
		}
		if l.MTU > 0 && (least == 0 || l.MTU < least) {
			least = l.MTU
		}
		most = max(most, l.MTU)
	}
	limit := mtuLimit{most, "the links to other hosts take", "the MTU of the links"}
	uplink := v.mtuOf("UplinkMTU", s.MTU, least, limit)
	if s.MTU > 0 && (most == 0 || uplink < most) {
		limit = mtuLimit{uplink, "UplinkMTU leaves", "UplinkMTU"}
	}
	v.mtu = mtu{Uplink: uplink, Pods: uplink}
	for i, t := range tunnelTypes() {
		given := s.TunnelMTU[t.kind]
		if len(used[t.kind]) == 0 {
			given = 0 // a setting that isn't used can't be wrong
		}
		limit := limit
		limit.most = t.inside(limit.most)
		inside[i] = v.mtuOf(t.mtuConfig, given, t.inside(uplink), limit)
		if mtu := inside[i]; len(used[t.kind]) > 0 && mtu > 0 && (v.mtu.Pods == 0 || mtu < v.mtu.Pods) {
			v.mtu.Pods = mtu
		}
	}
	if v6 := v.pools.lengths[1] != [129]int{}; v6 && v.mtu.Pods > 0 && v.mtu.Pods < minMTU6 {
		v.report(smallMTU, "mtu", fmt.Sprintf("workloads are left %d bytes of the uplink's %d, and IPv6 needs %d: none is started with IPv6, and a tunnel that has less takes none; raise the MTU of the uplinks, or take the encapsulation from the pools",
			v.mtu.Pods, uplink, minMTU6))
	}
	return inside
}

// mtuOf returns the MTU given by a setting or, if that is 0, the one that follows from the links. It reports a value
// above the limit, and returns the limit instead.
func (v *view) mtuOf(setting string, given, follows int, limit mtuLimit) int {
	switch most := limit.most; {
	case given == 0:
		return follows
	case most > 0 && given > most:
		v.report(largeMTU, setting, fmt.Sprintf("%s is %d, and %s %d: %d is used; set no more than that, or raise %s", setting, given, limit.says, most, most, limit.raise))
		return most
	}
	return given
}
