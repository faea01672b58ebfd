// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/lab/pki"
)

// makeCertificates fills the directory pki with an authority, a certificate for the members, one for clients and, for
// tests, another authority that etcd does not trust, with a client of its own.
func (m *Members) makeCertificates() error {
	dir := filepath.Join(m.dir, "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ca, err := pki.NewAuthority(dir, "ca", "calico-lab "+filepath.Base(m.dir))
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
		// Clients of etcd 3.4, such as its etcdctl, check for the complete path of the socket.
		member.DNSNames = append(member.DNSNames, memberName(i), m.file(memberName(i)))
		for _, v6 := range []bool{false, true} {
			member.IPAddresses = append(member.IPAddresses, memberAddr(v6, i).Addr().AsSlice())
		}
	}
	if err := ca.Issue(dir, "etcd", member); err != nil {
		return err
	}
	client := func() *x509.Certificate {
		return &x509.Certificate{
			Subject:     pkix.Name{CommonName: "calico"},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
	}
	if err := ca.Issue(dir, "client", client()); err != nil {
		return err
	}
	other, err := pki.NewAuthority(dir, "other-ca", "an authority that nobody trusts")
	if err != nil {
		return err
	}
	return other.Issue(dir, "other-client", client())
}
