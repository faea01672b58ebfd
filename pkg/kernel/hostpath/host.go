// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const forwarding4 = "ipv4/ip_forward"

// convergeHost ensures what the host as a whole needs: forwarding, and answers for link.HostGateway.
//
// IPv6 forwarding stays as it is until a workload has an IPv6 address.
func (h *Path) convergeHost(report *Report) {
	hadV6 := h.hostV6
	h.hostV6 = h.hostV6 || h.desired.wantsIPv6()
	err := h.inNamespace(func() error {
		h.ensureForwarding(report, forwarding4, h.ready)
		if h.hostV6 {
			h.ensureForwarding(report, forwarding6, h.ready && hadV6)
		}
		return nil
	})
	if err == nil {
		err = h.ensureGateway(report)
	}
	if err != nil {
		report.Problems = append(report.Problems, fmt.Errorf("route to %s, without which IPv4 workloads find no gateway: %w", link.HostGateway(), err))
	}
}

// ensureForwarding sets a sysctl to 1 and reads it back.
func (h *Path) ensureForwarding(report *Report, sysctl string, drifted bool) {
	v, err := rtnl.ReadSysctl(sysctl)
	if err == nil && v == 1 {
		return
	}
	if err == nil && sysctl == forwarding6 {
		err = h.forwardIPv6(sysctl)
	} else if err == nil {
		err = rtnl.WriteSysctl(sysctl, "1")
	}
	if err == nil {
		if v, err = rtnl.ReadSysctl(sysctl); err == nil && v != 1 {
			err = fmt.Errorf("set sysctl net/%s: it reads back as %d", sysctl, v)
		}
	}
	if err != nil {
		report.Problems = append(report.Problems, err)
		return
	}
	h.wroteHost(report, "net/"+sysctl, drifted)
}

func (h *Path) wroteHost(report *Report, what string, drifted bool) {
	report.Writes++
	if !drifted {
		return
	}
	report.Repairs++
	if h.repairs.Say(what, time.Now()) {
		h.cfg.Logger.Warn("repaired a setting of the host that something else changed", slog.String("setting", what))
	}
}

// ensureGateway ensures that the kernel answers ARP for link.HostGateway on the workload interfaces. The kernel does so by proxy only if it
// has a route there by another link (arp_process), such as the default route. On a host without one, ensureGateway adds the address as a
// local one, on no link, until there is such a route. (A route by the loopback would do too, but each packet to the gateway itself would
// loop until its TTL ends.)
func (h *Path) ensureGateway(report *Report) error {
	if _, ok := h.conn.Lookup(link.HostGateway(), 0); ok {
		return nil
	}
	if err := h.conn.RouteAdd(h.localGateway().Netlink()); err != nil {
		return err
	}
	h.wroteHost(report, "local route to "+link.HostGateway().String(), h.ready)
	return nil
}

func (h *Path) localGateway() rtnl.Route {
	return rtnl.Route{Dst: rtnl.HostPrefix(link.HostGateway()), Index: 1, Protocol: h.cfg.Protocol, Scope: unix.RT_SCOPE_HOST, Local: true}
}

// withdrawGateway deletes the local route to link.HostGateway if the host has another by now.
func (h *Path) withdrawGateway(report *Report) error {
	found, ok := h.conn.Lookup(link.HostGateway(), 0)
	if !ok || !found.Local || found.Protocol != h.cfg.Protocol {
		return nil
	}
	another := false
	err := h.conn.Routes(unix.AF_INET, netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE, func(r netlink.Route) {
		another = another || rtnl.Prefix(r.Dst).Contains(link.HostGateway())
	})
	if err == nil && another {
		report.Writes++
		err = h.conn.RouteDel(h.localGateway().Netlink())
	}
	if err != nil {
		return fmt.Errorf("route to %s, which the host itself answers for no more: %w", link.HostGateway(), err)
	}
	return nil
}
