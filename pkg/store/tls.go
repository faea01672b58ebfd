// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// tlsFiles names the certificate files. Empty names mean the system's authorities and no client certificate.
type tlsFiles struct {
	caFile, certFile, keyFile string
	// roots and pair are the content checked by Open, for the first handshake. Later handshakes read the files again,
	// so that an agent notices a rotation.
	roots atomic.Pointer[x509.CertPool]
	pair  atomic.Pointer[tls.Certificate]
}

// loadTLS reads the files. It returns nil if none is given.
func loadTLS(ca, cert, key string) (*tlsFiles, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	f := &tlsFiles{caFile: ca, certFile: cert, keyFile: key}
	if ca != "" {
		roots, err := f.loadRoots()
		if err != nil {
			return nil, err
		}
		f.roots.Store(roots)
	}
	if (cert == "") != (key == "") {
		have, want := "certificate file "+cert, "key file"
		if cert == "" {
			have, want = "key file "+key, "certificate file"
		}
		return nil, fmt.Errorf("an etcd %s is set but no %s: set both or neither", have, want)
	}
	if cert != "" {
		pair, err := f.loadPair()
		if err != nil {
			return nil, err
		}
		f.pair.Store(pair)
	}
	return f, nil
}

func (f *tlsFiles) loadRoots() (*x509.CertPool, error) {
	pem, err := os.ReadFile(f.caFile)
	if err != nil {
		return nil, fmt.Errorf("etcd CA file: %w: name a PEM file that this process may read", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("etcd CA file %s: no certificate in it: it must hold the CA's certificate in PEM", f.caFile)
	}
	return roots, nil
}

func (f *tlsFiles) loadPair() (*tls.Certificate, error) {
	cert, err := os.ReadFile(f.certFile)
	var key []byte
	if err == nil {
		key, err = os.ReadFile(f.keyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("etcd client certificate: %w: name PEM files that this process may read", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("etcd client certificate %s with key %s: %w: both must be PEM and belong together", f.certFile, f.keyFile, err)
	}
	return &pair, nil
}

// outdated names the file that has no currently valid certificate, and says when it expired or becomes valid; "" if
// each file has one.
func (f *tlsFiles) outdated(now time.Time) string {
	if f == nil {
		return ""
	}
	for _, name := range []string{f.certFile, f.caFile} {
		why := ""
		text, err := os.ReadFile(name)
		for block, rest := pem.Decode(text); err == nil && block != nil; block, rest = pem.Decode(rest) {
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				continue
			}
			if why = outdated(cert, now); why == "" || name == f.certFile { // our own certificate is the first one
				break
			}
		}
		if why != "" {
			return "the certificate in " + name + " " + why
		}
	}
	return ""
}

func outdated(cert *x509.Certificate, now time.Time) string {
	switch {
	case now.After(cert.NotAfter):
		return "expired at " + cert.NotAfter.UTC().Format(time.RFC3339) + ": renew it"
	case now.Before(cert.NotBefore):
		return "isn't valid before " + cert.NotBefore.UTC().Format(time.RFC3339) + ": check the clock"
	}
	return ""
}

// config returns the configuration for one handshake; grpc adds the server's name from the endpoint. A nil f verifies
// with the system's roots.
func (f *tlsFiles) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f == nil {
		return cfg, nil
	}
	if f.caFile != "" {
		if cfg.RootCAs = f.roots.Swap(nil); cfg.RootCAs == nil {
			roots, err := f.loadRoots()
			if err != nil {
				return nil, err
			}
			cfg.RootCAs = roots
		}
	}
	if f.certFile != "" {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if pair := f.pair.Swap(nil); pair != nil {
				return pair, nil
			}
			return f.loadPair()
		}
	}
	return cfg, nil
}

// handshaker makes TLS connections, using the current content of the files.
type handshaker struct {
	credentials.TransportCredentials
	files *tlsFiles
}

func newHandshaker(files *tlsFiles) handshaker {
	return handshaker{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), files}
}

func (h handshaker) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	cfg, err := h.files.config()
	if err != nil {
		return nil, nil, err
	}
	conn, info, err := credentials.NewTLS(cfg).ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return refusable{conn}, info, nil
}

func (h handshaker) Clone() credentials.TransportCredentials {
	return handshaker{h.TransportCredentials.Clone(), h.files}
}

// refusalWait is how long to wait for the reason after a connection broke: the server sent it before closing, or never
// will.
const refusalWait = 100 * time.Millisecond

// refusable is a TLS connection that reports why the server refused it. In TLS 1.3 the client finishes the handshake
// before the server has checked its certificate (RFC 8446, figure 1): the client's next write meets a closed
// connection, while the server's alert is still unread.
type refusable struct{ net.Conn }

func (c refusable) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return n, err
	}
	if e := c.SetReadDeadline(time.Now().Add(refusalWait)); e != nil {
		return n, err
	}
	// crypto/tls remembers an alert, so it is found even if another goroutine has read it.
	if _, e := c.Read(make([]byte, 1)); e != nil && isCertificateText(e.Error()) {
		return n, e
	}
	return n, err
}
