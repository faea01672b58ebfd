// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// cluster is a real etcd on loopback, with each member behind its own proxy.
type cluster struct {
	t       testing.TB
	members []*server
	opts    clusterOptions
}

type clusterOptions struct {
	size     int
	tls      *transport.TLSInfo // for clients
	grpcOnly bool               // HTTP has an address of its own
	quota    int64
	narrow   bool   // takes two operations in a transaction, and 2 KiB
	token    string // as etcd's --auth-token
	tokenTTL uint   // seconds, of simple ones
}

type server struct {
	c          *cluster
	cfg        *embed.Config
	clientAddr string
	proxy      *proxy
	etcd       *embed.Etcd
	asked      sync.RWMutex // held by requests for the member's status
	halted     bool
	passwords  atomic.Int64
}

func startCluster(t testing.TB, opts clusterOptions) *cluster {
	t.Helper()
	if opts.size == 0 {
		opts.size = 1
	}
	c := &cluster{t: t, opts: opts}
	var initial []string
	for range opts.size {
		m := c.newServer()
		initial = append(initial, m.cfg.Name+"=http://"+m.cfg.ListenPeerUrls[0].Host)
	}
	for _, m := range c.members {
		m.cfg.InitialCluster = strings.Join(initial, ",")
	}
	started := make(chan error)
	for _, m := range c.members {
		go func() { started <- m.start() }()
	}
	for range c.members {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, m := range c.members {
			wg.Go(func() {
				if m.etcd != nil {
					m.halt()
				}
				m.stop()
			})
		}
		wg.Wait()
	})
	return c
}

// newServer prepares a member.
func (c *cluster) newServer() *server {
	t, opts := c.t, c.opts
	scheme := "http"
	if opts.tls != nil {
		scheme = "https"
	}
	free := freeAddrs(t, 3)
	cfg := embed.NewConfig()
	cfg.Name = fmt.Sprintf("m%d", len(c.members))
	cfg.Dir = t.TempDir()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.TickMs, cfg.ElectionMs = 20, 200
	if opts.size > 1 {
		cfg.TickMs, cfg.ElectionMs = 50, 1000 // no leader is lost because a member waits for its turn
	}
	cfg.UnsafeNoFsync = true
	cfg.BcryptCost = 4
	cfg.AuthToken, cfg.AuthTokenTTL = cmp.Or(opts.token, cfg.AuthToken), cmp.Or(opts.tokenTTL, cfg.AuthTokenTTL)
	cfg.QuotaBackendBytes = opts.quota
	if opts.narrow {
		cfg.MaxTxnOps, cfg.MaxRequestBytes = 2, 2<<10
	}
	addr, peer := free[0], free[1]
	cfg.ListenClientUrls = []url.URL{{Scheme: scheme, Host: addr}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: peer}}
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	if opts.tls != nil {
		cfg.ClientTLSInfo = *opts.tls
	}
	if opts.grpcOnly {
		cfg.ListenClientHttpUrls = []url.URL{{Scheme: scheme, Host: free[2]}}
	}
	m := &server{c: c, cfg: cfg, clientAddr: addr, proxy: startProxy(t, addr)}
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(m.serve)}
	c.members = append(c.members, m)
	return m
}

// join adds a prepared member to a running cluster.
func (c *cluster) join(m *server, as func(clientv3.Cluster, context.Context, []string) (*clientv3.MemberAddResponse, error)) *server {
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{c.members[0].clientAddr}, Logger: zap.NewNop()})
	if err != nil {
		c.t.Fatal(err)
	}
	defer admin.Close()
	if _, err := as(admin, within(c.t, eventually.Limit), []string{m.cfg.ListenPeerUrls[0].String()}); err != nil {
		c.t.Fatal(err)
	}
	m.cfg.ClusterState = embed.ClusterStateFlagExisting
	m.cfg.InitialCluster = m.cfg.Name + "=" + m.cfg.ListenPeerUrls[0].String() + "," + c.members[0].cfg.InitialCluster
	if err := m.start(); err != nil {
		c.t.Fatal(err)
	}
	return m
}

