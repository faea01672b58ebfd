// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
)

const (
	conf6       = "ipv6/conf/"
	forwarding6 = conf6 + "all/forwarding"
)

// forwardIPv6 sets an IPv6 sysctl that enables forwarding, for all links or for one. Either makes the host a router for the kernel: on each
// link whose accept_ra isn't 2 the kernel drops what routers advertised, the host's default route first (rt6_purge_dflt_routers), and on
// forwarding links it accepts no more. So links that accept advertisements now get accept_ra 2.
func (h *Path) forwardIPv6(name string) error {
	if err := h.keepAdverts(); err != nil {
		return fmt.Errorf("IPv6 is not forwarded, as the host would lose what routers advertise: %w", err)
	}
	return rtnl.WriteSysctl(name, "1")
}

// keepAdverts makes the links that accept router advertisements, and future ones, accept them although the host forwards. It excludes
// workloads' links and tunnels.
func (h *Path) keepAdverts() error {
	dir, err := os.ReadDir("/proc/sys/net/" + conf6)
	if err != nil {
		return fmt.Errorf("list the links of IPv6: %w", err)
	}
	var kept []string
	for _, entry := range dir {
		name := entry.Name()
		if slices.Contains([]string{"all", "lo"}, name) || h.cfg.owns(name) || link.IsTunnelName(name) {
			continue
		}
		forwards, err1 := rtnl.ReadSysctl(conf6 + name + "/forwarding")
		accepts, err2 := rtnl.ReadSysctl(conf6 + name + "/accept_ra")
		err := errors.Join(err1, err2)
		if err == nil && forwards == 0 && accepts == 1 {
			if err = rtnl.WriteSysctl(conf6+name+"/accept_ra", "2"); err == nil {
				kept = append(kept, name)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is gone
			return err
		}
	}
	if len(kept) > 0 {
		h.cfg.Logger.Info("IPv6 is forwarded now: links that take router advertisements go on taking them, by accept_ra 2",
			slog.Any("links", kept))
	}
	return nil
}
