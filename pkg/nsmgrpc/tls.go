// SPDX-License-Identifier: Apache-2.0

package nsmgrpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/calico-go/calico/pkg/nsm"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// ServerName is a DNS name in the certificate of every manager: the authority decides who may manage connections,
// regardless of the node's address.
const ServerName = "calico-nsm"

// nameOf returns the DNS name in the certificate of one node's manager, in addition to ServerName.
func nameOf(node string) string { return node + "." + ServerName }

// speaksFor rejects a certificate of another node's manager. One without any name of that form is valid for every
// manager: before these names were introduced, all were.
func speaksFor(cert *x509.Certificate, node string) error {
	of := ""
	for _, name := range cert.DNSNames {
		if strings.EqualFold(name, nameOf(node)) {
			return nil
		}
		if strings.HasSuffix(strings.ToLower(name), "."+ServerName) {
			of = name
		}
	}
	if of == "" {
		return nil
	}
	return fmt.Errorf("%w: the certificate is that of %.200q, and the manager of node %.200q is spoken with: give it the DNS name %s", nsm.ErrInvalid, of, node, nameOf(node))
}

// caller returns the calling manager. It is the node that the call names, which must be in its certificate; if the call
// names none, the certificate's node, or the address that it calls from.
func caller(ctx context.Context, node string) (string, error) {
	var info credentials.TLSInfo
	p, ok := peer.FromContext(ctx)
	if ok {
		info, ok = p.AuthInfo.(credentials.TLSInfo)
	}
	if !ok || len(info.State.PeerCertificates) == 0 {
		return "", fmt.Errorf("%w: the call comes without a certificate", nsm.ErrInvalid)
	}
	if node != "" {
		return node, cmp.Or(nsm.CheckName("requestor", node), speaksFor(info.State.PeerCertificates[0], node))
	}
	for _, name := range info.State.PeerCertificates[0].DNSNames {
		if node, is := strings.CutSuffix(strings.ToLower(name), "."+ServerName); is {
			return node, nil
		}
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	return host, err
}

// TLS names PEM files: the authority of all managers, and this manager's certificate. They are read at each handshake,
// so that new ones take effect.
type TLS struct{ CAFile, CertFile, KeyFile string }

// Check returns the problem with the files.
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

// client returns the credentials for calling the manager of a node.
func (t TLS) client(node string) (credentials.TransportCredentials, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	cfg.VerifyConnection = func(s tls.ConnectionState) error { return speaksFor(s.PeerCertificates[0], node) }
	return credentials.NewTLS(cfg), nil
}
