// SPDX-License-Identifier: Apache-2.0

// Package nsmanager is the manager of a node's network service connections: it serves the clients and endpoints of the
// node and the managers of other nodes, makes the links, and repairs them.
package nsmanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/daemon/runlock"
	"github.com/calico-go/calico/pkg/daemon/statefile"
	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
	"github.com/calico-go/calico/pkg/store"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Config is the manager's configuration.
type Config struct {
	Node      string     // its name
	Address   netip.Addr // its address for other nodes, and the end of its tunnels
	Port      uint16     // of managers, TCP
	VXLANPort uint16     // of tunnels, UDP
	Directory string     // for the sockets
	State     string     // for the persistent state
	// KeepDefaultRoutes refuses a default route to pods that have one.
	KeepDefaultRoutes bool
	TLS               nsmgrpc.TLS
	// Kubernetes puts the registry in the Kubernetes API, with Kubeconfig for access ("" = as a pod); else it is in
	// etcd.
	Kubernetes bool
	Kubeconfig string
	// Certificate is the file for a certificate that this manager obtains from Kubernetes; "" = TLS names an existing
	// one.
	Certificate string
	Store       store.Config
}

// A Manager serves one node. Each of its connections is a file in the directory.
type Manager struct {
	run.Env
	cfg      Config
	registry registry
	known    *known
	own      uint64 // the node's namespace
	now      func() time.Time
	seed     func() uint64

	naming    sync.Mutex // held from checking the owner of an endpoint's name until the endpoint is stored
	guarding  sync.Mutex // held while the rules for tunnels are compared and written
	mu        sync.Mutex
	ledger    nsm.Ledger
	busy      map[nsm.Key]chan struct{}
	endpoints map[string]*advertised // of this node, by service and name
	heard     map[string]time.Time   // when each other node was last heard from
	failures  map[string]time.Time   // when an endpoint, or a manager's address, failed
	received  map[nsm.Key]uint64     // packets of connections between nodes at the last check
	unreached map[string]bool        // managers that are listed; used only by the audits
	requests  *prometheus.CounterVec
	pins      map[uint64]io.Closer // prevent the inodes of connections' namespaces from being reused
}

// Run runs the manager until the context ends. Its pods' links stay.
func Run(ctx context.Context, cfg Config, env run.Env) error {
	release, err := runlock.Take(cfg.State, lockName)
	if err != nil {
		return fmt.Errorf("directory %s: %w", cfg.State, err)
	}
	defer release()
	m, err := start(ctx, cfg, env)
	if err != nil {
		return err
	}
	defer func() { _ = m.registry.close() }() // the process is ending
	l, err := net.Listen("tcp", netip.AddrPortFrom(cfg.Address, cfg.Port).String())
	if err != nil {
		return fmt.Errorf("listen for other managers: %w: end what has the port, or choose another by -port on all nodes", err)
	}
	defer func() { _ = l.Close() }() // closed by its server once that has started
	if err := errors.Join(m.guard(), m.recover(ctx)); err != nil {
		return err
	}
	if err := env.Serve(); err != nil {
		return err
	}
	m.Logger.Info("serving", "node", cfg.Node, "address", l.Addr().String(), "directory", cfg.Directory)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return env.Pages.Run(ctx) })
	group.Go(func() error { return nsmgrpc.ServePods(ctx, cfg.Directory, m) })
	group.Go(func() error { return nsmgrpc.ServePeers(ctx, l, cfg.TLS, m) })
	group.Go(func() error { return m.registry.watch(ctx) })
	group.Go(func() error { return m.audits(ctx) })
	return group.Wait()
}

// lockName is the file in the state directory that a manager locks.
const lockName = "calico-nsm.lock"

func start(ctx context.Context, cfg Config, env run.Env) (*Manager, error) {
	own, err := crossconnect.Own()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		Env: env, cfg: cfg, known: newKnown(), own: own, now: time.Now, seed: randomSeed,
		busy: map[nsm.Key]chan struct{}{}, endpoints: map[string]*advertised{}, heard: map[string]time.Time{}, failures: map[string]time.Time{}, received: map[nsm.Key]uint64{}, unreached: map[string]bool{}, pins: map[uint64]io.Closer{},
	}
	if cfg.Kubernetes {
		m.registry, err = openKubernetes(ctx, cfg, env, m.list, m.known)
	} else {
		m.registry, err = openEtcd(ctx, cfg.Store, env, m.list, m.known)
	}
	if err != nil {
		return nil, err
	}
	if err := cfg.TLS.Check(); err != nil {
		return nil, errors.Join(err, m.registry.close())
	}
	m.measure(env.Metrics)
	for _, dir := range []string{m.file(""), m.endpointFile("")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("the directory of the state: %w", statefile.Advise(err)), m.registry.close())
		}
	}
	if err := errors.Join(load(m.file(""), m.connectionFiles, m.ledger.Put), load(m.endpointFile(""), m.advertisedFiles, m.know)); err != nil {
		return nil, errors.Join(err, m.registry.close())
	}
	return m, nil
}

