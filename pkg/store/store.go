// SPDX-License-Identifier: Apache-2.0

// Package store reads, writes and watches the objects of the data model in
// etcd. It is the only package that talks to etcd.
//
// It speaks etcd's gRPC API by messages of its own (package wire), without the retry
// loops of its client: a CNI plugin has milliseconds and a deadline, so every
// request here ends by its context's deadline, with the reason why etcd did not
// answer, and a write is never sent twice. Opening a client connects nothing;
// the first request connects to one member, another where that one fails.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Config says where etcd is and who asks. The zero value of a field is its
// default; Endpoints or DiscoverySRV is required, and not both.
type Config struct {
	// Endpoints are URLs (http, https, unix, unixs) or host:port, which is
	// https where a TLS file is given.
	Endpoints []string
	// DiscoverySRV is a domain with the records _etcd-client-ssl._tcp or
	// _etcd-client._tcp.
	DiscoverySRV string

	// CAFile verifies etcd, instead of the system's roots; CertFile and KeyFile
	// are this client's own. PEM.
	CAFile, CertFile, KeyFile string
	// SessionDir, "" = none, is where a process that ends soon leaves its TLS sessions and its
	// user's token for the next. It is made; its parent must be there, and nobody else's to write to.
	SessionDir string
	// Username and the password in PasswordFile, which is trimmed and read
	// again at each authentication. A token of SessionDir's is used where the file is as it was.
	Username, PasswordFile string

	// DialTimeout is how long a request tries to reach etcd. 0: until its
	// context's deadline, or 20 s where it has none.
	DialTimeout time.Duration
	// RefusedTimeout is how long a request goes on where every member refuses
	// the connection: nothing listens there. 0: as DialTimeout.
	RefusedTimeout time.Duration
	// Logger, nil = none, is told of what Watch and leases go through by
	// themselves; errors that are returned are not logged.
	Logger *slog.Logger
}

// defaultTimeout bounds a request whose context has no deadline.
const defaultTimeout = 20 * time.Second

// lookupSRV is net.Resolver's.
type lookupSRV func(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)

// Client is a connection to one etcd cluster, safe for concurrent use.
type Client struct {
	srv          string
	lookup       lookupSRV
	tls          *tlsFiles // nil: no TLS file given
	username     string
	passwordFile string
	sessionDir   string
	tokens       *tokenFile // nil: none is left for other processes
	dialTimeout  time.Duration
	refused      time.Duration
	trial        time.Duration // bounds a request with a token that an earlier process left
	oldEtcd      bool          // tests: take every etcd for one of before 3.4.25
	log          *slog.Logger

	done chan struct{}  // closed when Close begins
	work sync.WaitGroup // keepalives

	mu      sync.Mutex
	members []*member
	current int
	stale   bool // discovered members don't answer: ask DNS again
	token   token
	noAuth  bool   // the server said that authentication is off
	useless string // the token that etcd didn't know last
	trials  int    // of tokens that earlier processes left
	closing bool   // no new leases
	closed  bool   // no new requests

	roundTrips, bytesRead, commits, conflicts atomic.Int64
	interrupted                               atomic.Pointer[interruption] // nil: no watch is
	watches                                   sync.Map                     // *watch, those under way
	addrs                                     sync.Map                     // netip.Addr, those that members have or had
}

// Open prepares a client. It connects nothing: that etcd is away is found by
// the first request. Files that can't be read and endpoints that make no sense
// are errors here.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open etcd client: %w", err)
	}
	c := &Client{
		srv:          cfg.DiscoverySRV,
		lookup:       net.DefaultResolver.LookupSRV,
		username:     cfg.Username,
		passwordFile: cfg.PasswordFile,
		sessionDir:   cfg.SessionDir,
		dialTimeout:  cfg.DialTimeout,
		refused:      cfg.RefusedTimeout,
		trial:        trialPatience,
		log:          cfg.Logger,
		done:         make(chan struct{}),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(cfg.Endpoints) > 0 && cfg.DiscoverySRV != "":
		return nil, fmt.Errorf("both etcd endpoints (%s) and DNS discovery (%s) are set: keep one of them",
			cfg.Endpoints[0], cfg.DiscoverySRV)
	case len(cfg.Endpoints) == 0 && cfg.DiscoverySRV == "":
		return nil, errors.New("no etcd endpoint is set: give one or more URLs such as https://10.0.0.1:2379, or a domain for DNS discovery")
	case cfg.Username == "" && cfg.PasswordFile != "":
		return nil, fmt.Errorf("an etcd password file (%s) is set but no user name: set both or neither", cfg.PasswordFile)
	case cfg.Username != "" && cfg.PasswordFile == "":
		return nil, fmt.Errorf("the etcd user name %s is set but no password file: set both or neither", cfg.Username)
	}
	if cfg.Username != "" {
		if _, _, err := readPassword(cfg.PasswordFile); err != nil {
			return nil, err
		}
	}
	files, err := loadTLS(cfg.CAFile, cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	c.tls = files
	c.tokens = newTokenFile(cfg, files, c.log)
	for _, e := range cfg.Endpoints {
		m, err := parseEndpoint(e, files)
		if err != nil {
			return nil, err
		}
		c.use(m)
		c.members = append(c.members, m)
	}
	if n := len(c.members); n > 1 {
		// Spread the clients over the members: each connects to one.
		c.current = rand.IntN(n)
	}
	if len(c.members) > 0 && c.members[c.current].session.isKept() {
		return c, nil // made with this very pair, which it hardly needs
	}
	if err := files.checkPair(); err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends every lease that was not closed and the connections. Watches and
// requests under way fail.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil
	}
	c.closing = true
	close(c.done)
	c.mu.Unlock()
	c.work.Wait() // leases are revoked

	c.mu.Lock()
	c.closed = true
	members := c.members
	c.mu.Unlock()
	var errs []error
	for _, m := range members {
		errs = append(errs, m.close())
	}
	return errors.Join(errs...)
}

func (c *Client) isClosing() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Counters are totals since Open.
type Counters struct {
	// RoundTrips are requests to etcd, those of leases and of authentication,
	// those with a token that etcd has forgotten and those that found no connection included; a watch's stream is not one. Those
	// that ReadWants has under way at the same time are one.
	RoundTrips int64
	// BytesRead are the keys and values that etcd sent, watches included.
	BytesRead int64
	// Commits are those that etcd applied, Conflicts those it refused because
	// a compare failed.
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
