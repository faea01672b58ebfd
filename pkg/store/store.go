// SPDX-License-Identifier: Apache-2.0

// Package store reads, writes and watches the objects of the data model in etcd. It is the only package that talks to
// etcd.
//
// It uses etcd's own client with one connection per member, to one member at a time: a CNI plugin has milliseconds and a
// deadline, so it pays for one TLS handshake, every request ends by its context's deadline with each member's reason for
// not answering, and a write is never sent twice. Opening a client connects nothing; the first request connects to one
// member, and to another where that one fails.
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

// Config says where etcd is and with which credentials to connect. The zero value of a field is its default, and without Endpoints
// and DiscoverySRV, of which one may be set, etcd is on this host: see SetDefaults.
type Config struct {
	// Endpoints are URLs (http, https, unix, unixs) or host:port, which is https where a TLS file is given.
	Endpoints []string
	// DiscoverySRV is a domain with the records _etcd-client-ssl._tcp or _etcd-client._tcp.
	DiscoverySRV string

	// CAFile verifies etcd, instead of the system's roots; CertFile and KeyFile are this client's own. PEM.
	CAFile, CertFile, KeyFile string
	// Username and the password in PasswordFile, which is trimmed and read again at each authentication.
	Username, PasswordFile string
	// TokenDir, "" = none, is where a process that ends soon leaves its user's token for the next. It is made; its parent
	// must exist, and nobody else may write there.
	TokenDir string

	// RefusedTimeout is how long a request goes on where every member refuses the connection: nothing listens there.
	// 0: until the context's deadline, or 20 s where it has none.
	RefusedTimeout time.Duration
	// Logger, nil = none, gets what Watch and leases recover from by themselves; errors that are returned are not logged.
	Logger *slog.Logger
}

// defaultTimeout bounds a request whose context has no deadline.
const defaultTimeout = 20 * time.Second

// lookupSRV is net.Resolver's.
type lookupSRV func(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)

// Client is a connection to one etcd cluster, safe for concurrent use.
type Client struct {
	cfg    Config
	lookup lookupSRV
	trial  time.Duration // trialPatience
	tls    *tlsFiles     // nil: no TLS file given
	log    *slog.Logger

	done chan struct{}  // closed by Close
	work sync.WaitGroup // of leases

	mu       sync.Mutex
	members  []*member
	current  int
	stale    bool // discovered members don't answer: ask DNS again
	token    token
	authOff  bool   // the server said that authentication is off
	rejected string // the last token that etcd didn't know
	closed   bool

	roundTrips, bytesRead, commits, conflicts atomic.Int64
	interrupted                               atomic.Pointer[interruption] // nil: no watch is
	watches                                   sync.Map                     // *watch, those under way
	addrs                                     sync.Map                     // netip.Addr, those that members have or had
}

// Open prepares a client. It connects nothing: the first request finds out whether etcd is there. Files that can't be read
// and endpoints that make no sense are errors here.
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
		c.current = rand.IntN(n) // spreads the clients over the members: each connects to one
	}
	return c, nil
}

// use prepares a member for requests.
func (c *Client) use(m *member) {
	if a, err := netip.ParseAddr(m.host); err == nil {
		c.addrs.Store(a.Unmap().WithZone(""), struct{}{})
	}
}

// Addrs returns the known addresses of etcd's members: those that endpoints name, and those that connections led to.
func (c *Client) Addrs() []netip.Addr {
	var out []netip.Addr
	for a := range c.addrs.Range {
		out = append(out, a.(netip.Addr))
	}
	return out
}

// Names returns the host names of etcd's members, where endpoints or records of DNS name them so.
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

// Close ends the connections: watches and requests under way fail, leases that were not closed are left.
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
	// RoundTrips are requests to etcd, including those of leases and of authentication, those with a token that etcd no
	// longer knows and those that found no connection; a watch's stream is not one.
	RoundTrips int64
	// BytesRead are the keys and values that etcd sent, watches included.
	BytesRead int64
	// Commits are those that etcd applied, Conflicts those it refused because a compare failed.
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
