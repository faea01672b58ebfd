// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"
)

// TestFailuresRefused has several failures of one request.
func TestFailuresRefused(t *testing.T) {
	refusal := failure{member: "m", reason: "permission denied", kind: ErrAuth}
	token := failure{member: "m", reason: "invalid auth token", kind: ErrAuth, next: renew}
	cut := failure{member: "m", reason: "error reading from server: EOF", kind: ErrUnavailable, next: elsewhere}
	silent := failure{member: "m", reason: "no answer", kind: ErrUnavailable, next: elsewhere}
	other := failure{member: "n", reason: "connection refused", kind: ErrUnavailable, next: elsewhere}
	for _, tt := range []struct {
		name string
		seen []failure
		want bool
	}{
		{"nothing", nil, false},
		{"a refusal", []failure{refusal}, true},
		{"a refusal that is lost the next time", []failure{refusal, cut}, true},
		{"a token that has ended", []failure{token}, false},
		{"a token that has ended, as etcd restarts", []failure{token, cut}, false},
		{"a token that has ended, and then nothing", []failure{token, silent}, false},
		{"refused after the token was renewed", []failure{token, refusal}, true},
		{"one of two members", []failure{refusal, other}, false},
	} {
		var seen failures
		for _, f := range tt.seen {
			seen.note(f)
		}
		if got := seen.refused(1); got != tt.want {
			t.Errorf("%s: refused %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestFailuresResumed: the reason is what came of the attempt without the session.
func TestFailuresResumed(t *testing.T) {
	resumed := failure{member: "m", reason: resumeText + "EOF", kind: ErrUnavailable, next: elsewhere}
	for _, reason := range []string{"no answer", "tls: unknown certificate authority", "error reading from server: EOF"} {
		var seen failures
		seen.note(resumed)
		seen.note(failure{member: "m", reason: reason, kind: ErrUnavailable, next: elsewhere})
		if want := "m: " + reason; seen.String() != want {
			t.Errorf("got %q, want %q", seen, want)
		}
	}
}

// TestRefusalAfterHandshake writes when the server has refused the client's
// certificate and closed the connection.
func TestRefusalAfterHandshake(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "server", net.IPv4(127, 0, 0, 1))
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			closed <- err
			return
		}
		server := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"h2"}})
		_ = server.Handshake() // is refused, which is the client's to find out
		closed <- raw.Close()
	}()
	raw, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	ca, _, _ := a.files(t, "client")
	files, err := loadTLS(ca, "", "")
	if err != nil {
		t.Fatal(err)
	}
	creds := newHandshaker(files, nil)
	conn, _, err := creds.Clone().ClientHandshake(t.Context(), "127.0.0.1", raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err == nil || !isCertificateText(err.Error()) {
		t.Errorf("write to a server that refused the certificate: %v, want its alert", err)
	}
}
