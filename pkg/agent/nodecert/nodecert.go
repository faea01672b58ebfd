// SPDX-License-Identifier: Apache-2.0

// Package nodecert keeps this host's own certificate for etcd. Its key is made here and never leaves the host; the certificate is
// given by who answers CertificateSigningRequests of Signer, and learns from the API server which Node asks.
package nodecert

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/statefile"
	"github.com/calico-go/calico/pkg/kube"
)

// Signer is the signerName of requests for a Node's certificate for etcd.
const Signer = "projectcalico.org/etcd-node"

const (
	// pause is how long it is waited before the API is asked again, and patience how long for an answer to one request.
	pause    = time.Second
	patience = time.Minute
	// interval is how often it is looked whether the certificate is due, and asked again where that failed.
	interval = time.Minute
)

// Config says whose certificate is kept where.
type Config struct {
	Node string
	// File gets the key and the certificate, in PEM; in one, so that they change at once.
	File     string
	Kube     *kube.Client
	Problems *problems.Ledger
	Logger   *slog.Logger
}

// Keeper keeps the certificate.
type Keeper struct {
	Config
	now func() time.Time
}

// New makes a Keeper.
func New(cfg Config) *Keeper { return &Keeper{cfg, time.Now} }

// due says why a certificate must be asked for, "" = it need not; and whether the one that is there can't be used until then.
// uid is the Node's, "" = it isn't known.
func (k *Keeper) due(uid string) (why string, useless bool) {
	pair, err := tls.LoadX509KeyPair(k.File, k.File)
	if err != nil {
		return err.Error(), true
	}
	c, now := pair.Leaf, k.now()
	switch third := c.NotAfter.Sub(c.NotBefore) / 3; {
	case now.After(c.NotAfter):
		return "it has expired", true
	case uid != "" && !strings.HasSuffix(c.Subject.CommonName, ":"+uid):
		return "it is " + c.Subject.CommonName + "'s, and the Node another one now", true
	case now.After(c.NotAfter.Add(-third)):
		return "two thirds of its lifetime are over", false
	}
	return "", false
}

// Ensure returns once there is a certificate that can be used.
func (k *Keeper) Ensure(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(k.File), 0o700); err != nil {
		return statefile.Advise(err)
	}
	uid := "" // where the API is away, what is there is used
	asking, cancel := context.WithTimeout(ctx, 5*pause)
	defer cancel()
	if nodes, err := kube.List[corev1.Node](asking, k.Kube, kube.Select{Fields: "metadata.name=" + k.Node}); err == nil && len(nodes) == 1 {
		uid = string(nodes[0].UID)
	}
	for {
		why, useless := k.due(uid)
		if !useless {
			return nil
		}
		k.Logger.Info("asking for this node's certificate for etcd", "reason", why)
		err := k.renew(ctx)
		if err == nil {
			return nil
		}
		k.Logger.Error("no certificate for etcd yet, trying again", "err", err)
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// Run has the certificate renewed until the context ends; the error is always nil.
func (k *Keeper) Run(ctx context.Context) error {
	for wait(ctx, interval) == nil {
		why, _ := k.due("")
		if why == "" {
			continue
		}
		k.Logger.Info("this node's certificate for etcd is renewed", "reason", why)
		err := k.renew(ctx)
		if ctx.Err() == nil {
			if before, after := k.Problems.Note(problems.Host, "certificate for etcd", err); after != "" && after != before {
				k.Logger.Error("this node's certificate for etcd is not renewed, trying again", "err", err)
			}
		}
	}
	return nil
}

// renew asks for a certificate for a new key, and puts both in the place of the former ones.
func (k *Keeper) renew(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key) // who asks isn't the request's to say
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	cert, err := k.sign(ctx, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
	if err != nil {
		return err
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), cert...)
	if _, err := tls.X509KeyPair(both, both); err != nil {
		return fmt.Errorf("the certificate for etcd that was signed: %w", err)
	}
	if err := statefile.Replace(k.File, both, 0o600); err != nil {
		return statefile.Advise(err)
	}
	k.Logger.Info("this node has a new certificate for etcd", "file", k.File)
	return nil
}

// sign has a request signed, and waits for that.
func (k *Keeper) sign(ctx context.Context, request []byte) (cert []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	made, err := kube.Create(ctx, k.Kube, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower("calico-etcd-" + rand.Text())},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: Signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	})
	for err == nil {
		if len(made.Status.Certificate) > 0 {
			return made.Status.Certificate, nil
		}
		for _, c := range made.Status.Conditions {
			if c.Type != certificatesv1.CertificateApproved {
				return nil, fmt.Errorf("a certificate for etcd is refused: %s", c.Message)
			}
		}
		if wait(ctx, pause) != nil {
			return nil, errors.New("nobody has signed the request for a certificate for etcd: see the log of calico-etcd-signer, and whether it runs")
		}
		made, err = kube.Get[certificatesv1.CertificateSigningRequest](ctx, k.Kube, "", made.Name)
	}
	return nil, fmt.Errorf("a certificate for etcd: %w", err)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
