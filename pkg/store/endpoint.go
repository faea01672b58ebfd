// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// member is one endpoint and, once it has been used, the connection to it.
// Each member has a connection of its own, rather than one connection that
// balances over all: the plugin then pays for one TLS handshake, not three, and
// the reason why a member does not answer is known for each.
type member struct {
	url            string // as messages name it
	target         string // as grpc names it
	host           string // name or address, "" of a socket
	tls            *tlsFiles
	secure         bool
	session        *session       // nil: none is kept
	connectTimeout time.Duration  // 0 = default
	note           func(net.Addr) // is told where each connection leads; nil = nobody is

	mu     sync.Mutex
	conn   *grpc.ClientConn
	closed bool
}

// parseEndpoint reads one endpoint: scheme://host:port, host:port, or the path
// of a socket.
func parseEndpoint(s string, files *tlsFiles) (*member, error) {
	s = strings.TrimSpace(s)
	bad := func(why string) (*member, error) {
		return nil, fmt.Errorf("etcd endpoint %q: %s: want a URL such as https://10.0.0.1:2379", withoutUser(s), why)
	}
	scheme, rest, ok := strings.Cut(s, "://")
	switch scheme = strings.ToLower(scheme); {
	case !ok && files != nil:
		scheme, rest = "https", s
	case !ok:
		scheme, rest = "http", s
	}
	m := &member{tls: files}
	switch scheme {
	case "http", "unix":
		if files != nil {
			return bad("it is plaintext, but TLS files are given; use the scheme " + scheme + "s or drop the files")
		}
	case "https", "unixs":
		m.secure = true
	default:
		return bad("unknown scheme " + scheme)
	}
	if scheme == "unix" || scheme == "unixs" {
		if strings.Trim(rest, "/") == "" {
			return bad("no path")
		}
		m.url, m.target = scheme+"://"+rest, "unix:"+rest
		return m, nil
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return bad(err.Error())
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.User != nil || u.Fragment != "" {
		return bad("it has more than a host and a port")
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return bad("no host")
	}
	if strings.IndexFunc(host, notInHost) >= 0 {
		return bad("no host name or address")
	}
	if port == "" {
		port = "2379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return bad("port " + port + ": want 1 to 65535")
	}
	addr := net.JoinHostPort(host, port)
	m.url, m.target, m.host = (&url.URL{Scheme: scheme, Host: addr}).String(), "passthrough:///"+addr, host
	return m, nil
}

// withoutUser hides the user and the password of a URL: they belong elsewhere,
// and not into a log.
func withoutUser(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	i := strings.LastIndexByte(rest, '@')
	if !ok || i < 0 {
		return s
	}
	return scheme + "://…" + rest[i:]
}

// notInHost finds what is in no host name, address or zone.
func notInHost(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-:%", r)
}

// dial makes the connection, without connecting.
func (m *member) dial() (*grpc.ClientConn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	if m.conn != nil {
		return m.conn, nil
	}
	creds := insecure.NewCredentials()
	if m.secure {
		creds = newHandshaker(m.tls, m.session)
	}
	if m.note != nil {
		creds = noting{creds, m.note}
	}
	timeout := m.connectTimeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	conn, err := grpc.NewClient(m.target,
		grpc.WithTransportCredentials(creds),
		// No TXT look-up for a service configuration, and no proxy: kubelet's
		// environment may name one, etcd is never behind it.
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(),
		// Bounds TCP, TLS and the server's first frame together (grpc: 20 s), and
		// looks for a member that is away twice a second (grpc: up to 120 s), so
		// that a restart of etcd costs little. call spaces the requests themselves.
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: timeout,
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
		}),
		// Finds a host that vanished without closing a watch's connection. 10 s is
		// the least grpc allows; etcd tolerates 5 s.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		// A large range is larger than grpc's 4 MiB. etcd bounds what is written.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		// Retries are call's, which knows what is safe to repeat.
		grpc.WithDisableRetry(),
		grpc.WithUserAgent("calico"),
	)
	if err != nil {
		return nil, fmt.Errorf("etcd endpoint %s: %w", m.url, err)
	}
	m.conn = conn
	return conn, nil
}

func (m *member) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.conn == nil {
		return nil
	}
	err := m.conn.Close()
	m.conn = nil
	return err
}
