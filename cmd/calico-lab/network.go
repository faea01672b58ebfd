// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// network has the options of `up` for hosts and pools.
type network struct {
	hosts       []string
	racks       int
	vxlan, ipip string
	hostile     bool
}

func (n *network) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&n.hosts, "hosts", nil, "names of the hosts, or how many: 3 is a,b,c (default a; with racks, two in each)")
	f.IntVar(&n.racks, "racks", 0, "divide the hosts among this many racks, each with subnets of its own and a router")
	f.StringVar(&n.vxlan, "vxlan", "", "have the pools use VXLAN between hosts: always, cross-subnet (between racks), or never (default never; with racks, cross-subnet)")
	f.StringVar(&n.ipip, "ipip", "", "have the pools of IPv4 use IPIP between hosts: always, cross-subnet, or never")
}

// apply applies the flags to cfg.
func (n *network) apply(cfg *lab.Config) error {
	hosts, err := n.names()
	if err != nil {
		return err
	}
	if n.racks < 0 {
		return fmt.Errorf("--racks %d: want a number from 0", n.racks)
	}
	if n.racks > len(hosts) {
		return fmt.Errorf("--racks %d: there are %d hosts only, and a rack has at least one", n.racks, len(hosts))
	}
	if n.racks == 0 {
		cfg.Hosts = hosts
	}
	for i := range n.racks {
		cfg.Racks = append(cfg.Racks, hosts[i*len(hosts)/n.racks:(i+1)*len(hosts)/n.racks])
	}
	return n.pool(cfg)
}

// names returns the names of all hosts.
func (n *network) names() ([]string, error) {
	count := max(1, 2*n.racks)
	switch {
	case n.hosts == nil:
	case len(n.hosts) == 0:
		return nil, errors.New("--hosts: want the name of at least one host, or how many")
	case len(n.hosts) == 1 && strings.Trim(n.hosts[0], "0123456789") == "":
		var err error
		if count, err = strconv.Atoi(n.hosts[0]); err != nil || count < 1 || count > 200 {
			return nil, fmt.Errorf("--hosts %s: want names, or a number from 1 to 200", n.hosts[0])
		}
	default:
		return n.hosts, nil
	}
	var names []string
	for i := range count {
		names = append(names, hostName(i))
	}
	return names, nil
}

// hostName returns a to z, then a1 to z1, and so on.
func hostName(i int) string {
	name := string(rune('a' + i%26))
	if i >= 26 {
		name += strconv.Itoa(i / 26)
	}
	return name
}

func (n *network) pool(cfg *lab.Config) error {
	const never = "never"
	modes := []string{"", never, string(model.EncapAlways), string(model.EncapCrossSubnet)}
	for flag, mode := range map[string]string{"vxlan": n.vxlan, "ipip": n.ipip} {
		if !slices.Contains(modes, mode) {
			return fmt.Errorf("--%s %s: want always, cross-subnet or never", flag, mode)
		}
	}
	vxlan, ipip := n.vxlan, n.ipip
	if vxlan == "" && ipip == "" && n.racks > 0 && !n.hostile { // the routers don't know pods
		vxlan = string(model.EncapCrossSubnet)
	}
	if vxlan == "" && ipip == "" && n.hostile {
		vxlan = string(model.EncapAlways)
	}
	vxlan, ipip = strings.TrimPrefix(vxlan, never), strings.TrimPrefix(ipip, never)
	if vxlan != "" && ipip != "" {
		return errors.New("--vxlan and --ipip: want one of them; a pool has one encapsulation")
	}
	cfg.Pool = func(p *model.Pool) {
		switch {
		case vxlan != "":
			p.VXLANMode = model.EncapMode(vxlan)
		case ipip != "" && p.CIDR.Addr().Is4():
			p.IPIP, p.IPIPMode = "tunl0", model.EncapMode(ipip)
		}
	}
	return nil
}
