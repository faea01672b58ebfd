// SPDX-License-Identifier: Apache-2.0

// Package etcd is an etcd in a test's own process, with what tests write to it and read of it.
package etcd

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/ports"
	"github.com/calico-go/calico/pkg/store"
)

// Server is an etcd of one member. Whatever it fails to do fails the test.
type Server struct {
	testing.TB
	// Store is a client of it.
	Store *store.Client

	cfg     *embed.Config
	etcd    *embed.Etcd
	allowed atomic.Int64 // requests about etcd's users until one is refused, from 1
	serving sync.RWMutex // held by requests to etcd
	stopped bool         // etcd is, or is about to be
	runs    context.Context
	end     context.CancelFunc // of runs
}

// New starts one. It ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	free := ports.Free(tb, 2)
	s := &Server{TB: tb}
	client, peer := url.URL{Scheme: "http", Host: free[0]}, url.URL{Scheme: "http", Host: free[1]}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(tb.TempDir(), "etcd")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.TickMs, cfg.ElectionMs = 20, 200
	cfg.UnsafeNoFsync = true
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.serve), grpc.ChainStreamInterceptor(s.stream)}
	s.cfg = cfg
	s.Start()
	tb.Cleanup(s.Stop)
	var err error
	s.Store, err = store.Open(context.Background(), store.Config{Endpoints: []string{client.String()}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Store.Close() })
	return s
}

// Addr is where clients find it, host:port.
func (s *Server) Addr() string { return s.cfg.ListenClientUrls[0].Host }

// serve lets requests through until etcd is stopped: a request for the member's status after its database is closed would
// end the test process.
func (s *Server) serve(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	s.serving.RLock()
	defer s.serving.RUnlock()
	if s.stopped {
		return nil, errStopped
	}
	if strings.HasPrefix(info.FullMethod, "/etcdserverpb.Auth/") && s.allowed.Add(-1) == 0 {
		return nil, rpctypes.ErrGRPCPermissionDenied
	}
	return handler(ctx, req)
}

// RefuseUser refuses the request about etcd's users that comes after so many of them: whoever makes it ends there.
func (s *Server) RefuseUser(after int) { s.allowed.Store(int64(after) + 1) }

var errStopped = status.Error(codes.Unavailable, "etcd is stopped")

// boundStream is a stream with a context of its own.
type boundStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (b boundStream) Context() context.Context { return b.ctx }

// stream ends watches and keepalives when etcd is stopped, which otherwise waits several seconds for them.
func (s *Server) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s.serving.RLock()
	runs := s.runs
	s.serving.RUnlock()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(runs, cancel)()
	err := handler(srv, boundStream{stream, ctx})
	if runs.Err() != nil {
		return errStopped
	}
	return err
}

// Start starts etcd again after Stop, with its content.
func (s *Server) Start() {
	s.Helper()
	s.serving.Lock()
	s.stopped = false
	s.runs, s.end = context.WithCancel(context.Background())
	s.serving.Unlock()
	e, err := embed.StartEtcd(s.cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.etcd = e
	eventually.Receive(s, "etcd to be ready", e.Server.ReadyNotify())
}

// Stop stops etcd if it runs.
func (s *Server) Stop() {
	if s.etcd != nil {
		s.serving.Lock()
		s.stopped = true
		s.serving.Unlock()
		s.end()
		s.etcd.Server.HardStop()
		s.etcd.Close()
		s.etcd = nil
	}
}

// elsewhere makes etcd serve at another address while do runs: other clients can't reach it.
func (s *Server) elsewhere(do func(*store.Client)) {
	s.Helper()
	public := s.cfg.ListenClientUrls
	elsewhere := url.URL{Scheme: "http", Host: ports.Free(s, 1)[0]}
	move := func(urls []url.URL) {
		s.Stop()
		s.cfg.ListenClientUrls = urls
		s.Start()
	}
	move([]url.URL{elsewhere})
	client, err := store.Open(context.Background(), store.Config{Endpoints: []string{elsewhere.String()}})
	if err != nil {
		s.Fatal(err)
	}
	do(client)
	_ = client.Close() // it has done what it was to do
	move(public)
}

// Client runs fn with etcd's own client.
func (s *Server) Client(fn func(context.Context, *clientv3.Client) error) {
	s.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + s.Addr()}})
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit)
	defer cancel()
	if err := fn(ctx, c); err != nil {
		s.Fatal(err)
	}
}

// Until waits for a condition.
func (s *Server) Until(what string, met func() bool) {
	s.Helper()
	eventually.True(s, what, met)
}