// serve keeps status requests from a halted member: etcd answers them from its database without checking whether that
// is closed, which would end the test process. It also counts the passwords that etcd is asked to check.
func (m *server) serve(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if info.FullMethod == pb.Auth_Authenticate_FullMethodName {
		m.passwords.Add(1)
	}
	if info.FullMethod != pb.Maintenance_Status_FullMethodName {
		return handler(ctx, req)
	}
	m.asked.RLock()
	defer m.asked.RUnlock()
	if m.halted {
		return nil, status.Error(codes.Unavailable, "halted")
	}
	return handler(ctx, req)
}

func (m *server) setHalted(halted bool) {
	m.asked.Lock()
	defer m.asked.Unlock()
	m.halted = halted
}

// halt ends the member without transfer of leadership; stop must follow.
func (m *server) halt() {
	m.setHalted(true)
	m.etcd.Server.HardStop()
}

func (m *server) start() error {
	m.setHalted(false)
	e, err := embed.StartEtcd(m.cfg)
	if err != nil {
		return err
	}
	m.etcd = e
	select {
	case <-e.Server.ReadyNotify():
	case <-within(m.c.t, eventually.Limit).Done():
		return fmt.Errorf("member %s did not get ready", m.cfg.Name)
	}
	m.proxy.set(forward)
	return nil
}

// stop ends the member; its clients' connections break at once.
func (m *server) stop() {
	m.proxy.set(refuse)
	if m.etcd != nil {
		m.etcd.Close()
		m.etcd = nil
	}
}

// wipe forgets the member's data, for a start as a new cluster.
func (m *server) wipe() { m.cfg.Dir = m.c.t.TempDir() }

// endpoints returns the proxies' addresses.
func (c *cluster) endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.proxy.addr)
	}
	return all
}

func (c *cluster) leader() *server {
	for _, m := range c.members {
		if m.etcd != nil && m.etcd.Server.Leader() == m.etcd.Server.MemberID() {
			return m
		}
	}
	return nil
}

// admin is etcd's own client, so that other code checks what this package does.
func (c *cluster) admin() *clientv3.Client {
	c.t.Helper()
	cfg := clientv3.Config{Logger: zap.NewNop()}
	for _, m := range c.members {
		cfg.Endpoints = append(cfg.Endpoints, m.proxy.addr)
	}
	if c.opts.tls != nil {
		tc, err := c.opts.tls.ClientConfig()
		if err != nil {
			c.t.Fatal(err)
		}
		cfg.TLS = tc
	}
	a, err := clientv3.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { a.Close() })
	return a
}

func (c *cluster) open(change ...func(*Config)) *Client {
	c.t.Helper()
	cfg := Config{Endpoints: c.endpoints(), Logger: slog.New(slog.NewTextHandler(testWriter{c.t}, nil))}
	for _, f := range change {
		f(&cfg)
	}
	return open(c.t, cfg)
}

func open(t testing.TB, cfg Config) *Client {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// commit makes a change, and repeats it if the members had no time to answer.
func commit(t testing.TB, s *Client, change model.Change) (revision int64) {
	t.Helper()
	ctx := within(t, eventually.Limit)
	eventually.True(t, "an answer to a commit", func() bool {
		var err error
		revision, err = s.Commit(ctx, change)
		if err != nil && !errors.Is(err, ErrUnknownOutcome) {
			t.Fatal(err)
		}
		return err == nil
	})
	return revision
}

// freeAddrs returns distinct addresses on which nothing listens and that no other process takes: they are on a loopback
// address chosen by the process ID, while others, including tests of other packages, use 127.0.0.1.
func freeAddrs(t testing.TB, n int) []string {
	t.Helper()
	pid := os.Getpid()
	own := netip.AddrFrom4([4]byte{127, byte(64 + pid>>16&63), byte(pid >> 8), byte(pid)})
	var addrs []string
	for len(addrs) < n {
		l, err := net.Listen("tcp", netip.AddrPortFrom(own, 0).String())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, taken := handedOut.LoadOrStore(l.Addr().String(), true); !taken {
			addrs = append(addrs, l.Addr().String())
		}
	}
	return addrs
}

var handedOut sync.Map // to tests that run at the same time

func freeAddr(t testing.TB) string { return freeAddrs(t, 1)[0] }

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// testWriter logs to the test.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}
