// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/calico-go/calico/pkg/model"
)

// call is what one run of a plugin does: it opens, reads and ends. It tells whether its last
// connection resumed a session.
func call(t testing.TB, cfg Config) (resumed bool, err error) {
	t.Helper()
	log := &lockedBuffer{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.DialTimeout = patienceOfTests // for one connection as well: a second one resumes nothing
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	s, err := Open(ctx, cfg)
	if err != nil {
		return false, err
	}
	err = ready(ctx, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	text := log.String()
	return strings.LastIndex(text, "resumed=true") > strings.LastIndex(text, "resumed=false"), err
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// calls makes one after the other, and wants each to resume or not.
func calls(t testing.TB, what string, cfg Config, want ...bool) {
	t.Helper()
	for i, want := range want {
		resumed, err := call(t, cfg)
		if err != nil {
			t.Fatalf("%s: call %d: %v", what, i+1, err)
		}
		if resumed != want {
			t.Fatalf("%s: call %d: resumed %v, want %v", what, i+1, resumed, want)
		}
	}
}

func writeAll(t testing.TB, files map[string][]byte) {
	t.Helper()
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// theSession is the only file in the directory of sessions.
func theSession(t testing.TB, cfg Config) string {
	t.Helper()
	entries, err := os.ReadDir(cfg.SessionDir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%s: %v, %v, want one file", cfg.SessionDir, entries, err)
	}
	return filepath.Join(cfg.SessionDir, entries[0].Name())
}

func sessionConfig(t testing.TB, c *cluster, a *authority) Config {
	t.Helper()
	ca, cert, key := a.files(t, "client")
	return Config{Endpoints: c.endpoints()[:1], CAFile: ca, CertFile: cert, KeyFile: key, SessionDir: filepath.Join(t.TempDir(), "sessions")}
}

func TestSession(t *testing.T) {
	a := newAuthority(t)
	c := startSecure(t, a, 1, true)
	cfg := sessionConfig(t, c, a)
	calls(t, "new", cfg, false, true, true)

	first, err := os.Stat(theSession(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	calls(t, "another process", cfg, true)
	if again, err := os.Stat(theSession(t, cfg)); err != nil || !os.SameFile(first, again) {
		t.Errorf("a call that resumed has written the file: %v", err)
	}

	agent := cfg
	agent.SessionDir = ""
	calls(t, "no directory", agent, false, false)

	path := theSession(t, cfg)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"empty": nil, "torn": good[:len(good)/2], "garbage": []byte("garbage"), "huge": make([]byte, 10<<20),
	} {
		writeAll(t, map[string][]byte{path: data})
		calls(t, name, cfg, false, true)
	}
	// One that looks good, and that etcd finds to be wrong: the secret begins after version, kind,
	// suite and time, and has a length of one byte.
	spoiled := bytes.Clone(good)
	secretAt := sessionTicketAt + int(spoiled[sessionTicketAt-2])<<8 + int(spoiled[sessionTicketAt-1]) + 2 + 1 + 2 + 8 + 1
	spoiled[secretAt] ^= 1
	writeAll(t, map[string][]byte{path: resum(spoiled)})
	if _, err := parseSession(spoiled, [32]byte(good[32:64]), time.Now()); err != nil {
		t.Fatal(err)
	}
	calls(t, "a wrong secret", cfg, false, true)

	if err := os.Chmod(cfg.SessionDir, 0o755); err != nil {
		t.Fatal(err)
	}
	calls(t, "others may enter the directory", cfg, false, false)
	if err := os.Chmod(cfg.SessionDir, 0o700); err != nil {
		t.Fatal(err)
	}

	c.members[0].stop()
	if err := c.members[0].start(); err != nil {
		t.Fatal(err)
	}
	calls(t, "etcd was restarted, and has new keys for tickets", cfg, false, true)

	var wg sync.WaitGroup
	fresh := cfg
	fresh.SessionDir = filepath.Join(t.TempDir(), "sessions")
	for range 20 {
		wg.Go(func() {
			if _, err := call(t, fresh); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	theSession(t, fresh)
	calls(t, "after many at once", fresh, true)
}

// TestSessionHung has etcd accept connections and say nothing: it isn't the session's fault.
func TestSessionHung(t *testing.T) {
	a := newAuthority(t)
	c := startSecure(t, a, 1, true)
	cfg := sessionConfig(t, c, a)
	calls(t, "new", cfg, false, true)
	path := theSession(t, cfg)
	c.members[0].proxy.set(stall)
	impatient := cfg
	impatient.DialTimeout = 100 * time.Millisecond
	fails(t, time.Second, func(ctx context.Context) error { return ready(ctx, open(t, impatient)) }, ErrUnavailable, ": no answer (after ")
	if again := theSession(t, cfg); again != path {
		t.Errorf("%s has become %s", path, again)
	}
	c.members[0].proxy.set(forward)
	calls(t, "etcd answers again", cfg, true)
}

// TestSessionFailed has errors of a handshake that had a session to resume.
func TestSessionFailed(t *testing.T) {
	const file = "name"
	for _, tt := range []struct {
		err   error
		stays bool
	}{
		{context.Canceled, true},
		{context.DeadlineExceeded, true},
		{&net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}, true},
		{&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, false},
		{errors.New("tls: bad record MAC"), false},
	} {
		dir := t.TempDir()
		writeAll(t, map[string][]byte{filepath.Join(dir, file): nil})
		s := &session{file: sessionFile{dir, file, os.Geteuid()}}
		s.offered.Store(true)
		want := resumeText + tt.err.Error()
		if tt.stays {
			want = tt.err.Error()
		}
		if err := s.failed(tt.err); !errors.Is(err, tt.err) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, file)); (err == nil) != tt.stays {
			t.Errorf("%v: the file: %v", tt.err, err)
		}
	}
}

// TestSessionNotLeft has a session that can't be written: that isn't told as of one that can't be read.
func TestSessionNotLeft(t *testing.T) {
	log := &lockedBuffer{}
	s := &session{
		file: sessionFile{filepath.Join(t.TempDir(), "missing", "sessions"), "name", os.Geteuid()},
		log:  slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	s.full.Store(true)
	s.Put("", aSession(t))
	for _, want := range []string{"the TLS session is not left for later calls", "file=" + s.file.path(), "no such file or directory"} {
		if text := log.String(); !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
}

// TestSessionMember has several members: each has a session of its own.
func TestSessionMember(t *testing.T) {
	a := newAuthority(t)
	c := startSecure(t, a, 2, true)
	cfg := sessionConfig(t, c, a)
	calls(t, "the first", cfg, false, true)
	first := theSession(t, cfg)
	data, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	cfg.Endpoints = c.endpoints()[1:]
	calls(t, "the second", cfg, false, true)
	second := theSession(t, cfg)
	if first == second {
		t.Fatal("one file for both")
	}
	writeAll(t, map[string][]byte{second: data})
	calls(t, "the first's, for the second", cfg, false, true)
}

// TestSessionRotation changes the files that a session was made with.
func TestSessionRotation(t *testing.T) {
	a := newAuthority(t)
	c := startSecure(t, a, 1, true)
	cfg := sessionConfig(t, c, a)
	calls(t, "new", cfg, false, true)

	cert, key := a.issue(t, "client")
	writeAll(t, map[string][]byte{cfg.CertFile: cert, cfg.KeyFile: key})
	calls(t, "another certificate", cfg, false, true)

	stranger := newAuthority(t)
	strange, strangeKey := stranger.issue(t, "client")
	writeAll(t, map[string][]byte{cfg.CertFile: strange, cfg.KeyFile: strangeKey})
	_, err := call(t, cfg)
	wantError(t, err, ErrAuth, "tls: ")

	writeAll(t, map[string][]byte{cfg.CertFile: cert, cfg.KeyFile: strangeKey})
	_, err = call(t, cfg)
	if err == nil || !strings.Contains(err.Error(), "belong together") {
		t.Errorf("a certificate with another's key: %v", err)
	}

	writeAll(t, map[string][]byte{cfg.KeyFile: key, cfg.CAFile: stranger.pem})
	_, err = call(t, cfg)
	wantError(t, err, ErrAuth, "certificate signed by unknown authority")

	writeAll(t, map[string][]byte{cfg.CAFile: append(bytes.Clone(stranger.pem), a.pem...)})
	calls(t, "an authority more", cfg, false, true)

	// etcd trusts another authority: it was started again for that, or else it goes on.
	writeAll(t, map[string][]byte{c.opts.tls.TrustedCAFile: stranger.pem})
	c.members[0].stop()
	if err := c.members[0].start(); err != nil {
		t.Fatal(err)
	}
	_, err = call(t, cfg)
	wantError(t, err, ErrAuth, "tls: ")
}

// TestSessionExpired has a certificate end while there is a session, etcd's and then the client's.
func TestSessionExpired(t *testing.T) {
	a := newAuthority(t)
	c := startSecure(t, a, 1, true)
	local := net.IPv4(127, 0, 0, 1)
	for _, tt := range []struct {
		name  string
		write func(cfg Config, cert, key []byte)
		want  string
	}{
		// etcd reads its files with each full handshake.
		{"etcd's", func(_ Config, cert, key []byte) {
			writeAll(t, map[string][]byte{c.opts.tls.CertFile: cert, c.opts.tls.KeyFile: key})
		}, "certificate has expired or is not yet valid"},
		{"the client's", func(cfg Config, cert, key []byte) {
			writeAll(t, map[string][]byte{cfg.CertFile: cert, cfg.KeyFile: key})
		}, "tls: expired certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var cfg Config
			var end time.Time
			for a.life = 3 * time.Second; ; a.life *= 2 {
				longer := *a
				longer.life = 0
				cfg = sessionConfig(t, c, &longer)
				end = time.Now().Add(a.life)
				cert, key := a.issue(t, "root", local)
				tt.write(cfg, cert, key)
				_, err1 := call(t, cfg)
				resumed, err2 := call(t, cfg)
				if err := errors.Join(err1, err2); err == nil && resumed {
					break
				} else if a.life > patienceOfTests/4 {
					t.Fatalf("resumed %v, %v", resumed, err)
				}
			}
			eventually(t, "the certificate has expired", func() bool { return time.Now().After(end.Add(time.Second)) })
			_, err := call(t, cfg)
			wantError(t, err, ErrAuth, tt.want)

			a.life = 0
			cert, key := a.issue(t, "root", local)
			tt.write(cfg, cert, key)
			calls(t, "a new certificate", cfg, false, true)
		})
	}
}

// TestSessionName resumes with a server that goes by another name, which its certificate lacks.
func TestSessionName(t *testing.T) {
	a := newAuthority(t)
	c := startSecure(t, a, 1, true)
	elsewhere := startProxyAt(t, "127.0.0.2:0", c.endpoints()[0])
	elsewhere.set(forward)
	cfg := sessionConfig(t, c, a)
	calls(t, "new", cfg, false, true)

	other := cfg
	other.Endpoints = []string{elsewhere.addr}
	_, err := call(t, other)
	wantError(t, err, ErrAuth, "valid for 127.0.0.1, not 127.0.0.2")

	// Even where the session itself is taken along, past its file.
	s := open(t, cfg)
	files, err := loadTLS(cfg.CAFile, cfg.CertFile, cfg.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := net.Dial("tcp", elsewhere.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if !s.members[0].session.isKept() {
		t.Fatal("no session to take along")
	}
	_, _, err = newHandshaker(files, s.members[0].session).ClientHandshake(within(t, patienceOfTests), elsewhere.addr, raw)
	if err == nil || !strings.Contains(err.Error(), "valid for 127.0.0.1, not 127.0.0.2") {
		t.Errorf("the session of another name: %v", err)
	}
}

// TestSessionUser has etcd know its users by the names in certificates.
func TestSessionUser(t *testing.T) {
	a := newAuthority(t)
	c := startSecure(t, a, 1, true)
	enableAuth(t, c.admin())
	writer := sessionConfig(t, c, a)
	cert, key := a.issue(t, "node")
	writeAll(t, map[string][]byte{writer.CertFile: cert, writer.KeyFile: key})
	calls(t, "node", writer, false, true)
	reader := writer
	reader.CertFile, reader.KeyFile = writer.CertFile+".reader", writer.KeyFile+".reader"
	cert, key = a.issue(t, "reader")
	writeAll(t, map[string][]byte{reader.CertFile: cert, reader.KeyFile: key})
	calls(t, "reader", reader, false, true)

	change := model.Change{Puts: []model.Put{put("A", "1")}}
	ctx := within(t, patienceOfTests)
	for name, cfg := range map[string]Config{"node": writer, "reader": reader} {
		s := open(t, cfg)
		if !s.members[0].session.isKept() {
			t.Errorf("%s has no session", name)
		}
		_, err := s.Commit(ctx, change)
		if name == "node" && err != nil {
			t.Error(err)
		}
		if name == "reader" {
			wantError(t, err, ErrAuth, "permission denied")
		}
	}
}

// TestSessionRevoked has etcd look at a list of revoked certificates with each connection.
func TestSessionRevoked(t *testing.T) {
	a := newAuthority(t)
	ca, cert, key := a.files(t, "root", net.IPv4(127, 0, 0, 1))
	list := filepath.Join(t.TempDir(), "crl")
	revoke := func(serials ...*big.Int) {
		t.Helper()
		tmpl := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
		for _, n := range serials {
			tmpl.RevokedCertificateEntries = append(tmpl.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: n, RevocationTime: time.Now()})
		}
		der, err := x509.CreateRevocationList(rand.Reader, tmpl, a.cert, a.key)
		if err != nil {
			t.Fatal(err)
		}
		writeAll(t, map[string][]byte{list: der})
	}
	for _, tt := range []struct {
		name     string
		grpcOnly bool
		is       error
	}{
		{"grpc and http", false, ErrUnavailable}, // it just hangs up
		{"grpc alone", true, ErrAuth},
	} {
		t.Run(tt.name, func(t *testing.T) {
			revoke()
			c := startCluster(t, clusterOptions{grpcOnly: tt.grpcOnly,
				tls: &transport.TLSInfo{CertFile: cert, KeyFile: key, ClientCertAuth: true, TrustedCAFile: ca, CRLFile: list}})
			cfg := sessionConfig(t, c, a)
			calls(t, "new", cfg, false, true)
			pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
			if err != nil {
				t.Fatal(err)
			}
			revoke(pair.Leaf.SerialNumber)
			fresh := cfg
			fresh.SessionDir = ""
			for _, cfg := range []Config{cfg, fresh} {
				fails(t, time.Second, func(ctx context.Context) error { return ready(ctx, open(t, cfg)) }, tt.is)
			}
			revoke()
			calls(t, "no longer revoked", cfg, true)
		})
	}
}
