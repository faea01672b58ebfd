// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// convergeHost sees to what the host as a whole needs: forwarding, and answers for
// HostGateway.
//
// IPv6 forwarding stays as it is until a workload has an IPv6 address.
func (h *Path) convergeHost(report *Report) {
	sysctls := []string{"ipv4/ip_forward"}
	hadV6 := h.hostV6
	if h.hostV6 || h.wantsIPv6() {
		h.hostV6 = true
		sysctls = append(sysctls, forwarding6)
	}
	_ = h.ns.Enter(func() error {
		for _, name := range sysctls {
			made, err := h.ensureOne(name)
			if err != nil {
				report.Problems = append(report.Problems, err)
			}
			switch {
			case made && name != "ipv4/ip_forward" && !hadV6: // the first IPv6 workload
				report.Writes++
			case made:
				h.wroteHost(report, "net/"+name)
			}
		}
		return nil
	})
	if err := h.ensureGateway(report); err != nil {
		report.Problems = append(report.Problems, fmt.Errorf("route to %s, without which IPv4 workloads find no gateway: %w", link.HostGateway(), err))
	}
}

func (h *Path) wantsIPv6() bool {
	for _, e := range h.desired {
		if e.hasIPv6() {
			return true
		}
	}
	return false
}

func (h *Path) wroteHost(report *Report, what string) {
	report.Writes++
	if h.ready {
		report.Repairs++
		if say := h.repairs.Say(what, 1, time.Now()); say > 0 {
			h.cfg.Logger.Warn("repaired a setting of the host that something else changed", slog.String("setting", what), slog.Int("changes", say))
		}
	}
}

// ensureOne sets a sysctl to 1 and reads it back.
func (h *Path) ensureOne(name string) (made bool, err error) {
	v, err := rtnl.ReadSysctl(name)
	if err != nil || v == 1 {
		return false, err
	}
	if name == forwarding6 {
		err = h.forwardIPv6(name)
	} else {
		err = rtnl.WriteSysctl(name, "1")
	}
	if err != nil {
		return false, err
	}
	if v, err = rtnl.ReadSysctl(name); err == nil && v != 1 {
		err = fmt.Errorf("set sysctl net/%s: it reads back as %d", name, v)
	}
	return err == nil, err
}

// ensureGateway makes sure that the kernel answers ARP for HostGateway on the
// workload interfaces. By proxy it does so only where it has a route there that
// leads by another link (arp_process); the default route is one. A host without
// gets the address as a local one, on no link, until it has such a route. (A
// route by the loopback would do too, but each packet to the gateway itself would
// go round it until its TTL ends.)
func (h *Path) ensureGateway(report *Report) error {
	if _, ok := h.sock.Lookup(link.HostGateway(), 0); ok {
		return nil
	}
	_, err := h.sock.Ask(rtnl.AddRoute(h.localGateway(), unix.NLM_F_EXCL))
	if err == nil {
		h.wroteHost(report, "local route to "+link.HostGateway().String())
	}
	return err
}

func (h *Path) localGateway() rtnl.Route {
	return rtnl.Route{Dst: rtnl.HostPrefix(link.HostGateway()), Index: 1, Protocol: h.cfg.Protocol, Scope: unix.RT_SCOPE_HOST, Local: true}
}

// convergeHostWhole is convergeHost, and takes the local route to HostGateway away where the host has
// another by now. To see that all routes are listed, those to workloads included: a notice says when it is due.
func (h *Path) convergeHostWhole(report *Report) {
	h.convergeHost(report)
	if err := h.withdrawGateway(report); err != nil {
		report.Problems = append(report.Problems, fmt.Errorf("route to %s, which the host itself answers for no more: %w", link.HostGateway(), err))
	}
}

func (h *Path) withdrawGateway(report *Report) error {
	found, ok := h.sock.Lookup(link.HostGateway(), 0)
	if !ok || !found.Local || found.Protocol != h.cfg.Protocol {
		return nil
	}
	all, err := h.sock.Routes(rtnl.RouteFilter{Family: unix.AF_INET})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(r rtnl.Route) bool { return r.Dst.Contains(link.HostGateway()) }) {
		return nil
	}
	report.Writes++
	_, err = h.sock.Ask(rtnl.DeleteRoute(h.localGateway()))
	return err
}
