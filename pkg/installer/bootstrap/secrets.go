// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/kube"
)

// What the manifests call the secrets, and the files in them.
const (
	namespace       = "kube-system"
	authoritySecret = "calico-etcd-ca"
	serverSecret    = "calico-etcd-server"
	clientSecret    = "calico-etcd-" // and the user
	peerName        = "calico-etcd-peer"
)

// A bundle is one secret: an authority's certificate, and certificates with their keys.
type bundle struct {
	secret, caFile string
	leaves         []named
}

type named struct {
	certFile, keyFile string
	leaf
}

// bundles are the secrets of an etcd with these members.
func bundles(members []member) []bundle {
	hosts := []string{"localhost", "127.0.0.1"}
	for _, m := range members {
		hosts = append(hosts, m.addr.String())
	}
	all := []bundle{{serverSecret, "ca.crt", []named{
		{"server.crt", "server.key", leaf{name: "calico-etcd", server: true, hosts: hosts}},
		{"peer.crt", "peer.key", leaf{name: peerName, server: true, client: true, hosts: hosts}},
	}}}
	for _, u := range users() {
		all = append(all, bundle{clientSecret + u.Name, "etcd-ca", []named{{"etcd-cert", "etcd-key", leaf{name: u.Name, client: true}}}})
	}
	return all
}

// authority reads the authority, or makes it.
func (b *bootstrapper) authority(ctx context.Context) (*authority, error) {
	s, err := kube.Get[corev1.Secret](ctx, b.kube, namespace, authoritySecret)
	if errors.Is(err, os.ErrNotExist) {
		var p pair
		if p, err = newAuthority(b.now()); err != nil {
			return nil, fmt.Errorf("make a certificate authority: %w", err)
		}
		s = newSecret(authoritySecret, corev1.SecretTypeTLS)
		s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey] = p.cert, p.key
		if s, err = kube.Create(ctx, b.kube, s); err == nil {
			b.log.Info("made a certificate authority for etcd", "secret", authoritySecret)
		}
	}
	if err != nil {
		return nil, err
	}
	ca, err := parseAuthority(pair{s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]})
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w: put back the one that signed etcd's certificates, or delete it and the secrets calico-etcd-* to start anew", namespace, authoritySecret, err)
	}
	return ca, nil
}

// ensure makes a secret, or what is due in it.
func (b *bootstrapper) ensure(ctx context.Context, ca *authority, want bundle) error {
	s, err := kube.Get[corev1.Secret](ctx, b.kube, namespace, want.secret)
	create := errors.Is(err, os.ErrNotExist)
	if create {
		s, err = newSecret(want.secret, corev1.SecretTypeOpaque), nil
	}
	if err != nil {
		return err
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	changed := !ca.same(s.Data[want.caFile])
	s.Data[want.caFile] = ca.pem
	for _, l := range want.leaves {
		why := ca.due(pair{s.Data[l.certFile], s.Data[l.keyFile]}, l.leaf, b.now())
		if why == "" {
			continue
		}
		p, err := ca.issue(l.leaf, b.now(), leafLife)
		if err != nil {
			return fmt.Errorf("make the certificate of %s: %w", l.name, err)
		}
		s.Data[l.certFile], s.Data[l.keyFile], changed = p.cert, p.key, true
		b.log.Info("made a certificate", "for", l.name, "secret", want.secret, "reason", why)
	}
	switch {
	case !changed:
		return nil
	case create:
		_, err = kube.Create(ctx, b.kube, s)
	default:
		_, err = kube.Update(ctx, b.kube, s)
	}
	return err
}

func newSecret(name string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"k8s-app": "calico-etcd"}},
		Type:       kind, Data: map[string][]byte{},
	}
}