// load reads every file of a directory. It is an error if one doesn't parse, or has content that belongs in another:
// what it held can't be assumed to be gone. filesOf returns the path for a value, and those of former versions.
func load[T any](dir string, filesOf func(T) []string, add func(T)) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the state: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.Name()[0] == '.' {
			_ = os.Remove(path) // left by a write that was killed
			continue
		}
		content, err := os.ReadFile(path)
		var v T
		if err == nil {
			err = json.Unmarshal(content, &v)
		}
		if files := filesOf(v); err == nil && !slices.Contains(files, path) {
			err = errors.New("it is of something else")
		} else if err == nil {
			err = os.Rename(path, files[0])
		}
		if err != nil {
			return fmt.Errorf("read the state %s: %w: remove the file to forget what it is of", path, err)
		}
		add(v)
	}
	return nil
}

func (m *Manager) file(name string) string {
	return filepath.Join(m.cfg.State, "connections", name)
}
func (m *Manager) endpointFile(name string) string {
	return filepath.Join(m.cfg.State, "endpoints", name)
}
func (m *Manager) connectionFiles(c nsm.Connection) []string {
	return []string{m.file(name(c.Key)), m.file(fileName(c.Key.Service, c.Key.ID, "remote"))}
}
func (m *Manager) advertisedFiles(e nsm.Endpoint) []string { return []string{m.advertisedFile(e)} }
func (m *Manager) advertisedFile(e nsm.Endpoint) string {
	return m.endpointFile(fileName(e.Service, e.Name))
}

// list shows a problem at /debug/invalid, or removes it if err is nil. The action is retried.
func (m *Manager) list(about string, err error) { m.Problems.Tell("connections", about, err) }

func write(path string, v any) error {
	content, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return statefile.Advise(statefile.Replace(path, content, 0o600))
}

func name(k nsm.Key) string {
	if k.Peer != "" {
		return fileName(k.Service, k.ID, "remote", k.Peer)
	}
	return fileName(k.Service, k.ID, "client")
}

// hold waits until the connection is free, and keeps it until release is called.
func (m *Manager) hold(ctx context.Context, k nsm.Key) (release func(), err error) {
	for {
		m.mu.Lock()
		other, taken := m.busy[k]
		if !taken {
			mine := make(chan struct{})
			m.busy[k] = mine
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				delete(m.busy, k)
				close(mine)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: another call for the same connection is under way: %w", nsm.ErrAborted, ctx.Err())
		}
	}
}

// get returns what is known of a connection.
func (m *Manager) get(k nsm.Key) (nsm.Connection, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger.Get(k)
}

// reserve stores a connection after decide has completed it. decide is called with the ledger, which no one else
// changes meanwhile.
func (m *Manager) reserve(c *nsm.Connection, decide func(*nsm.Ledger) error) error {
	m.mu.Lock()
	err := decide(&m.ledger)
	if err == nil {
		m.ledger.Put(*c)
	}
	m.mu.Unlock()
	if err == nil {
		err = m.save(*c)
	}
	return err
}

// save stores a connection, first on disk.
func (m *Manager) save(c nsm.Connection) error {
	if err := write(m.file(name(c.Key)), c); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ledger.Put(c)
	return nil
}

// forget removes a connection of which nothing is left.
func (m *Manager) forget(k nsm.Key) error {
	if err := os.Remove(m.file(name(k))); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ledger.Delete(k)
	m.list(about(k), nil)
	delete(m.received, k)
	return nil
}

// open opens a pod's namespace. It rejects the node's own.
func (m *Manager) open(spaces crossconnect.Namespaces, inode uint64) (*crossconnect.Namespace, error) {
	if inode == m.own {
		return nil, fmt.Errorf("%w: network namespace %d is the node's own: connections are for pods that have one of their own", nsm.ErrInvalid, inode)
	}
	n, err := spaces.Open(inode)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", nsm.ErrInvalid, err)
	}
	return n, err
}

// unlink deletes the links of a connection on this node. A namespace that is gone has none.
func (m *Manager) unlink(c nsm.Connection) error {
	spaces, err := crossconnect.Scan()
	if err != nil {
		return err
	}
	var errs error
	for _, end := range []nsm.End{c.Client, c.Server} {
		if end.Namespace == 0 || end.Name == "" {
			continue
		}
		n, err := spaces.Open(end.Namespace)
		if errors.Is(err, os.ErrNotExist) {
			m.unpin(end.Namespace) // the kernel deletes them
			continue
		}
		if err == nil {
			err = n.Delete(end.Name, c.Alias())
			n.Close()
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

// pin holds a namespace open, which prevents its inode from being reused.
func (m *Manager) pin(inode uint64, n *crossconnect.Namespace) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pins[inode] != nil {
		return nil
	}
	file, err := n.Pin()
	if err == nil {
		m.pins[inode] = file
	}
	return err
}

func (m *Manager) unpin(inode uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if file := m.pins[inode]; file != nil {
		_ = file.Close()
		delete(m.pins, inode)
	}
}

// undo removes what a connection has on this node, and forgets it. What can't be removed now is retried.
func (m *Manager) undo(c nsm.Connection) error {
	if err := m.unlink(c); err != nil {
		return err
	}
	return m.forget(c.Key)
}

func (m *Manager) peer(e nsm.Endpoint) nsmgrpc.Peer {
	return nsmgrpc.Peer{Node: e.Host, Address: e.Address, TLS: m.cfg.TLS}
}

func (m *Manager) address() string {
	return net.JoinHostPort(m.cfg.Address.String(), strconv.Itoa(int(m.cfg.Port)))
}
