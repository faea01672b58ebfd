// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/taps"
	"github.com/calico-go/calico/pkg/model"
)

// A machine is a virtual one: a namespace whose eth0 is joined to a tap of a host, as a hypervisor does it.
type machine struct {
	t    *testing.T
	lab  *lab.Lab
	host *lab.Host
	ns   lab.Namespace
	nic  *os.File
	tap  *os.File
	name string // of the machine and its tap
	dir  string
	spec model.WorkloadEndpoint
}

// newMachines makes a lab whose workload interfaces are taps too, and the subnets of its machines.
func newMachines(ctx context.Context, t *testing.T, hosts ...string) *lab.Lab {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	l := lab.ForTest(t, lab.Config{Hosts: hosts, BinDir: filepath.Join(root, "bin"), NoFsync: true, AgentEnv: []string{"FELIX_INTERFACEPREFIX=cali,tap"}})
	commit(ctx, t, l, model.Change{Puts: []model.Put{
		{Key: model.DHCPSubnetKey{ID: "four"}, Value: model.Subnet{
			CIDR: netip.MustParsePrefix("192.168.200.0/24"), GatewayIP: netip.MustParseAddr("192.168.200.1"), DNSServers: []netip.Addr{netip.MustParseAddr("192.168.200.53")},
			HostRoutes: []model.HostRoute{{Destination: netip.MustParsePrefix("169.254.169.254/32"), NextHop: netip.MustParseAddr("192.168.200.2")}},
		}},
		{Key: model.DHCPSubnetKey{ID: "six"}, Value: model.Subnet{
			CIDR: netip.MustParsePrefix("fd80:24e2:f998:72d6::/64"), GatewayIP: netip.MustParseAddr("fd80:24e2:f998:72d6::1"), DNSServers: []netip.Addr{netip.MustParseAddr("fd80::53")},
		}},
	}})
	return l
}

func commit(ctx context.Context, t *testing.T, l *lab.Lab, c model.Change) {
	t.Helper()
	etcd, err := l.OpenEtcd()
	if err == nil {
		_, err = etcd.Commit(ctx, c)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// machineSpec is a machine's endpoint, which has no profile yet: nothing passes to or from it.
func machineSpec(name string) model.WorkloadEndpoint {
	return model.WorkloadEndpoint{
		State: model.StateActive, Name: "tap" + name, MAC: model.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}, FQDN: name + ".example.com", MTU: 1400,
		IPv4Nets: []netip.Prefix{netip.MustParsePrefix("192.168.200.24/32")}, IPv4SubnetIDs: []string{"four"},
		// What SLAAC makes of the MAC address.
		IPv6Nets: []netip.Prefix{netip.MustParsePrefix("fd80:24e2:f998:72d6:f816:3eff:fe00:1/128")}, IPv6SubnetIDs: []string{"six"},
	}
}

// newMachine starts a machine on a host.
func newMachine(ctx context.Context, t *testing.T, l *lab.Lab, host, name string) *machine {
	t.Helper()
	m := &machine{t: t, lab: l, host: l.Host(host), name: name, dir: t.TempDir(), spec: machineSpec(name)}
	var err error
	if m.ns, err = l.NewNamespace(name); err != nil {
		t.Fatal(err)
	}
	if err := m.ns.Do(func() (err error) { m.nic, err = taps.Machine(m.spec.MAC); return err }); err != nil {
		t.Fatal(err)
	}
	m.plug()
	t.Cleanup(func() { // before the next has its addresses
		commit(context.WithoutCancel(ctx), t, l, model.Change{Deletes: []model.Key{m.key()}})
	})
	m.write(ctx)
	return m
}

// plug makes the tap on its host, and joins the machine to it.
func (m *machine) plug() {
	m.t.Helper()
	if err := m.host.Do(func() (err error) { m.tap, err = taps.Open(m.spec.Name); return err }); err != nil {
		m.t.Fatal(err)
	}
	wait := taps.Join(m.nic, m.tap)
	m.t.Cleanup(func() {
		_, _ = m.nic.Close(), m.tap.Close()
		wait()
	})
}

// write writes the endpoint as it is now, and waits until it is up.
func (m *machine) write(ctx context.Context) {
	m.t.Helper()
	key := m.key()
	commit(ctx, m.t, m.lab, model.Change{Puts: []model.Put{{Key: key, Value: m.spec}}})
	eventually.Nil(m.t, m.name+" to be served", func() error {
		entries, _, err := m.lab.Dump(ctx)
		for _, e := range entries {
			if e.Key == model.WorkloadStatusKey(key) && e.Value == model.EndpointStatus("up") {
				return err
			}
		}
		return errors.Join(errors.New("its endpoint isn't up"), err)
	})
}

func (m *machine) key() model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: m.host.Name(), Orchestrator: "openstack", Workload: m.name, Endpoint: "eth0"}
}

// run runs a command in the machine.
func (m *machine) run(ctx context.Context, args ...string) (string, error) {
	cmd := m.command(ctx, args...)
	var out []byte
	err := m.ns.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return string(out), err
}

func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	return cmd
}

func (m *machine) mustRun(ctx context.Context, args ...string) string {
	m.t.Helper()
	out, err := m.run(ctx, args...)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// start runs a client in the foreground until the test ends, or stop.
func (m *machine) start(ctx context.Context, args ...string) (stop func()) {
	m.t.Helper()
	log, err := os.Create(filepath.Join(m.dir, filepath.Base(args[0])+".log"))
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := m.command(ctx, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = log, log, eventually.Limit
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := m.ns.Do(cmd.Start); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is ended by a signal
	}()
	stop = func() {
		cancel()
		<-ended
	}
	m.t.Cleanup(func() {
		stop()
		if m.t.Failed() {
			m.t.Logf("%s:\n%s", args[0], fileText(m.t, log.Name()))
		}
	})
	return stop
}

// script writes one that leaves what a client hands to it in a file by the client's reason, and then does more.
func (m *machine) script(more string) string {
	m.t.Helper()
	path := filepath.Join(m.dir, "script")
	// The directory is in the text: dhclient hands on none of its environment.
	text := "#!/bin/sh\ncd " + m.dir + "\nenv >.new\nmv .new ${reason:-$1}.env\n" + more
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// told waits until a client has told its script of a reason, and compares some of what it said.
func (m *machine) told(reason string, want map[string]string) {
	m.t.Helper()
	eventually.Nil(m.t, "the client to tell "+reason, func() error {
		data, err := os.ReadFile(filepath.Join(m.dir, reason+".env"))
		if err != nil {
			return err
		}
		got := map[string]string{}
		for line := range strings.Lines(string(data)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			got[name] = value
		}
		for name, value := range want {
			if got[name] != value {
				return fmt.Errorf("%s is %q, want %q, of:\n%s", name, got[name], value, data)
			}
		}
		return nil
	})
}
