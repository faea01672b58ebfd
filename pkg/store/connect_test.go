// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

func ready(ctx context.Context, s *Client) error {
	_, err := s.Read(ctx, model.KeyRange(model.ReadyKey{}))
	return err
}

// wantError checks the sentinel and that the text has each of the parts.
func wantError(t *testing.T, err, is error, parts ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Fatalf("got %v, want %v", err, is)
	}
	for _, p := range parts {
		if !strings.Contains(fmt.Sprint(err), p) {
			t.Errorf("%v does not say %q", err, p)
		}
	}
}

// fails calls fn with a deadline, and with later ones, until it fails as expected: the first may pass before fn has
// learned the reason.
func fails(t *testing.T, fn func(context.Context) error, is error, parts ...string) error {
	t.Helper()
	for d := eventually.Limit / 512; ; d *= 2 {
		ctx := within(t, d)
		err := fn(ctx)
		known := errors.Is(err, is)
		for _, p := range parts {
			known = known && strings.Contains(err.Error(), p)
		}
		if known || d >= eventually.Limit {
			wantError(t, err, is, parts...)
			return err
		}
		<-ctx.Done()
	}
}

// ends returns how a read ends that shouldn't wait for its deadline.
func ends(t *testing.T, s *Client) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- ready(within(t, time.Hour), s) }()
	return eventually.Receive(t, "an end before the deadline", done)
}

// during calls fn once a request has been tried in vain, and returns how the request ends.
func during(t *testing.T, s *Client, request func() error, fn func()) error {
	t.Helper()
	before := s.Counters().RoundTrips
	done := make(chan error, 1)
	go func() { done <- request() }()
	eventually.True(t, "it was tried in vain", func() bool { return s.Counters().RoundTrips > before+5 })
	fn()
	return eventually.Receive(t, "its end", done)
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	s := open(t, Config{Endpoints: []string{addr, "http://127.0.0.1:1"}})
	err := fails(t, func(ctx context.Context) error { return ready(ctx, s) }, ErrUnavailable, "read /calico/v1/Ready: ", "http://"+addr, "http://127.0.0.1:1", "connection refused", "check that etcd runs")
	if errors.Is(err, ErrAuth) || errors.Is(err, ErrUnknownOutcome) {
		t.Error(err)
	}
	err = fails(t, func(ctx context.Context) error {
		_, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", "1")}})
		return err
	}, ErrUnavailable, "connection refused")
	if errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("nothing was sent: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	err = during(t, s, func() error { return ready(ctx, s) }, cancel)
	wantError(t, err, context.Canceled)
	if errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// TestRefused: if nothing listens at any member's address, a request ends sooner than if one may still answer.
func TestRefused(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	nowhere := []string{addr, "http://127.0.0.1:1", "unix://" + t.TempDir() + "/etcd"}
	s := open(t, Config{Endpoints: nowhere, RefusedTimeout: time.Millisecond})
	wantError(t, ends(t, s), ErrUnavailable, "connection refused", "no such file or directory")
	// It comes while the request waits.
	c := startCluster(t, clusterOptions{})
	s = open(t, Config{Endpoints: nowhere, RefusedTimeout: time.Hour})
	if err := during(t, s, func() error { return ready(within(t, eventually.Limit), s) }, func() {
		startProxyAt(t, addr, c.members[0].clientAddr).set(forward)
	}); err != nil {
		t.Fatal(err)
	}
	// One that hangs isn't gone.
	c.members[0].proxy.set(stall)
	s = c.open(func(cfg *Config) {
		cfg.Endpoints, cfg.RefusedTimeout = append(cfg.Endpoints, nowhere[1:]...), time.Millisecond
	})
	if err := during(t, s, func() error { return ready(within(t, eventually.Limit), s) }, func() { c.members[0].proxy.set(forward) }); err != nil {
		t.Error(err)
	}
}

func TestWaitsForEtcd(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	c.members[0].proxy.set(refuse)
	s := c.open()
	if err := during(t, s, func() error { return ready(within(t, eventually.Limit), s) }, func() { c.members[0].proxy.set(forward) }); err != nil {
		t.Fatal(err)
	}
}

func TestFailover(t *testing.T) {
	long.Test(t)
	t.Parallel()
	c := startCluster(t, clusterOptions{size: 3})
	// Whichever member a client begins with, one that is down, cut off or silent does not stop it.
	for _, mode := range []proxyMode{refuse, stall} {
		c.members[0].proxy.set(mode)
		for first := range 3 {
			s := c.open()
			s.current = first
			if err := ready(within(t, eventually.Limit), s); err != nil {
				t.Fatal(err)
			}
			commit(t, s, model.Change{Puts: []model.Put{put("A", "1")}})
		}
		c.members[0].proxy.set(forward)
	}
	// A member without a quorum says so, and is left for another... here for itself, once the others are back.
	s := c.open(func(cfg *Config) { cfg.Endpoints = cfg.Endpoints[:1] })
	if err := ready(within(t, eventually.Limit), s); err != nil {
		t.Fatal(err)
	}
	c.members[1].stop()
	c.members[2].stop()
	eventually.True(t, "no leader", func() bool { return c.leader() == nil })
	fails(t, func(ctx context.Context) error { return ready(ctx, s) }, ErrUnavailable, "no leader")
	err := fails(t, func(ctx context.Context) error {
		_, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", "2")}})
		return err
	}, ErrUnavailable, "no leader")
	if errors.Is(err, ErrUnknownOutcome) {
		t.Error(err)
	}
	started := make(chan error)
	go func() { started <- c.members[1].start() }()
	if err := ready(within(t, eventually.Limit), s); err != nil {
		t.Error(err)
	}
	if err := <-started; err != nil {
		t.Error(err)
	}
}

func TestSlow(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	s := c.open()
	if err := ready(within(t, eventually.Limit), s); err != nil {
		t.Fatal(err)
	}
	c.members[0].proxy.set(stall)
	commit := func(s *Client) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", "1")}})
			return err
		}
	}
	err := fails(t, func(ctx context.Context) error { return ready(ctx, s) }, ErrUnavailable, s.members[0].url, "no answer")
	wantError(t, err, context.DeadlineExceeded)
	err = fails(t, commit(s), ErrUnknownOutcome, "no answer")
	wantError(t, err, ErrUnavailable)
	err = fails(t, func(deadline context.Context) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer context.AfterFunc(deadline, cancel)()
		return commit(s)(ctx)
	}, ErrUnknownOutcome)
	wantError(t, err, context.Canceled)
	// A new connection hangs too: nothing is sent.
	err = fails(t, commit(c.open()), ErrUnavailable, "no answer")
	if errors.Is(err, ErrUnknownOutcome) {
		t.Error(err)
	}
}

