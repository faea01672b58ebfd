// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// authority is a certificate authority for one test.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
	life time.Duration // of what it issues; 0 = an hour
	rsa  bool          // as is what it issues
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	return makeAuthority(t, false)
}

func makeAuthority(t testing.TB, rsa bool) *authority {
	t.Helper()
	a := &authority{key: newKey(t, rsa), rsa: rsa}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// newKey is of P-256, or of RSA and 2048 bits.
func newKey(t testing.TB, ofRSA bool) (k crypto.Signer) {
	t.Helper()
	var err error
	if ofRSA {
		k, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		k, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// issue makes a certificate for a client of that name, or a server at the addresses.
func (a *authority) issue(t testing.TB, name string, addrs ...net.IP) (cert, key []byte) {
	t.Helper()
	k := newKey(t, a.rsa)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(cmp.Or(a.life, time.Hour)),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: addrs, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, k.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kder})
}

// files writes what issue made, and the authority's own certificate.
func (a *authority) files(t testing.TB, name string, addrs ...net.IP) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	ca, cert, key = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	c, k := a.issue(t, name, addrs...)
	for path, data := range map[string][]byte{ca: a.pem, cert: c, key: k} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ca, cert, key
}

// startSecure starts an etcd that demands client certificates, or doesn't.
func startSecure(t testing.TB, a *authority, size int, clientCerts bool) *cluster {
	t.Helper()
	ca, cert, key := a.files(t, "root", net.IPv4(127, 0, 0, 1))
	info := &transport.TLSInfo{CertFile: cert, KeyFile: key, ClientCertAuth: clientCerts}
	if clientCerts {
		info.TrustedCAFile = ca // for etcd this alone is to demand certificates
	}
	c := startCluster(t, clusterOptions{size: size, tls: info})
	for _, m := range c.members {
		// It reports readiness but reads its files later; if they are changed halfway by then, it serves no client.
		eventually.True(t, m.cfg.Name+" speaks TLS", func() bool {
			dialer := &net.Dialer{Timeout: eventually.Limit / 4}
			conn, err := tls.DialWithDialer(dialer, "tcp", m.clientAddr, &tls.Config{InsecureSkipVerify: true})
			return err == nil && conn.Close() == nil
		})
	}
	return c
}

