// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// tlsFiles are the certificates as found when the client was opened.
type tlsFiles struct {
	roots             *x509.CertPool // nil: the system's
	certFile, keyFile string
	// first is the certificate that Open checked, for the first handshake. Later
	// ones read the files again, so that an agent follows a rotation.
	first atomic.Pointer[tls.Certificate]
}

// loadTLS reads the files; nil where none is given.
func loadTLS(ca, cert, key string) (*tlsFiles, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	f := &tlsFiles{certFile: cert, keyFile: key}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("etcd CA file: %w: name a PEM file that this process may read", err)
		}
		f.roots = x509.NewCertPool()
		if !f.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("etcd CA file %s: no certificate in it: it must hold the CA's certificate in PEM", ca)
		}
	}
	if (cert == "") != (key == "") {
		have, want := "certificate file "+cert, "key file"
		if cert == "" {
			have, want = "key file "+key, "certificate file"
		}
		return nil, fmt.Errorf("an etcd %s is set but no %s: set both or neither", have, want)
	}
	if cert != "" {
		pair, err := f.load()
		if err != nil {
			return nil, err
		}
		f.first.Store(pair)
	}
	return f, nil
}

func (f *tlsFiles) load() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			return nil, fmt.Errorf("etcd client certificate: %w: name PEM files that this process may read", pe)
		}
		return nil, fmt.Errorf("etcd client certificate %s with key %s: %w: both must be PEM and belong together", f.certFile, f.keyFile, err)
	}
	return &pair, nil
}

// config is for one member; grpc adds the server's name from the endpoint. A
// nil f verifies with the system's roots.
func (f *tlsFiles) config() *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f == nil {
		return cfg
	}
	cfg.RootCAs = f.roots
	if f.certFile != "" {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if pair := f.first.Swap(nil); pair != nil {
				return pair, nil
			}
			return f.load()
		}
	}
	return cfg
}

// readPassword reads the file, without the white space around it.
func readPassword(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("etcd password file: %w: name a file that this process may read", err)
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return "", fmt.Errorf("etcd password file %s is empty: write the password into it", file)
	}
	return string(b), nil
}
