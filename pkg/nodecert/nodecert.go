// SPDX-License-Identifier: Apache-2.0

// Package nodecert keeps this host's certificate for etcd, or for network services. The key is created here and never leaves the host. The
// certificate comes from the signer that answers CertificateSigningRequests for Signer or NSMSigner, and that learns from the API server
// which Node asks.
package nodecert

import (
	"cmp"
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
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/statefile"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/retry"
)

const (
	// Signer is the signerName of requests for a Node's certificate for etcd.
	Signer = "projectcalico.org/etcd-node"
	// NSMSigner is the signerName of requests for a Node's certificate for network services.
	NSMSigner = "projectcalico.org/nsm"

	// firstPause is the time before the first check for an answer. It doubles each time up to openPause, or up to answeredPause after an
	// answer that didn't help, such as a denial: each request after one is another object in the API.
	firstPause    = time.Second
	openPause     = time.Minute
	answeredPause = 5 * time.Minute
	// interval is how often Run checks whether the certificate is due.
	interval = time.Minute
)

// Config configures a Certificate.
type Config struct {
	Node string
	// File is where the key and the certificate are written, in PEM: one file, so that both change at once.
	File string
	// CAFile holds the authority that peers expect, "" = any.
	CAFile   string
	Kube     *kube.Client
	Problems *problems.Ledger
	Logger   *slog.Logger
}

// Certificate keeps a certificate valid: it gets a new one before the last one ends.
type Certificate struct {
	Config
	use
	now     func() time.Time
	request string // name of the open request, "" = none
	key     []byte // key of the request, in PEM
	tries   int    // since the certificate was last not due
}

// A use is the purpose of a certificate.
type use struct {
	signer string // signerName of its requests
	owner  string // prefix of the requests' names, and of the signer's Deployment
	cert   string // the certificate's name in messages
	usages []certificatesv1.KeyUsage
}

// New returns a Certificate for a client of etcd.
func New(cfg Config) *Certificate {
	client := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	return &Certificate{Config: cfg, use: use{Signer, "calico-etcd", "certificate for etcd", client}, now: time.Now}
}

// NewNSM returns a Certificate for a server and client of network services.
func NewNSM(cfg Config) *Certificate {
	k := New(cfg)
	k.use = use{NSMSigner, "calico-nsm", "certificate for network services", append(k.usages, certificatesv1.UsageServerAuth)}
	return k
}

// due says why a new certificate is needed, "" = it isn't, and whether the present one is unusable. uid is the Node's, "" = unknown.
func (k *Certificate) due(uid string) (why string, useless bool) {
	pair, err := tls.LoadX509KeyPair(k.File, k.File)
	if err != nil {
		return err.Error(), true
	}
	c, now := pair.Leaf, k.now()
	if err := k.foreign(c); err != nil {
		return err.Error(), true
	}
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

// foreign returns an error if the certificate is not signed by the authority in CAFile, as after that was replaced.
func (k *Certificate) foreign(c *x509.Certificate) error {
	if k.CAFile == "" {
		return nil
	}
	pem, err := os.ReadFile(k.CAFile)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		return nil // whatever uses the file reports it
	}
	_, err = c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: c.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// Ensure returns once there is a usable certificate.
func (k *Certificate) Ensure(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(k.File), 0o700); err != nil {
		return statefile.Advise(err)
	}
	uid := "" // without an answer from the API, the present certificate will do
	asking, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if nodes, err := kube.List[corev1.Node](asking, k.Kube, kube.Select{Fields: "metadata.name=" + k.Node}); err == nil && len(nodes) == 1 {
		uid = string(nodes[0].UID)
	}
	for {
		why, useless := k.due(uid)
		if !useless {
			return nil
		}
		done, pause := k.renew(ctx, why)
		if done {
			return nil
		}
		if err := retry.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// Run renews the certificate until the context ends; the error is always nil.
func (k *Certificate) Run(ctx context.Context) error {
	for pause := interval; retry.Wait(ctx, pause) == nil; {
		why, _ := k.due("")
		if why == "" {
			k.tries, pause = 0, interval
			continue
		}
		_, pause = k.renew(ctx, why)
	}
	return nil
}

// errOpen says that a request has no answer yet.
var errOpen = errors.New("nobody has signed the request")

func (k *Certificate) open() error {
	return fmt.Errorf("%w for a %s: see the log of %s-signer, and whether it runs", errOpen, k.cert, k.owner)
}

// renew takes the next step towards a certificate. It reports whether there is a new one, else how long to wait before the next step.
func (k *Certificate) renew(ctx context.Context, why string) (done bool, pause time.Duration) {
	answered, err := k.ask(ctx)
	pause = openPause
	if answered {
		pause = answeredPause
	}
	pause = min(firstPause<<min(k.tries, 10), pause)
	k.tries++
	if ctx.Err() != nil || errors.Is(err, errOpen) && pause < openPause {
		return false, pause
	}
	if err != nil {
		err = fmt.Errorf("there is none yet that will do: %s: %w", why, err)
	}
	k.Problems.Tell(problems.Host, k.cert, err)
	return err == nil, pause
}

// ask makes a request for a certificate, or checks the open one and replaces the former certificate and key by the new ones. It reports
// whether the request was answered.
func (k *Certificate) ask(ctx context.Context) (answered bool, err error) {
	if k.request == "" {
		return false, cmp.Or(k.create(ctx), k.open())
	}
	r, err := kube.Get[certificatesv1.CertificateSigningRequest](ctx, k.Kube, "", k.request)
	if errors.Is(err, os.ErrNotExist) {
		k.request = ""
	}
	if err != nil {
		return false, fmt.Errorf("a %s: %w", k.cert, err)
	}
	for _, c := range r.Status.Conditions {
		if c.Type != certificatesv1.CertificateApproved {
			k.request = ""
			return true, fmt.Errorf("a %s is refused: %s", k.cert, c.Message)
		}
	}
	if len(r.Status.Certificate) == 0 {
		return false, k.open()
	}
	both := slices.Concat(k.key, r.Status.Certificate)
	if _, err := tls.X509KeyPair(both, both); err != nil {
		k.request = ""
		return true, fmt.Errorf("the %s that was signed: %w", k.cert, err)
	}
	if err := statefile.Replace(k.File, both, 0o600); err != nil {
		return true, statefile.Advise(err)
	}
	k.request = ""
	k.Logger.Info("this node has a new "+k.cert, "file", k.File)
	return true, nil
}

// create makes a request with a new key.
func (k *Certificate) create(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key) // the API server says who asks, not the request
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	made, err := kube.Create(ctx, k.Kube, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(k.owner + "-" + rand.Text())},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}), SignerName: k.signer, Usages: k.usages,
		},
	})
	if err != nil {
		return fmt.Errorf("a %s: %w", k.cert, err)
	}
	k.Logger.Info("asked for this node's "+k.cert, "request", made.Name)
	k.request, k.key = made.Name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	return nil
}