// TestHungMember: a member withholds its answer to a commit. The commit may not be repeated, but it ends before its
// deadline, and the next request goes to another member.
func TestHungMember(t *testing.T) {
	long.Test(t)
	t.Parallel()
	c := startCluster(t, clusterOptions{size: 3})
	s := c.open()
	ctx := t.Context()
	// While the first connects, for longer than patience where the machine is busy, another answers.
	eventually.True(t, "the first answers", func() bool {
		s.current = 0
		if err := ready(ctx, s); err != nil {
			t.Fatal(err)
		}
		return s.current == 0
	})
	// A call that its caller has called off says nothing against the member.
	called, cancel := context.WithCancel(ctx)
	wantError(t, s.call(called, request{send: func(ctx context.Context, client *clientv3.Client) error {
		cancel()
		_, err := client.Get(ctx, "x")
		return err
	}}), context.Canceled)
	if s.current != 0 {
		t.Error("a member was left because of a call that was called off")
	}
	c.members[0].proxy.set(stall)
	_, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", "1")}})
	wantError(t, err, ErrUnknownOutcome, s.members[0].url)
	if s.current == 0 {
		t.Error("the next request goes to the same member")
	}
	if err := ready(ctx, s); err != nil {
		t.Error(err)
	}
}

func TestBrokenCommit(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s := c.open()
	// It is sent before the connection breaks: sooner or later.
	err := fails(t, func(sent context.Context) error {
		c.members[0].proxy.set(forward)
		if err := ready(within(t, eventually.Limit), s); err != nil {
			t.Fatal(err)
		}
		c.members[0].proxy.set(stall)
		defer context.AfterFunc(sent, func() { c.members[0].proxy.set(refuse) })()
		_, err := s.Commit(within(t, eventually.Limit/10), model.Change{Puts: []model.Put{put("A", "1")}})
		return err
	}, ErrUnknownOutcome)
	wantError(t, err, ErrUnavailable)
}

