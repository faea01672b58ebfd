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

// tlsFiles names the files with the certificates, "" = none: the system's authorities, and no certificate of our own.
type tlsFiles struct {
	caFile, certFile, keyFile string
	// roots and pair are what Open checked, for the first handshake. Later ones read the files again, so that an agent
	// notices a rotation.
	roots atomic.Pointer[x509.CertPool]
	pair  atomic.Pointer[tls.Certificate]
}

// loadTLS reads the files; nil where none is given.
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

// outdated says which file has no certificate that is valid now, and until when or from when it is; "" where each has one.
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
			if why = outdated(cert, now); why == "" || name == f.certFile { // of which the first is our own
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

// config is for one handshake; grpc adds the server's name from the endpoint. A nil f verifies with the system's roots.
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

// handshaker makes TLS connections by the files as they are then.
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

// refusalWait bounds how long a connection that broke is asked for the reason, which was sent before the end of the
// connection, or never.
const refusalWait = 100 * time.Millisecond

// refusable is a TLS connection that says why the server refused it. In TLS 1.3 a client is done with the handshake before
// the server has looked at its certificate (RFC 8446, figure 1); what it writes then meets a closed connection, and the
// server's alert lies unread.
type refusable struct{ net.Conn }

func (c refusable) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return n, err
	}
	if e := c.SetReadDeadline(time.Now().Add(refusalWait)); e != nil {
		return n, err
	}
	// crypto/tls keeps an alert: it is found even if another goroutine has read it.
	if _, e := c.Read(make([]byte, 1)); e != nil && isCertificateText(e.Error()) {
		return n, e
	}
	return n, err
}
