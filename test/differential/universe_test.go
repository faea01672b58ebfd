// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// The universe is small, so that packets, rules and endpoints meet often. Each
// pod's interface has two addresses per IP version that lead to it unless an
// endpoint of another interface has them, and one address for 1:1 NAT.
const pods = 6

// host is the name of the host under test, peer that of another.
const host, peer = "h1", "h2"

// podPort is the host's end of a pod. The last is a workload's only where the
// settings have its prefix.
func podPort(i int) string {
	if i == pods-1 {
		return "tap0"
	}
	return fmt.Sprintf("cali%d", i)
}

// missingPort is an interface that the host doesn't have.
const missingPort = "eth9"

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func podAddrs(i, version int) []netip.Addr {
	if version == 4 {
		return []netip.Addr{addr(fmt.Sprintf("10.65.%d.1", i)), addr(fmt.Sprintf("10.65.%d.2", i))}
	}
	return []netip.Addr{addr(fmt.Sprintf("fd65::%d:1", i)), addr(fmt.Sprintf("fd65::%d:2", i))}
}

func extAddr(i, version int) netip.Addr {
	if version == 4 {
		return addr(fmt.Sprintf("192.0.2.%d", i+1))
	}
	return addr(fmt.Sprintf("fd99::%d", i+1))
}

// hostAddr is the host's own on an uplink.
func hostAddr(uplink, version int) netip.Addr {
	if version == 4 {
		return addr(fmt.Sprintf("10.0.%d.1", uplink))
	}
	return addr(fmt.Sprintf("fd00:%d::1", uplink))
}

// outside are addresses beyond an uplink. The first is the next hop to those
// that are not on its link.
func outside(uplink, version int) []netip.Addr {
	switch {
	case version == 4 && uplink == 0:
		return []netip.Addr{addr("10.0.0.2"), addr("10.0.0.3"), addr("172.16.5.5")}
	case version == 4:
		return []netip.Addr{addr("10.0.1.2"), addr("10.0.1.3"), addr("203.0.113.7")}
	case uplink == 0:
		return []netip.Addr{addr("fd00:0::2"), addr("fd00:0::3"), addr("2001:db8::5")}
	}
	return []netip.Addr{addr("fd00:1::2"), addr("fd00:1::3"), addr("fd03::7")}
}

// behind is the net that the second uplink leads to besides its own.
func behind(version int) netip.Prefix {
	if version == 4 {
		return netip.MustParsePrefix("203.0.113.0/24")
	}
	return netip.MustParsePrefix("fd03::/64")
}

// onLink is the net of an uplink.
func onLink(uplink, version int) netip.Prefix {
	bits := 24
	if version == 6 {
		bits = 64
	}
	return netip.PrefixFrom(hostAddr(uplink, version), bits).Masked()
}

// gateway is the address that pods have as their next hop. It is the host's own
// where the agent had to put it there.
var gateway = addr("169.254.1.1")

// loopback is the address by which the host calls itself.
func loopback(version int) netip.Addr {
	if version == 4 {
		return addr("127.0.0.1")
	}
	return netip.IPv6Loopback()
}

// everybody is where the host hears what is for everybody on an uplink.
func everybody(uplink, version int) []netip.Addr {
	if version == 4 {
		return []netip.Addr{addr(fmt.Sprintf("10.0.%d.255", uplink)), addr("224.0.0.1")}
	}
	return []netip.Addr{netip.IPv6LinkLocalAllNodes(), netip.IPv6LinkLocalAllRouters()}
}

func hostAddrs(version int) []netip.Addr {
	return []netip.Addr{hostAddr(0, version), hostAddr(1, version)}
}

func versionOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// macOf is the MAC address of either end of a port.
func macOf(port string, far bool) model.MAC {
	m := model.MAC{2, 0, 0, 0, port[0], port[len(port)-1]}
	if far {
		m[2] = 1
	}
	return m
}

// interfaces are the host's own, as its agent sees them.
func interfaces(s policy.Settings) []policy.Interface {
	out := []policy.Interface{
		{Name: "eth0", Addrs: []netip.Addr{hostAddr(0, 4), hostAddr(0, 6)}},
		{Name: "eth1", Addrs: []netip.Addr{hostAddr(1, 4), hostAddr(1, 6)}},
		{Name: "lo", Addrs: []netip.Addr{loopback(4), loopback(6), gateway}},
	}
	if len(s.Prefixes) == 1 {
		out = append(out, policy.Interface{Name: podPort(pods - 1)})
	}
	return out
}

// routes are those to single addresses, as the agent keeps them: to active
// endpoints, and in the lab to whatever else is behind a pod's interface.
func routes(st *policy.State) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for i := range pods {
		for _, version := range [...]int{4, 6} {
			for _, a := range podAddrs(i, version) {
				out[a] = podPort(i)
			}
		}
	}
	for _, ep := range st.Endpoints {
		if !ep.Workload || ep.Dropped != "" {
			continue
		}
		for _, a := range ep.Addrs {
			out[a] = ep.Interface
		}
		for _, n := range ep.NAT {
			out[n.ExtIP] = ep.Interface
		}
	}
	return out
}

// outOf is the interface that leads to an address, "" = it is the host's own.
func outOf(routes map[netip.Addr]string, dst netip.Addr) string {
	if name, ok := routes[dst]; ok {
		return name
	}
	version := versionOf(dst)
	switch {
	case dst == hostAddr(0, version), dst == hostAddr(1, version), dst.IsLoopback(), dst == gateway,
		slices.Contains(everybody(0, 4), dst), slices.Contains(everybody(1, 4), dst), dst.IsMulticast(), dst == addr("255.255.255.255"):
		return ""
	case onLink(1, version).Contains(dst), behind(version).Contains(dst):
		return "eth1"
	}
	return "eth0"
}
