// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// member is one endpoint and, once used, its client.
type member struct {
	url    string // for messages
	host   string // name or address; "" for a socket
	tls    *tlsFiles
	secure bool

	mu     sync.Mutex
	client *clientv3.Client
	closed bool
}

// open creates the client, without connecting.
func (m *member) open() (*clientv3.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	if m.client != nil {
		return m.client, nil
	}
	creds := insecure.NewCredentials()
	if m.secure {
		creds = newHandshaker(m.tls)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.url},
		Logger:    zap.NewNop(),
		// Detects a host that vanished without closing a watch's connection. 10 s is the least that grpc allows; etcd
		// tolerates 5 s.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		// call does the retries: it knows what is safe to repeat, turns to other members, and keeps the reason.
		MaxUnaryRetries: 1,
		DialOptions: []grpc.DialOption{
			grpc.WithDisableRetry(),
			grpc.WithChainUnaryInterceptor(interceptUnary),
			grpc.WithChainStreamInterceptor(interceptStream),
			grpc.WithTransportCredentials(creds),
			// No proxy: kubelet's environment may name one, but etcd is never behind it.
			grpc.WithNoProxy(),
			grpc.WithDisableServiceConfig(), // no balancing over one address
			// Bounds TCP, TLS and the server's first frame together (grpc's default: 20 s), and retries a member that
			// is down twice a second (grpc's default: up to 120 s), so that a restart of etcd costs little. call spaces
			// out the requests themselves.
			grpc.WithConnectParams(grpc.ConnectParams{
				MinConnectTimeout: 5 * time.Second,
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			}),
			grpc.WithUserAgent("calico"),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("etcd endpoint %s: %w", m.url, err)
	}
	m.client = client
	return client, nil
}

// connect returns the member's client. If there are other members, it waits only briefly for the connection.
func (m *member) connect(ctx context.Context, others bool) (*clientv3.Client, error) {
	client, err := m.open()
	if err != nil || !others {
		return client, err
	}
	wait, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	conn := client.ActiveConnection()
	conn.Connect()
	for {
		s := conn.GetState()
		switch s {
		case connectivity.Ready, connectivity.TransientFailure, connectivity.Shutdown:
			return client, nil
		}
		if !conn.WaitForStateChange(wait, s) {
			return nil, fmt.Errorf("not connected: %w", context.DeadlineExceeded)
		}
	}
}

func (m *member) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.client == nil {
		return nil
	}
	err := m.client.Close()
	m.client = nil
	return err
}

// trace is the outcome of one request as reported by grpc; etcd's client passes on less.
type trace struct {
	err  error
	peer net.Addr // nil if the request was not sent
}

type traceKey struct{}

// interceptUnary makes a request fail, with the reason, as soon as its connection does. etcd's client would wait for
// another connection and lose the reason.
func interceptUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var p peer.Peer
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false), grpc.Peer(&p))...)
	if t, ok := ctx.Value(traceKey{}).(*trace); ok {
		t.err, t.peer = err, p.Addr
	}
	return err
}

// interceptStream makes a stream fail as soon as its connection does. etcd's client would reopen it at the same member
// forever.
func interceptStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, append(opts, grpc.WaitForReady(false))...)
	if err != nil {
		return nil, finalError{err}
	}
	return finalStream{s}, nil
}

type finalStream struct{ grpc.ClientStream }

func (s finalStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil && err != io.EOF {
		return finalError{err}
	}
	return err
}

// finalError is an error of a stream that keeps etcd's client from retrying.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func (e finalError) GRPCStatus() *status.Status {
	return status.New(codes.Aborted, status.Convert(e.error).Message())
}
