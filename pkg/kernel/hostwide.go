// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// convergeHost sees to what the host as a whole needs: forwarding, and answers for
// HostGateway.
//
// IPv6 forwarding stays as it is until a workload has an IPv6 address.
func (h *HostPath) convergeHost(report *Report) {
	sysctls := []string{"ipv4/ip_forward"}
	hadV6 := h.hostV6
	if h.hostV6 || slices.ContainsFunc(slices.Collect(maps.Values(h.desired)), Endpoint.hasIPv6) {
		h.hostV6 = true
		sysctls = append(sysctls, forwarding6)
	}
	_ = h.ns.enter(func() error {
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
		report.Problems = append(report.Problems, fmt.Errorf("route to %s, without which IPv4 workloads find no gateway: %w", HostGateway(), err))
	}
}

func (h *HostPath) wroteHost(report *Report, what string) {
	report.Writes++
	if h.ready {
		report.Repairs++
		h.cfg.Logger.Warn("repaired a setting of the host that something else changed", slog.String("setting", what))
	}
}

// ensureOne sets a sysctl to 1 and reads it back.
func (h *HostPath) ensureOne(name string) (made bool, err error) {
	v, err := readSysctl(name)
	if err != nil || v == 1 {
		return false, err
	}
	if name == forwarding6 {
		err = h.forwardIPv6(name)
	} else {
		err = writeSysctl(name, "1")
	}
	if err != nil {
		return false, err
	}
	if v, err = readSysctl(name); err == nil && v != 1 {
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
func (h *HostPath) ensureGateway(report *Report) error {
	want := route{dst: hostPrefix(HostGateway()), index: 1, protocol: h.cfg.Protocol, scope: unix.RT_SCOPE_HOST, local: true}
	found, ok := h.sock.lookup(HostGateway(), 0)
	if !ok {
		_, err := h.sock.ask(addRoute(want, unix.NLM_F_EXCL))
		if err == nil {
			h.wroteHost(report, "local route to "+HostGateway().String())
		}
		return err
	}
	if !found.local || found.protocol != h.cfg.Protocol {
		return nil
	}
	all, err := h.sock.routes(routeFilter{family: unix.AF_INET})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(r route) bool { return r.dst.Contains(HostGateway()) }) {
		return nil
	}
	report.Writes++
	_, err = h.sock.ask(deleteRoute(want))
	return err
}