func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	c := startSecure(t, a, 1, true)
	ca, cert, key := a.files(t, "client")
	stranger := newAuthority(t)
	otherCA, otherCert, otherKey := stranger.files(t, "client")
	past := *a
	past.life = -time.Minute
	_, pastCert, pastKey := past.files(t, "client")
	url := "https://" + c.endpoints()[0]
	elsewhere := startProxyAt(t, "127.0.0.2:0", c.endpoints()[0])
	elsewhere.set(forward)

	tests := []struct {
		name string
		cfg  Config
		is   error
		want string
	}{
		{"certificates", Config{CAFile: ca, CertFile: cert, KeyFile: key}, nil, ""},
		{"no client certificate", Config{CAFile: ca}, ErrAuth, "certificate required"},
		{"unknown client certificate", Config{CAFile: ca, CertFile: otherCert, KeyFile: otherKey}, ErrAuth, "tls: "},
		{"expired client certificate", Config{CAFile: ca, CertFile: pastCert, KeyFile: pastKey}, ErrAuth, ": the certificate in " + pastCert + " expired at "},
		{"unknown authority", Config{CAFile: otherCA, CertFile: cert, KeyFile: key}, ErrAuth, "certificate signed by unknown authority"},
		{"system roots", Config{Endpoints: []string{url}}, ErrAuth, "certificate signed by unknown authority"},
		{"name not in certificate", Config{Endpoints: []string{elsewhere.addr}, CAFile: ca, CertFile: cert, KeyFile: key},
			ErrAuth, "valid for 127.0.0.1, not 127.0.0.2"},
		{"plaintext", Config{Endpoints: []string{strings.Replace(url, "https", "http", 1)}}, ErrUnavailable, ", https or http included"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.cfg.Endpoints == nil {
				tt.cfg.Endpoints = c.endpoints()
			}
			s := open(t, tt.cfg)
			if tt.is == ErrUnavailable {
				fails(t, func(ctx context.Context) error { return ready(ctx, s) }, tt.is, tt.want)
				return
			}
			wantError(t, ends(t, s), tt.is, tt.want)
		})
	}
	t.Run("authority only", func(t *testing.T) {
		c := startSecure(t, a, 1, false)
		if err := ready(within(t, eventually.Limit), open(t, Config{Endpoints: c.endpoints(), CAFile: ca})); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("one of two members", func(t *testing.T) {
		s := open(t, Config{Endpoints: []string{elsewhere.addr, c.endpoints()[0]}, CAFile: ca, CertFile: cert, KeyFile: key})
		s.current = 0
		if err := ready(within(t, eventually.Limit), s); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRotation replaces the client's certificate under a running client.
func TestRotation(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	c := startSecure(t, a, 1, true)
	ca, cert, key := a.files(t, "client")
	s := open(t, Config{Endpoints: c.endpoints(), CAFile: ca, CertFile: cert, KeyFile: key})
	if err := ready(within(t, eventually.Limit), s); err != nil {
		t.Fatal(err)
	}
	reconnect := func() {
		c.members[0].proxy.set(refuse)
		c.members[0].proxy.set(forward)
	}
	stranger, strangerKey := newAuthority(t).issue(t, "client")
	for path, data := range map[string][]byte{cert: stranger, key: strangerKey} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reconnect()
	eventually.True(t, "the new certificate is refused", func() bool {
		return errors.Is(ready(within(t, eventually.Limit), s), ErrAuth)
	})
	renewed, renewedKey := a.issue(t, "client")
	for path, data := range map[string][]byte{cert: renewed, key: renewedKey} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	eventually.True(t, "the renewed certificate is accepted", func() bool {
		return ready(within(t, eventually.Limit), s) == nil
	})
	write := func(data []byte) {
		if err := os.WriteFile(ca, data, 0o600); err != nil {
			t.Fatal(err)
		}
		reconnect()
	}
	try := func(ctx context.Context) error { return ready(ctx, s) }
	write(newAuthority(t).pem)
	fails(t, try, ErrAuth, "unknown authority")
	write([]byte("half of a"))
	fails(t, try, ErrUnavailable, "etcd CA file "+ca)
	write(append(newAuthority(t).pem, a.pem...))
	eventually.True(t, "the authority is trusted again", func() bool {
		return ready(within(t, eventually.Limit), s) == nil
	})
}

func enableAuth(t *testing.T, admin *clientv3.Client) {
	t.Helper()
	ctx := within(t, eventually.Limit)
	for _, u := range []struct{ name, password string }{{"root", "r00t"}, {"node", "secret"}, {"reader", "read"}} {
		if _, err := admin.UserAdd(ctx, u.name, u.password); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.UserGrantRole(ctx, "root", "root"); err != nil {
		t.Fatal(err)
	}
	for role, perm := range map[string]clientv3.PermissionType{
		"node": clientv3.PermissionType(clientv3.PermReadWrite), "reader": clientv3.PermissionType(clientv3.PermRead)} {
		if _, err := admin.RoleAdd(ctx, role); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.RoleGrantPermission(ctx, role, "/calico/", clientv3.GetPrefixRangeEnd("/calico/"), perm); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.UserGrantRole(ctx, role, role); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestUserAndPassword(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	file := filepath.Join(t.TempDir(), "password")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	as := func(user string) func(*Config) {
		return func(cfg *Config) { cfg.Username, cfg.PasswordFile = user, file }
	}
	ctx := within(t, eventually.Limit)
	write("\n secret \n")
	node := c.open(as("node"))
	if err := ready(ctx, node); err != nil {
		t.Fatalf("a user where etcd has none: %v", err)
	}
	enableAuth(t, c.admin())
	if err := ready(ctx, node); err != nil {
		t.Fatalf("authentication was switched on: %v", err)
	}
	if _, err := node.Commit(ctx, model.Change{Puts: []model.Put{put("A", "1")}}); err != nil {
		t.Fatal(err)
	}
	if err := ready(ctx, c.open(as("node"))); err != nil {
		t.Fatal(err)
	}
	wantError(t, ready(ctx, c.open()), ErrAuth, "user name is empty", "set the etcd user name")
	_, err := node.Read(ctx, model.PrefixRange("/other/"))
	wantError(t, err, ErrAuth, "permission denied")

	write("wrong-password")
	err = ready(ctx, c.open(as("node")))
	wantError(t, err, ErrAuth, "invalid user ID or password", "check the etcd user")
	if strings.Contains(err.Error(), "wrong-password") {
		t.Error("the password is in the error")
	}

	write("read")
	reader := c.open(as("reader"))
	if err := ready(ctx, reader); err != nil {
		t.Fatal(err)
	}
	_, err = reader.Commit(ctx, model.Change{Puts: []model.Put{put("A", "1")}})
	wantError(t, err, ErrAuth, "permission denied")
	if errors.Is(err, ErrUnknownOutcome) {
		t.Error(err)
	}

	// A watch authenticates too, and a token that etcd forgot is renewed.
	write("secret")
	c.members[0].stop()
	if err := c.members[0].start(); err != nil {
		t.Fatal(err)
	}
	if err := ready(ctx, node); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = node.Watch(wctx, []string{"/calico/v1/config/", "/calico/v1/host/"}, func(u model.Update) error {
		if u.Resync {
			go node.Commit(ctx, model.Change{Puts: []model.Put{put("B", "1")}})
			return nil
		}
		cancel()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if ctx.Err() != nil {
		t.Error("the watch saw nothing")
	}
}

func revision(t *testing.T, s *Client) int64 {
	t.Helper()
	snapshot, err := s.Read(within(t, eventually.Limit), model.KeyRange(model.ReadyKey{}))
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Revision
}

// TestDenied removes what a request needs from a role, one by one: the error names the user and the missing permission.
func TestDenied(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	admin, ctx := c.admin(), within(t, eventually.Limit)
	if _, err := admin.RoleAdd(ctx, "part"); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{configs, hosts, "/calico/v1/Ready"} {
		if _, err := admin.RoleGrantPermission(ctx, "part", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.UserAdd(ctx, "part", "secret"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.UserGrantRole(ctx, "part", "part"); err != nil {
		t.Fatal(err)
	}
	enableAuth(t, admin)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := c.open(func(cfg *Config) { cfg.Username, cfg.PasswordFile = "part", file })
	read := func() error {
		_, err := s.Read(ctx, model.KeyRange(model.ReadyKey{}), model.PrefixRange(configs), model.PrefixRange(hosts))
		return err
	}
	write := func() error {
		_, err := s.Commit(ctx, model.Change{
			Compares: []model.Compare{{Key: model.ReadyKey{}}},
			Puts:     []model.Put{put("A", "1")}, Deletes: []model.Key{hostKey("A")}})
		return err
	}
	watched := func(prefixes ...string) func() error {
		return func() (err error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			done := make(chan error)
			go func() { done <- s.Watch(ctx, prefixes, func(model.Update) error { return nil }) }()
			eventually.True(t, "the watch is refused", func() bool { _, err = s.WatchTrouble(); return err != nil })
			cancel()
			s.interrupted.Store(nil)
			return errors.Join(err, <-done)
		}
	}
	if err := errors.Join(read(), write()); err != nil {
		t.Fatal(err)
	}
	before := revision(t, s)
	root, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints(), Username: "root", Password: "r00t", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, tt := range []struct {
		prefix string
		ask    func() error
		says   string
	}{
		{"/calico/v1/config/", read, "read /calico/v1/Ready and 2 more: etcd access refused: permission denied: http://ENDPOINT: the user part may not read all that begins with /calico/v1/config/: "},
		{"/calico/v1/host/", read, "the user part may not read all that begins with /calico/v1/host/: "},
		{"/calico/v1/Ready", read, "the user part may not read /calico/v1/Ready: "},
		{"/calico/v1/config/", write, "the user part may not write /calico/v1/config/A: "},
		{"/calico/v1/host/", write, "the user part may not write /calico/v1/host/h/config/A: "},
		{"/calico/v1/Ready", write, "the user part may not read /calico/v1/Ready: "},
		{"/calico/v1/host/", watched(configs, hosts), "the user part may not read all that begins with /calico/v1/host/: "},
		{"/calico/v1/Ready", watched(configs, hosts), "the user part may not read all that begins with /calico/v1/: "},
	} {
		end := clientv3.GetPrefixRangeEnd(tt.prefix)
		if _, err := root.RoleRevokePermission(ctx, "part", tt.prefix, end); err != nil {
			t.Fatal(err)
		}
		err := tt.ask()
		wantError(t, err, ErrDenied, strings.ReplaceAll(tt.says, "ENDPOINT", c.members[0].proxy.addr), "etcdctl role grant-permission ROLE --prefix=true readwrite /calico/")
		wantError(t, err, ErrAuth)
		if _, err := root.RoleGrantPermission(ctx, "part", tt.prefix, end, clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
			t.Fatal(err)
		}
	}
	// What is read goes well, and the watch doesn't: trouble has no end between the tries.
	w := &watch{c: s, prefixes: []string{configs, hosts}, common: "/calico/v1/", page: pageSize, fn: func(model.Update) error { return nil }}
	w.report(w.run(ctx))
	since, _ := s.WatchTrouble()
	for range 3 {
		w.report(w.run(ctx))
		if again, err := s.WatchTrouble(); since.IsZero() || !again.Equal(since) || !errors.Is(err, ErrDenied) {
			t.Errorf("in trouble since %v, and since %v: %v", since, again, err)
		}
	}
	if after := revision(t, s); after != before {
		t.Errorf("to find out what is denied it has written: revision %d, was %d", after, before)
	}
}

// TestWatchRenewsToken restarts etcd during a watch: etcd has forgotten the token then, and a new one is requested at
// once. After a refusal a watch would pause for long.
func TestWatchRenewsToken(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	enableAuth(t, c.admin())
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log syncBuffer
	s := c.open(func(cfg *Config) {
		cfg.Username, cfg.PasswordFile = "node", file
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	var f folded
	f.start(t, s, configs)
	eventually.True(t, "the watch stands", func() bool {
		commit(t, s, model.Change{Puts: []model.Put{put("A", "1")}})
		_, updates, _ := f.counts()
		return updates > 1
	})
	for i := range 2 {
		c.members[0].stop()
		if err := c.members[0].start(); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "the watch is back", func() bool { return strings.Count(log.String(), "etcd watch is back") > i })
	}
	f.reaches(t, commit(t, s, model.Change{Puts: []model.Put{put("A", "2")}}))
	if text := log.String(); strings.Contains(text, ErrAuth.Error()) {
		t.Error(text)
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{size: 3})
	ctx := within(t, eventually.Limit)
	record := func(addr string) *net.SRV {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		return &net.SRV{Target: host + ".", Port: uint16(n)}
	}
	answers := map[string][]*net.SRV{}
	var asked []string
	fake := func(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
		q := "_" + service + "._" + proto + "." + name
		asked = append(asked, q)
		if a := answers[q]; a != nil {
			return q, a, nil
		}
		return "", nil, &net.DNSError{Err: "no such host", Name: q, IsNotFound: true}
	}
	s := open(t, Config{DiscoverySRV: "example.org"})
	s.lookup = fake
	fails(t, func(ctx context.Context) error { return ready(ctx, s) }, ErrUnavailable, "example.org", "no such host")

	// The first is down; so are all, and then DNS knows a new one.
	down := freeAddr(t)
	answers["_etcd-client._tcp.example.org"] = []*net.SRV{record(down), record(c.endpoints()[0])}
	if err := ready(ctx, s); err != nil {
		t.Fatal(err)
	}
	c.members[0].proxy.set(refuse)
	answers["_etcd-client._tcp.example.org"] = []*net.SRV{record(down), record(c.endpoints()[1])}
	if err := ready(ctx, s); err != nil {
		t.Fatal(err)
	}

	// With TLS files the plaintext service is not asked for.
	ca, _, _ := newAuthority(t).files(t, "x")
	asked = nil
	secure := open(t, Config{DiscoverySRV: "example.org", CAFile: ca})
	secure.lookup = fake
	fails(t, func(ctx context.Context) error { return ready(ctx, secure) }, ErrUnavailable, "no such host")
	for _, q := range asked {
		if q != "_etcd-client-ssl._tcp.example.org" {
			t.Errorf("asked for %s", q)
		}
	}
	answers["_etcd-client-ssl._tcp.example.org"] = []*net.SRV{record(down)}
	members, err := discover(ctx, fake, "example.org", nil)
	if err != nil || len(members) != 1 || members[0].url != "https://"+down {
		t.Errorf("the TLS service does not win: %v %v", members, err)
	}
}
