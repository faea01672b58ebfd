// SPDX-License-Identifier: Apache-2.0

package nsmgrpc

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
)

// ServerName is a DNS name that the certificate of every manager has: who may manage connections is what the authority says,
// whatever the address of the node.
const ServerName = "calico-nsm"

// TLS names PEM files: the authority of all managers, and this manager's certificate. They are read at each handshake, so
// that new ones are taken up.
type TLS struct{ CAFile, CertFile, KeyFile string }

// Check returns what is wrong with the files.
func (t TLS) Check() error {
	_, err := t.config()
	return err
}

func (t TLS) config() (*tls.Config, error) {
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("the managers' CA file: %w: name a PEM file that this process may read", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("the managers' CA file %s: no certificate in it: it must hold the CA's certificate in PEM", t.CAFile)
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("this manager's certificate %s with key %s: %w: both must be PEM and belong together", t.CertFile, t.KeyFile, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: ServerName,
		ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"},
	}, nil
}

func (t TLS) server() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.config() },
	})
}

func (t TLS) client() (credentials.TransportCredentials, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(cfg), nil
}
