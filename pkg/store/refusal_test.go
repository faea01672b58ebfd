// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/credentials"
)

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
	creds := handshaker{credentials.NewTLS(files.config())}
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
