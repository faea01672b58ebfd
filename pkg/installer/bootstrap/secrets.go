// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/kube"
)

// Names in the manifests of the secrets and the files in them.
const (
	namespace       = "kube-system"
	authoritySuffix = "-ca" // after calico-etcd or calico-nsm
	serverSecret    = "calico-etcd-server"
	clientSecret    = "calico-etcd-" // followed by the user
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

// bundles returns the secrets of an etcd with these members.
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

// read reads a secret, which the manifest creates.
func (b *bootstrapper) read(ctx context.Context, name string) (*corev1.Secret, error) {
	s, err := kube.Get[corev1.Secret](ctx, b.kube, namespace, name)
	if err != nil {
		return nil, applied(err)
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	return s, nil
}

// applied adds to an error about a missing object what creates it.
func applied(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: apply the manifest again, which makes it", err)
	}
	return err
}

// authority reads the authority in the secret called name plus authoritySuffix, or creates it; of says for what, in messages.
func (b *bootstrapper) authority(ctx context.Context, name, of string) (*authority, error) {
	secret := name + authoritySuffix
	s, err := b.read(ctx, secret)
	if err != nil {
		return nil, err
	}
	p := pair{s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]}
	if len(p.cert) == 0 && len(p.key) == 0 {
		if p, err = newAuthority(secret, b.now()); err != nil {
			return nil, fmt.Errorf("make a certificate authority: %w", err)
		}
		s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey] = p.cert, p.key
		if _, err = kube.Update(ctx, b.kube, s); err != nil { // of two that create one, one is refused
			return nil, err
		}
		b.log.Info("made a certificate authority for "+of, "secret", secret)
	}
	ca, err := parseAuthority(p)
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w: put back the one that signed %s's certificates, or delete the secrets %s-* and apply the manifest to start anew", namespace, secret, err, of, name)
	}
	return ca, nil
}

// publish makes the authority known to nodes: its certificate, which is no secret, goes to a ConfigMap.
func (b *bootstrapper) publish(ctx context.Context, name, key string, ca *authority) error {
	config, err := kube.Get[corev1.ConfigMap](ctx, b.kube, namespace, name)
	if err != nil || config.Data[key] == string(ca.pem) {
		return applied(err)
	}
	if config.Data == nil {
		config.Data = map[string]string{}
	}
	config.Data[key] = string(ca.pem)
	_, err = kube.Update(ctx, b.kube, config)
	return err
}

// ensure creates or renews what is due in a secret.
func (b *bootstrapper) ensure(ctx context.Context, ca *authority, want bundle) error {
	s, err := b.read(ctx, want.secret)
	if err != nil {
		return err
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
	if changed {
		_, err = kube.Update(ctx, b.kube, s)
	}
	return err
}