func TestQuota(t *testing.T) {
	c := startCluster(t, clusterOptions{quota: 64 << 10})
	s := c.open()
	ctx := within(t, eventually.Limit)
	big := strings.Repeat("x", 16<<10)
	eventually.True(t, "the quota is used up", func() bool {
		_, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", big)}})
		if err == nil {
			return false
		}
		wantError(t, err, ErrReadOnly, "database space exceeded", "alarm disarm")
		return true
	})
	if err := ready(ctx, s); err != nil {
		t.Errorf("reading: %v", err)
	}
}

// TestLimits has an etcd that is set to take less than etcd does by itself.
func TestLimits(t *testing.T) {
	c := startCluster(t, clusterOptions{narrow: true})
	s := c.open()
	ctx := within(t, eventually.Limit)
	_, err := s.Read(ctx, model.PrefixRange(configs), model.PrefixRange(hosts), model.KeyRange(model.ReadyKey{}))
	wantError(t, err, ErrLimit, "read "+strings.TrimSuffix(configs, "/")+" and 2 more: ", c.members[0].proxy.addr, "too many operations", "--max-txn-ops=128 or more")
	for _, size := range []int{4 << 10, 1 << 20} {
		_, err = s.Commit(ctx, model.Change{Puts: []model.Put{put("A", strings.Repeat("x", size))}})
		wantError(t, err, ErrLimit, "write /calico/v1/config/A: ", "larg", "--max-request-bytes")
		if errors.Is(err, ErrUnknownOutcome) {
			t.Error(err)
		}
	}
	if _, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", "x")}}); err != nil {
		t.Error(err)
	}
}

