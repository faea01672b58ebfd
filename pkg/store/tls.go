// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// tlsFiles are where the certificates are, "" = none: the system's authorities, and no
// certificate of our own.
type tlsFiles struct {
	caFile, certFile, keyFile string
	sum                       [sha256.Size]byte // of what is in them
	cert, key                 []byte            // until checkPair
	// roots and pair are what Open checked, for the first handshake. Later ones read
	// the files again, so that an agent follows a rotation.
	roots atomic.Pointer[x509.CertPool]
	pair  atomic.Pointer[tls.Certificate]
}

// loadTLS reads the files; nil where none is given. Whether certificate and key are good
// is left to checkPair.
func loadTLS(ca, cert, key string) (*tlsFiles, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	f := &tlsFiles{caFile: ca, certFile: cert, keyFile: key}
	var authorities []byte
	if ca != "" {
		roots, pem, err := f.loadRoots()
		if err != nil {
			return nil, err
		}
		f.roots.Store(roots)
		authorities = pem
	}
	if (cert == "") != (key == "") {
		have, want := "certificate file "+cert, "key file"
		if cert == "" {
			have, want = "key file "+key, "certificate file"
		}
		return nil, fmt.Errorf("an etcd %s is set but no %s: set both or neither", have, want)
	}
	if cert != "" {
		var err error
		if f.cert, f.key, err = f.readPair(); err != nil {
			return nil, err
		}
	}
	f.sum = digest(authorities, f.cert, f.key)
	return f, nil
}

func (f *tlsFiles) loadRoots() (roots *x509.CertPool, pem []byte, err error) {
	pem, err = os.ReadFile(f.caFile)
	if err != nil {
		return nil, nil, fmt.Errorf("etcd CA file: %w: name a PEM file that this process may read", err)
	}
	roots = x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("etcd CA file %s: no certificate in it: it must hold the CA's certificate in PEM", f.caFile)
	}
	return roots, pem, nil
}

// checkPair parses what loadTLS has read, for the first handshake.
func (f *tlsFiles) checkPair() error {
	if f == nil || f.certFile == "" {
		return nil
	}
	pair, err := f.parsePair(f.cert, f.key)
	if err != nil {
		return err
	}
	f.pair.Store(pair)
	f.cert, f.key = nil, nil
	return nil
}

func (f *tlsFiles) loadPair() (*tls.Certificate, error) {
	cert, key, err := f.readPair()
	if err != nil {
		return nil, err
	}
	return f.parsePair(cert, key)
}

func (f *tlsFiles) readPair() (cert, key []byte, err error) {
	cert, err = os.ReadFile(f.certFile)
	if err == nil {
		key, err = os.ReadFile(f.keyFile)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("etcd client certificate: %w: name PEM files that this process may read", err)
	}
	return cert, key, nil
}

func (f *tlsFiles) parsePair(cert, key []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("etcd client certificate %s with key %s: %w: both must be PEM and belong together", f.certFile, f.keyFile, err)
	}
	return &pair, nil
}

// config is for one handshake; grpc adds the server's name from the endpoint. A
// nil f verifies with the system's roots.
func (f *tlsFiles) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f == nil {
		return cfg, nil
	}
	if f.caFile != "" {
		if cfg.RootCAs = f.roots.Swap(nil); cfg.RootCAs == nil {
			roots, _, err := f.loadRoots()
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
