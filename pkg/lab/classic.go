// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// A classic lab has the system of 2014: each host has a Felix instead of the agent, and the fabric has a plugin and an
// ACL manager next to etcd. Instead of BGP, each host has a network of machines, to which the others have routes.

// MachineNet returns the network of a host's machines.
func (h *Host) MachineNet() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 65, byte(h.index), 0}), 24)
}

// ClassicRoles returns the roles of the plugin and the ACL manager.
func ClassicRoles() []string { return []string{"plugin", "acl-manager"} }

// ClassicAddr returns the address of the plugin and the ACL manager.
func ClassicAddr() netip.Addr { return gatewayAddr(false, 0).Addr() }

// StartClassic starts the plugin and the ACL manager.
func (l *Lab) StartClassic() error {
	var hosts []string
	for i, name := range l.cfg.Hosts {
		hosts = append(hosts, name+"="+hostAddr(false, 0, i+1).Addr().String())
	}
	at := ClassicAddr().String()
	for _, role := range ClassicRoles() {
		env := append(os.Environ(), l.members.env(l.members.Endpoints())...)
		env = append(env, "CALICO_CLASSIC_BIND="+at, "CALICO_CLASSIC_PLUGIN="+at, "CALICO_CLASSIC_HOSTS="+strings.Join(hosts, ","))
		_, err := l.procs.start(spec{role: role, ns: l.fabric.ns, path: filepath.Join(l.state.BinDir, "calico-classic"), args: []string{role}, env: append(env, l.state.AgentEnv...), dir: l.dir})
		if err != nil {
			return err
		}
		l.say("%s: %s", role, at)
	}
	return nil
}

// classicEnv returns the additional environment of a Felix.
func (l *Lab) classicEnv() []string {
	at := ClassicAddr().String()
	return []string{"CALICO_CLASSIC_PLUGIN=" + at, "CALICO_CLASSIC_ACL_MANAGER=" + at}
}

// routeMachines adds routes from each host to the others' machines.
func (l *Lab) routeMachines(ctx context.Context) error {
	for _, h := range l.Hosts() {
		for _, other := range l.Hosts() {
			if h == other {
				continue
			}
			if _, err := h.Exec(ctx, "ip", "route", "add", other.MachineNet().String(), "via", other.IPv4().String()); err != nil {
				return fmt.Errorf("lead host %s to machines of host %s: %w", h.name, other.name, err)
			}
		}
	}
	return nil
}

// AddMachine makes a namespace that stands for a machine: its eth0, with a MAC address and addresses, is connected to
// an interface of the host.
func (h *Host) AddMachine(ctx context.Context, iface, mac string, addrs ...string) (Namespace, error) {
	ns, err := h.lab.NewNamespace("m" + strings.TrimPrefix(iface, "tap"))
	if err != nil {
		return Namespace{}, err
	}
	commands := [][]string{{"link", "set", "lo", "up"}, {"link", "set", "eth0", "address", mac, "up"}}
	for _, a := range addrs {
		commands = append(commands, []string{"addr", "add", a, "dev", "eth0", "nodad"})
	}
	commands = append(commands, []string{"route", "add", "169.254.1.1", "dev", "eth0"}, []string{"route", "add", "default", "via", "169.254.1.1"})
	_, err = h.Exec(ctx, "ip", "link", "add", iface, "type", "veth", "peer", "name", "eth0", "netns", ns.Path())
	if err == nil {
		_, err = h.Exec(ctx, "ip", "link", "set", iface, "up")
	}
	for _, args := range commands {
		if err == nil {
			_, err = run(ctx, ns, os.Environ(), "ip", args...)
		}
	}
	if err != nil {
		return Namespace{}, fmt.Errorf("add machine behind %s: %w", iface, err)
	}
	return ns, nil
}