// TestPermanentAnswers has one member that answers and won't serve, first that of two which is asked first.
func TestPermanentAnswers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		wrong func(t *testing.T, c *cluster) *server
		kind  error
		text  string
	}{
		{"a learner", func(_ *testing.T, c *cluster) *server {
			return c.join(c.newServer(), clientv3.Cluster.MemberAddAsLearner)
		}, ErrUnavailable, "rpc not supported for learner: promote this member"},
		{"a server of something else", func(t *testing.T, c *cluster) *server {
			m := c.newServer()
			l, err := net.Listen("tcp", m.clientAddr)
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			go s.Serve(l)
			t.Cleanup(s.Stop)
			m.proxy.set(forward)
			return m
		}, ErrUnavailable, "unknown service etcdserverpb.KV"},
		{"one with narrower limits", func(_ *testing.T, c *cluster) *server {
			c.opts.narrow = true
			return c.join(c.newServer(), clientv3.Cluster.MemberAdd)
		}, ErrLimit, "too many operations"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := startCluster(t, clusterOptions{})
			wrong := tc.wrong(t, c)
			alone := c.open(func(cfg *Config) { cfg.Endpoints = []string{wrong.proxy.addr} })
			read := func(s *Client) error {
				_, err := s.Read(within(t, eventually.Limit), model.PrefixRange(configs), model.PrefixRange(hosts), model.KeyRange(model.ReadyKey{}))
				return err
			}
			wantError(t, read(alone), tc.kind, wrong.proxy.addr, tc.text)

			both := c.open()
			both.current = 1
			if err := read(both); err != nil {
				t.Error(err)
			}
			both.current = 1
			change := model.Change{Puts: []model.Put{put("A", "x"), put("B", "x"), put("C", "x")}}
			if _, err := both.Commit(within(t, eventually.Limit), change); err != nil {
				t.Error(err)
			}
			both.current = 1
			ctx, cancel := context.WithCancel(within(t, eventually.Limit))
			defer cancel()
			err := both.Watch(ctx, []string{model.Root}, func(u model.Update) error {
				cancel()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestClosed(t *testing.T) {
	s, err := Open(t.Context(), Config{Endpoints: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := ready(t.Context(), s); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	if _, err := s.Lease(t.Context(), time.Second); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	if err := s.Watch(t.Context(), []string{"/calico/"}, nil); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, Config{Endpoints: []string{"x"}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	ca := newAuthority(t)
	caFile := write("ca.pem", string(ca.pem))
	cert, key := ca.issue(t, "client")
	certFile, keyFile := write("cert.pem", string(cert)), write("key.pem", string(key))
	_, otherKey := ca.issue(t, "client")
	otherKeyFile := write("other.pem", string(otherKey))
	empty, junk, missing := write("empty", " \n"), write("junk", "junk"), filepath.Join(dir, "missing")
	one := []string{"127.0.0.1:2379"}

	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"both", Config{Endpoints: one, DiscoverySRV: "example.org"}, "both etcd endpoints"},
		{"scheme", Config{Endpoints: []string{"ftp://127.0.0.1"}}, `etcd endpoint "ftp://127.0.0.1": unknown scheme ftp`},
		{"empty endpoint", Config{Endpoints: []string{""}}, "no host"},
		{"port", Config{Endpoints: []string{"http://127.0.0.1:x"}}, "invalid port"},
		{"path", Config{Endpoints: []string{"http://127.0.0.1/v2/keys"}}, "more than a host and a port"},
		{"port 0", Config{Endpoints: []string{"http://127.0.0.1:0"}}, "port 0: want 1 to 65535"},
		{"port too large", Config{Endpoints: []string{"http://127.0.0.1:99999"}}, "port 99999: want 1 to 65535"},
		{"user", Config{Endpoints: []string{"http://u:secret@127.0.0.1:2379"}}, `etcd endpoint "http://…@127.0.0.1:2379": it has more`},
		{"no socket", Config{Endpoints: []string{"unix://"}}, "no path"},
		{"plaintext with TLS files", Config{Endpoints: []string{"http://127.0.0.1"}, CAFile: caFile}, "it is plaintext"},
		{"CA missing", Config{Endpoints: one, CAFile: missing}, missing},
		{"CA junk", Config{Endpoints: one, CAFile: junk}, junk + ": no certificate in it"},
		{"certificate without key", Config{Endpoints: one, CertFile: certFile}, "no key file: set both"},
		{"key without certificate", Config{Endpoints: one, KeyFile: keyFile}, "no certificate file: set both"},
		{"certificate missing", Config{Endpoints: one, CertFile: missing, KeyFile: keyFile}, missing},
		{"key missing", Config{Endpoints: one, CertFile: certFile, KeyFile: missing}, missing},
		{"key of another", Config{Endpoints: one, CertFile: certFile, KeyFile: otherKeyFile}, "belong together"},
		{"user without password", Config{Endpoints: one, Username: "u"}, "no password file"},
		{"password without user", Config{Endpoints: one, PasswordFile: junk}, "no user name"},
		{"password missing", Config{Endpoints: one, Username: "u", PasswordFile: missing}, missing},
		{"password empty", Config{Endpoints: one, Username: "u", PasswordFile: empty}, empty + " is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(t.Context(), tt.cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestParseEndpoint(t *testing.T) {
	files := &tlsFiles{}
	tests := []struct {
		in     string
		files  *tlsFiles
		url    string
		secure bool
	}{
		{"10.0.0.1:2379", nil, "http://10.0.0.1:2379", false},
		{"10.0.0.1", nil, "http://10.0.0.1:2379", false},
		{" https://etcd.example/ ", nil, "https://etcd.example:2379", true},
		{"etcd:4001", files, "https://etcd:4001", true},
		{"http://[fd00::1]:2379", nil, "http://[fd00::1]:2379", false},
		{"unix:///run/etcd.sock", nil, "unix:///run/etcd.sock", false},
		{"unixs:///run/etcd.sock", files, "unixs:///run/etcd.sock", true},
	}
	for _, tt := range tests {
		m, err := parseEndpoint(tt.in, tt.files)
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		if m.url != tt.url || m.secure != tt.secure {
			t.Errorf("%q: %s %v", tt.in, m.url, m.secure)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"10.0.0.1:2379", "https://etcd.example/", "http://[fd00::1%25eth0]:1", "unix:///run/e.sock", "://", "http://u@h", "h:p:q"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, secure bool) {
		var files *tlsFiles
		if secure {
			files = &tlsFiles{}
		}
		m, err := parseEndpoint(s, files)
		if err != nil {
			return
		}
		again, err := parseEndpoint(m.url, files)
		if err != nil || again.url != m.url || again.secure != m.secure {
			t.Errorf("%q is %q, which is %+v, %v", s, m.url, again, err)
		}
	})
}
