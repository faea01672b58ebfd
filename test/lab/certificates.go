// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority is a certificate authority that lives as long as the lab is made.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// makeCertificates fills the directory pki: an authority, a certificate for
// the members, one for clients, and another authority with a client of its own
// that etcd does not trust, for tests.
func (m *Members) makeCertificates() error {
	dir := filepath.Join(m.dir, "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ca, err := newAuthority(dir, "ca", "calico-lab "+filepath.Base(m.dir))
	if err != nil {
		return err
	}
	member := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "etcd"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		// etcd's own gateway is a client of etcd with this certificate.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for i := 1; i <= m.state.EtcdMembers; i++ {
		// Clients of etcd 3.4, such as its etcdctl, check for the whole path of the socket.
		member.DNSNames = append(member.DNSNames, memberName(i), m.file(memberName(i)))
		for _, v6 := range []bool{false, true} {
			member.IPAddresses = append(member.IPAddresses, memberAddr(v6, i).Addr().AsSlice())
		}
	}
	if err := ca.issue(dir, "etcd", member); err != nil {
		return err
	}
	client := func() *x509.Certificate {
		return &x509.Certificate{
			Subject:     pkix.Name{CommonName: "calico"},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
	}
	if err := ca.issue(dir, "client", client()); err != nil {
		return err
	}
	other, err := newAuthority(dir, "other-ca", "an authority that nobody trusts")
	if err != nil {
		return err
	}
	return other.issue(dir, "other-client", client())
}

func newAuthority(dir, file, name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	ca := &authority{cert: template, key: key}
	if err := ca.sign(dir, file, template, key); err != nil {
		return nil, err
	}
	return ca, nil
}

func (ca *authority) issue(dir, file string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return ca.sign(dir, file, template, key)
}

// sign writes file.crt and file.key.
func (ca *authority) sign(dir, file string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(30 * 24 * time.Hour)
	cert, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return fmt.Errorf("sign %s: %w", file, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(dir, file+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o644)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, file+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
}
