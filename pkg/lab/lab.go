// SPDX-License-Identifier: Apache-2.0

// Package lab makes a complete Calico network on one machine: an etcd of one or three members, virtual hosts that are
// network namespaces on a shared fabric or in racks behind routers, the real agent on each, and pods that are
// namespaces wired by the real plugin binaries through the CNI protocol.
//
//	l := lab.ForTest(t, lab.Config{Hosts: []string{"a"}})
//	web, db := l.Host("a").Pod("web"), l.Host("a").Pod("db")
//	if err := web.Ping(ctx, db); err != nil { … }
//
// Nothing is ever made in the machine's own network namespace. Everything that a lab makes is recorded below
// Root/<name>, so that a later process can find and remove it after a crash.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// Root is the directory of all labs' files.
const Root = "/run/calico-lab"

// Config says what a lab consists of. The zero value is a lab without hosts, with one etcd member, plain text, and the
// default pools.
type Config struct {
	Name  string   // unique on the machine; "" = "default"
	Hosts []string // virtual hosts on the fabric; all names in a lab must differ
	// Racks are further hosts in their own subnets, each rack behind a router ("rack1", "rack2", …) through which they
	// reach each other, the hosts on the fabric, and etcd. No router knows about pods.
	Racks [][]string

	EtcdMembers int   // 1 or 3; 0 = 1
	TLS         bool  // clients and etcd use certificates
	Auth        bool  // etcd asks for user and password
	NoFsync     bool  // etcd does not wait for the disk
	EtcdQuota   int64 // bytes after which etcd turns read-only; 0 = etcd's default

	Pools []netip.Prefix // IP pools; nil = DefaultPools, empty = none
	// Pool, if set, changes each pool before it is written, for example its encapsulation.
	Pool    func(*model.Pool)
	NoReady bool // don't set the Ready flag in etcd

	NoAgent bool // hosts without calico-node
	Classic bool // the system of 2014: see classic.go
	// Hostile makes an environment that isn't Calico's alone: hosts with hardened sysctls, a FORWARD that drops,
	// kube-proxy's rules, and a firewall that is rewritten all the time; and wires that drop unencapsulated packets of
	// pods if pools have an encapsulation.
	Hostile bool
	// AgentEnv is added to the agents' environment: "FELIX_…=…".
	AgentEnv []string
	// Conf, if set, changes a host's plugin configuration before it is written.
	Conf func(host string, plugin map[string]any)

	BinDir  string   // directory with calico, calico-ipam, calico-node and calico-lab; "" = that of this executable
	CNIPath []string // further directories with plugins
	// DataDir is a directory used only for this lab's etcd data; "" = a new one in os.TempDir.
	DataDir string

	Log io.Writer // progress, one line per step; nil = none
	// Trace, if set, is called for every plugin that the lab ran, in the goroutine that ran it.
	Trace func(Call, Reply)
	// Background says that the lab outlives this process (`calico-lab up`).
	Background bool

	patient bool // plugins wait longer than by default at the gate, and those of pods also for etcd
}

// DefaultPools returns the pools of a lab that doesn't specify any.
func DefaultPools() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("fd80:24e2:f998:72d6::/64"),
	}
}

// Lab is a running network. Its methods may be called concurrently.
type Lab struct {
	cfg     Config
	name    string
	dir     string     // Root/name
	lock    *lockFile  // nil if attached
	t       testing.TB // nil outside tests
	state   state
	fabric  *fabric
	procs   *processes
	members *Members

	mu     sync.Mutex
	hosts  map[string]*Host
	client *store.Client
}

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

func checkName(kind, name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%s name %q: want up to 40 lower-case letters, digits and hyphens", kind, name)
	}
	return nil
}

// Start makes a lab. It first removes the remains of labs that were not closed. On an error, or when ctx ends, it
// removes everything made so far.
func Start(ctx context.Context, cfg Config) (l *Lab, err error) {
	cfg, err = cfg.complete()
	if err != nil {
		return nil, err
	}
	if err := needRoot(); err != nil {
		return nil, err
	}
	if _, err := Sweep(); err != nil {
		return nil, err
	}
	l = newLab(cfg, state{Name: cfg.Name, Background: cfg.Background})
	if l.lock, err = waitLock(cfg.Name); err != nil {
		return nil, err
	}
	if _, err := os.Stat(l.dir); err == nil {
		l.lock.release()
		return nil, fmt.Errorf("lab %s is up already (calico-lab down --name %s removes it)", l.name, l.name)
	}
	l.procs.keeper = newKeeper()
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
			l = nil
		}
	}()
	return l, l.build(ctx)
}

// newLab returns the lab with that state, without its hosts.
func newLab(cfg Config, s state) *Lab {
	l := &Lab{cfg: cfg, name: s.Name, dir: filepath.Join(Root, s.Name), state: s, hosts: map[string]*Host{}}
	l.fabric = newFabric(l)
	l.procs = &processes{lab: l.name, dir: l.dir, background: s.Background, own: map[string]*Process{}}
	l.members = newMembers(l)
	return l
}

// needRoot returns an error with a hint if namespaces can't be made.
func needRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root, or a shell in a user namespace: unshare -Urnm sh -c 'mount -t tmpfs run /run && exec sh'")
	}
	return nil
}

