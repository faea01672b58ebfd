// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	// authorityLife is kubeadm's: a new authority would have to be made known to everything that trusts the old one.
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// skew is how far apart the clocks of nodes may be.
	skew = time.Hour
)

// A pair is a certificate and its key, in PEM.
type pair struct{ cert, key []byte }

// A leaf is what a certificate says about its holder.
type leaf struct {
	name           string // common name: for a client, its user of etcd
	server, client bool
	hosts          []string // names and addresses of a server
}

// authority signs the certificates of an etcd, its members and its clients, or of the managers of network services.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// newAuthority creates a self-signed authority with this common name.
func newAuthority(name string, now time.Time) (pair, error) {
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil)
}

// parseAuthority parses what newAuthority returned.
func parseAuthority(p pair) (*authority, error) {
	both, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, err
	}
	key, ok := both.PrivateKey.(crypto.Signer)
	if !ok || !both.Leaf.IsCA {
		return nil, errors.New("it is not a certificate authority's")
	}
	return &authority{both.Leaf, key, p.cert}, nil
}

// issue creates a certificate with a new key.
func (a *authority) issue(l leaf, now time.Time, life time.Duration) (pair, error) {
	return sign(l.template(now, life), a)
}

// certify creates a certificate for a public key whose private key another holds.
func (a *authority) certify(l leaf, key crypto.PublicKey, now time.Time, life time.Duration) ([]byte, error) {
	return certify(l.template(now, life), a, key)
}

// template returns an unsigned certificate for the leaf.
func (l leaf) template(now time.Time, life time.Duration) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: l.name}, NotBefore: now.Add(-skew), NotAfter: now.Add(life), KeyUsage: x509.KeyUsageDigitalSignature}
	if l.server {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.client {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, h := range l.hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return c
}

// sign completes a certificate with a new key. If by is nil, the certificate signs itself.
func sign(c *x509.Certificate, by *authority) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	if by == nil {
		by = &authority{cert: c, key: key}
	}
	cert, err := certify(c, by, key.Public())
	if err != nil {
		return pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})}, nil
}

// certify signs a certificate for a key, and returns it in PEM.
func certify(c *x509.Certificate, by *authority, key crypto.PublicKey) (cert []byte, err error) {
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil { // RFC 5280, 4.1.2.2
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.cert, key, by.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// due says why a certificate must be created anew, "" if it need not be.
func (a *authority) due(p pair, l leaf, now time.Time) string {
	if len(p.cert) == 0 && len(p.key) == 0 {
		return "there is none"
	}
	both, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return err.Error()
	}
	c := both.Leaf
	hosts := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	sorted := func(s []string) []string { s = slices.Clone(s); slices.Sort(s); return s }
	life := c.NotAfter.Sub(c.NotBefore)
	switch {
	case c.CheckSignatureFrom(a.cert) != nil:
		return "another authority has signed it"
	case c.Subject.CommonName != l.name:
		return fmt.Sprintf("it is %q's", c.Subject.CommonName)
	case !slices.Equal(sorted(hosts), sorted(l.hosts)):
		return fmt.Sprintf("it is for %v", hosts)
	case !now.Before(c.NotBefore.Add(life / 3 * 2)):
		return "two thirds of its lifetime are over: it ends at " + c.NotAfter.Format(time.RFC3339)
	}
	return ""
}

// same reports whether cert, in PEM, is this authority's certificate.
func (a *authority) same(cert []byte) bool { return bytes.Equal(a.pem, cert) }
