// SPDX-License-Identifier: Apache-2.0

// Package store reads, writes and watches the objects of the data model in etcd. It is the only package that talks to
// etcd.
//
// It uses etcd's own client with one connection per member, and one member at a time. A CNI plugin has milliseconds and
// a deadline. So it pays for one TLS handshake; every request ends by its context's deadline, with each member's reason
// for not answering; and a write is never sent twice. Opening a client does not connect; the first request connects to
// one member, or to another if that fails.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Config says where etcd is and which credentials to use. Zero fields have defaults. At most one of Endpoints and
// DiscoverySRV may be set; if neither is, etcd is on this host: see SetDefaults.
type Config struct {
	// Endpoints are URLs (http, https, unix, unixs) or host:port, which means https if there is a TLS file.
	Endpoints []string
	// DiscoverySRV is a domain with records _etcd-client-ssl._tcp or _etcd-client._tcp.
	DiscoverySRV string

	// CAFile, instead of the system's roots, verifies etcd; CertFile and KeyFile are this client's own. All are PEM.
	CAFile, CertFile, KeyFile string
	// Username authenticates with the password in PasswordFile, which is trimmed and reread at each authentication.
	Username, PasswordFile string
	// TokenDir, if set, is where a short-lived process leaves its user's token for the next one. It is created if
	// missing; its parent must exist, and no other user may write there.
	TokenDir string

	// RefusedTimeout is how long a request is retried while every member refuses the connection because nothing listens
	// there. 0 means until the context's deadline, or 20 s without one.
	RefusedTimeout time.Duration
	// Logger, if set, gets the problems that Watch and leases recover from by themselves; returned errors are not
	// logged.
	Logger *slog.Logger
}

// defaultTimeout bounds a request whose context has no deadline.
const defaultTimeout = 20 * time.Second

// lookupSRV is the signature of net.Resolver.LookupSRV.
type lookupSRV func(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)

// Client is a connection to one etcd cluster, safe for concurrent use.
type Client struct {
	cfg    Config
	lookup lookupSRV
	trial  time.Duration // trialPatience
	tls    *tlsFiles     // nil if there are no TLS files
	log    *slog.Logger

	done chan struct{}  // closed by Close
	work sync.WaitGroup // of leases

	mu       sync.Mutex
	members  []*member
	current  int
	stale    bool // discovered members don't answer: query DNS again
	token    token
	authOff  bool   // the server said that authentication is off
	rejected string // the last token that etcd rejected
	closed   bool

	roundTrips, bytesRead, commits, conflicts atomic.Int64
	interrupted                               atomic.Pointer[interruption] // nil if no watch is interrupted
	watches                                   sync.Map                     // the running *watch
	addrs                                     sync.Map                     // netip.Addr: current and former addresses of members
}

// Open prepares a client. It does not connect: the first request finds out whether etcd is there. Unreadable files and
// invalid endpoints are errors.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open etcd client: %w", err)
	}
	cfg.SetDefaults()
	c := &Client{cfg: cfg, lookup: net.DefaultResolver.LookupSRV, trial: trialPatience, log: cfg.Logger, done: make(chan struct{})}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(cfg.Endpoints) > 0 && cfg.DiscoverySRV != "":
		return nil, fmt.Errorf("both etcd endpoints (%s) and DNS discovery (%s) are set: keep one of them",
			cfg.Endpoints[0], cfg.DiscoverySRV)
	case cfg.Username == "" && cfg.PasswordFile != "":
		return nil, fmt.Errorf("an etcd password file (%s) is set but no user name: set both or neither", cfg.PasswordFile)
	case cfg.Username != "" && cfg.PasswordFile == "":
		return nil, fmt.Errorf("the etcd user name %s is set but no password file: set both or neither", cfg.Username)
	}
	if cfg.Username != "" {
		if _, err := readPassword(cfg.PasswordFile); err != nil {
			return nil, err
		}
	}
	files, err := loadTLS(cfg.CAFile, cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	c.tls = files
	for _, e := range cfg.Endpoints {
		m, err := parseEndpoint(e, files)
		if err != nil {
			return nil, err
		}
		c.use(m)
		c.members = append(c.members, m)
	}
	if n := len(c.members); n > 1 {
		c.current = rand.IntN(n) // each client connects to one member: spread them
	}
	return c, nil
}

// use prepares a member for requests.
func (c *Client) use(m *member) {
	if a, err := netip.ParseAddr(m.host); err == nil {
		c.addrs.Store(a.Unmap().WithZone(""), struct{}{})
	}
}

// Addrs returns the known addresses of etcd's members: those in endpoints, and those of connections.
func (c *Client) Addrs() []netip.Addr {
	var out []netip.Addr
	for a := range c.addrs.Range {
		out = append(out, a.(netip.Addr))
	}
	return out
}

// Names returns the host names of etcd's members, as far as endpoints or DNS records contain names.
func (c *Client) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, m := range c.members {
		if _, err := netip.ParseAddr(m.host); err != nil && m.host != "" {
			out = append(out, m.host)
		}
	}
	return out
}

// Close ends the connections: running watches and requests fail, and leases that were not closed are left to expire.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.done)
	members := c.members
	c.mu.Unlock()
	c.work.Wait()
	var errs []error
	for _, m := range members {
		errs = append(errs, m.close())
	}
	return errors.Join(errs...)
}

// Counters are totals since Open.
type Counters struct {
	// RoundTrips counts requests to etcd, including those of leases and authentication, those with a token that etcd
	// rejected, and those that got no connection; but not the streams of watches.
	RoundTrips int64
	// BytesRead counts the bytes of keys and values received, including those of watches.
	BytesRead int64
	// Commits counts commits that etcd applied, Conflicts those that it refused because a compare failed.
	Commits, Conflicts int64
}

// Counters returns the totals so far.
func (c *Client) Counters() Counters {
	return Counters{
		RoundTrips: c.roundTrips.Load(),
		BytesRead:  c.bytesRead.Load(),
		Commits:    c.commits.Load(),
		Conflicts:  c.conflicts.Load(),
	}
}