// complete fills in defaults.
func (cfg Config) complete() (Config, error) {
	if cfg.Name == "" {
		cfg.Name = "default"
	}
	if err := checkName("lab", cfg.Name); err != nil {
		return cfg, err
	}
	if err := cfg.checkHosts(); err != nil {
		return cfg, err
	}
	for _, pool := range cfg.Pools {
		if pool != pool.Masked() {
			return cfg, fmt.Errorf("pool %s: it has bits set after its length: want %s", pool, pool.Masked())
		}
	}
	if cfg.EtcdMembers == 0 {
		cfg.EtcdMembers = 1
	}
	if cfg.EtcdMembers != 1 && cfg.EtcdMembers != 3 {
		return cfg, fmt.Errorf("%d etcd members: a lab has one or three", cfg.EtcdMembers)
	}
	if cfg.Pools == nil {
		cfg.Pools = DefaultPools()
	}
	if cfg.BinDir == "" {
		exe, err := os.Executable()
		if err != nil {
			return cfg, err
		}
		cfg.BinDir = filepath.Dir(exe)
	}
	needed := []string{"calico-lab"} // for etcd; plugins are searched for when they are run
	switch {
	case cfg.Classic && len(cfg.Racks) > 0:
		return cfg, errors.New("a lab of the system of 2014 has no racks")
	case cfg.Classic:
		needed = append(needed, "calico-classic")
	case !cfg.NoAgent:
		needed = append(needed, "calico-node")
	}
	for _, name := range needed {
		if _, err := os.Stat(filepath.Join(cfg.BinDir, name)); err != nil {
			return cfg, fmt.Errorf("%w: run `make build`, or say where the binaries are", err)
		}
	}
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	return cfg, nil
}

func (cfg Config) checkHosts() error {
	if len(cfg.Racks) > maxRacks {
		return fmt.Errorf("%d racks: a lab has %d at most", len(cfg.Racks), maxRacks)
	}
	taken := map[string]bool{"fabric": true}
	for i := range cfg.Racks {
		taken[rackName(i+1)] = true
	}
	for _, host := range slices.Concat(append([][]string{cfg.Hosts}, cfg.Racks...)...) {
		if err := checkName("host", host); err != nil {
			return err
		}
		if taken[host] {
			return fmt.Errorf("host %s: the name is taken by another", host)
		}
		taken[host] = true
	}
	return nil
}

// build does the work of Start, without cleaning up.
func (l *Lab) build(ctx context.Context) error {
	for _, sub := range []string{"", "ns", "log", "proc", "hosts", "pods", "etcd"} {
		if err := os.MkdirAll(filepath.Join(l.dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := l.makeDataDir(); err != nil {
		return err
	}
	if err := l.saveState(); err != nil {
		return err
	}
	if err := l.fabric.make(); err != nil {
		return fmt.Errorf("make the fabric: %w", err)
	}
	if err := l.fabric.makeRouters(); err != nil {
		return err
	}
	if err := l.distrust(ctx); err != nil {
		return err
	}
	l.say("etcd: starting %d", l.cfg.EtcdMembers)
	if err := l.members.startAll(ctx); err != nil {
		return err
	}
	if err := l.seed(ctx); err != nil {
		return fmt.Errorf("write the first keys to etcd: %w", err)
	}
	if l.cfg.Classic {
		if err := l.StartClassic(); err != nil {
			return err
		}
	}
	for _, name := range l.cfg.Hosts {
		if _, err := l.AddHost(ctx, name); err != nil {
			return err
		}
	}
	for i, hosts := range l.cfg.Racks {
		for _, name := range hosts {
			if _, err := l.addHost(ctx, name, i+1); err != nil {
				return err
			}
		}
	}
	if l.cfg.Classic {
		if err := l.routeMachines(ctx); err != nil {
			return err
		}
	}
	l.state.Ready = true
	return l.saveState()
}

// Name returns the name of the lab.
func (l *Lab) Name() string { return l.name }

// Dir returns the directory with the lab's files, including logs (Dir/log).
func (l *Lab) Dir() string { return l.dir }

func (l *Lab) say(format string, args ...any) { fmt.Fprintf(l.cfg.Log, format+"\n", args...) }

// Fabric returns the network between the hosts, which also has etcd.
func (l *Lab) Fabric() Namespace { return l.fabric.ns }

// Members returns the members of the lab's etcd.
func (l *Lab) Members() *Members { return l.members }

// fatal ends the test that the lab was made for.
func (l *Lab) fatal(err error) {
	if l.t == nil {
		panic(fmt.Sprintf("lab %s: %v (only labs made by ForTest have this method)", l.name, err))
	}
	l.t.Helper()
	l.t.Fatal(err)
}

// Close ends every process of the lab and removes everything that it made.
func (l *Lab) Close() error {
	l.mu.Lock()
	client := l.client
	l.client = nil
	l.mu.Unlock()
	var errs []error
	if client != nil {
		errs = append(errs, client.Close())
	}
	if l.lock == nil {
		l.procs.keeper.close()
		return errors.Join(errs...)
	}
	errs = append(errs, remove(l.name, l.procs.children()))
	l.procs.keeper.close()
	l.lock.release()
	return errors.Join(errs...)
}

// Leave detaches from a background lab and keeps it running.
func (l *Lab) Leave() error {
	if l.lock != nil && l.state.Background {
		l.lock.release()
		l.lock = nil
	}
	return l.Close()
}
