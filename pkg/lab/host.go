// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Host is a virtual host: a namespace with eth0 on the fabric or in a rack, directories that replace /run/calico,
// /var/lib/calico and /var/log/calico, a CNI configuration and, unless Config.NoAgent, an agent.
type Host struct {
	lab   *Lab
	name  string
	index int // from 1, unique in the lab
	rack  int // 0 = on the fabric itself
	ns    Namespace
}

// hostRecord is the file hosts/<name>/host.json.
type hostRecord struct {
	Name  string     `json:"name"`
	Index int        `json:"index"`
	Rack  int        `json:"rack,omitempty"`
	IPv4  netip.Addr `json:"ipv4"`
	IPv6  netip.Addr `json:"ipv6"`
}

// AddHost makes a host on the fabric and starts its agent.
func (l *Lab) AddHost(ctx context.Context, name string) (*Host, error) {
	return l.addHost(ctx, name, 0)
}

func (l *Lab) addHost(ctx context.Context, name string, rack int) (*Host, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkName("host", name); err != nil {
		return nil, err
	}
	if l.state.Classic && l.state.Ready {
		return nil, fmt.Errorf("add host %s: a lab of the system of 2014 has the hosts that it was made with: calico-lab up --classic --hosts", name)
	}
	ns, err := createNamespace(l.named(name).path)
	if err != nil {
		return nil, fmt.Errorf("add host %s: %w", name, err)
	}
	l.mu.Lock()
	h := &Host{lab: l, name: name, index: len(l.hosts) + 1, rack: rack, ns: ns}
	l.hosts[name] = h
	l.mu.Unlock()
	if rack > 0 {
		l.say("host %s in %s: %s, %s", name, rackName(rack), h.IPv4(), h.IPv6())
	} else {
		l.say("host %s: %s, %s", name, h.IPv4(), h.IPv6())
	}

	if err := l.fabric.plug(h); err != nil {
		return nil, fmt.Errorf("connect host %s to the fabric: %w", name, err)
	}
	for _, dir := range []string{h.RunDir(), h.VarDir(), h.LogDir(), filepath.Dir(h.ConfFile())} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := h.writeConf(); err != nil {
		return nil, err
	}
	err = writeJSON(filepath.Join(h.dir(), "host.json"), hostRecord{h.name, h.index, h.rack, h.IPv4(), h.IPv6()})
	if err != nil {
		return nil, err
	}
	if err := l.keepFaults(); err != nil {
		return nil, err
	}
	if err := h.harass(ctx); err != nil {
		return nil, fmt.Errorf("make host %s hostile: %w", name, err)
	}
	return h, h.start(ctx)
}

// Host returns the host with the name. If there is none, the test ends; use FindHost outside tests.
func (l *Lab) Host(name string) *Host {
	h, err := l.FindHost(name)
	if err != nil {
		l.fatal(err)
	}
	return h
}

// FindHost returns the host with the name.
func (l *Lab) FindHost(name string) (*Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.hosts[name]; h != nil {
		return h, nil
	}
	var names []string
	for n := range l.hosts {
		names = append(names, n)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("no host %s in lab %s: there is %s", name, l.name, strings.Join(names, ", "))
}

// Hosts returns all hosts in the order of their creation.
func (l *Lab) Hosts() []*Host {
	l.mu.Lock()
	defer l.mu.Unlock()
	var hosts []*Host
	for _, h := range l.hosts {
		hosts = append(hosts, h)
	}
	slices.SortFunc(hosts, func(a, b *Host) int { return a.index - b.index })
	return hosts
}

// Name returns the host's name, which is its agent's NODENAME.
func (h *Host) Name() string { return h.name }

// IPv4 returns the IPv4 address of the host's eth0.
func (h *Host) IPv4() netip.Addr { return hostAddr(false, h.rack, h.index).Addr() }

// IPv6 returns the IPv6 address of the host's eth0.
func (h *Host) IPv6() netip.Addr { return hostAddr(true, h.rack, h.index).Addr() }

// Addrs returns both addresses.
func (h *Host) Addrs() []netip.Addr { return []netip.Addr{h.IPv4(), h.IPv6()} }

// port returns the name of the other end of eth0, on the wire.
func (h *Host) port() string { return fmt.Sprintf("host%d", h.index) }

// Namespace returns the host's network namespace.
func (h *Host) Namespace() Namespace { return h.ns }

func (h *Host) dir() string { return filepath.Join(h.lab.dir, "hosts", h.name) }

// RunDir replaces /run/calico: it has agent.sock.
func (h *Host) RunDir() string { return filepath.Join(h.dir(), "run") }

// VarDir replaces /var/lib/calico: it has nodename and mtu.
func (h *Host) VarDir() string { return filepath.Join(h.dir(), "var") }

// LogDir replaces /var/log/calico: it has the plugins' log.
func (h *Host) LogDir() string { return filepath.Join(h.dir(), "log") }

// ConfFile is the host's CNI configuration list.
func (h *Host) ConfFile() string { return filepath.Join(h.dir(), "net.d", "10-calico.conflist") }

// AgentSocket is the gate's socket.
func (h *Host) AgentSocket() string { return filepath.Join(h.RunDir(), "agent.sock") }

// Env returns the environment that makes Calico's programs use this host. It is added to the environment of plugins, of
// the agent, and of commands run by Exec.
func (h *Host) Env() []string {
	env := []string{
		"NODENAME=" + h.name,
		"CALICO_RUN_DIR=" + h.RunDir(),
		"CALICO_VAR_DIR=" + h.VarDir(),
		"CNI_PATH=" + h.lab.state.BinDir,
	}
	return append(env, h.lab.members.env(h.lab.members.Endpoints())...)
}

// Do runs fn in the host's network namespace; see Namespace.Do.
func (h *Host) Do(fn func() error) error { return h.ns.Do(fn) }

// Exec runs a command on the host and returns what it wrote to stdout.
func (h *Host) Exec(ctx context.Context, command string, args ...string) ([]byte, error) {
	return run(ctx, h.ns, append(os.Environ(), h.Env()...), command, args...)
}

// Start starts a command on the host that runs until it is stopped or the lab is closed. role is its name in the lab.
func (h *Host) Start(role, command string, args ...string) (*Process, error) {
	return h.lab.procs.startNamed(role, h.ns, append(os.Environ(), h.Env()...), command, args)
}

// Process returns the running process with the role; the error is os.ErrProcessDone if there is none.
func (l *Lab) Process(role string) (*Process, error) { return l.procs.find(role) }
