// SPDX-License-Identifier: Apache-2.0

// Package nodecert keeps this host's own certificate for etcd, or for network services. Its key is made here and never leaves the host; the
// certificate is given by who answers CertificateSigningRequests of Signer, or NSMSigner, and learns from the API server which Node asks.
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
	// NSMSigner is that of requests for a Node's certificate for network services.
	NSMSigner = "projectcalico.org/nsm"

	// firstPause is before an answer is looked for, twice as long each time up to openPause; up to answeredPause where an answer, as a
	// denial, didn't help: each request after one is another object of the API.
	firstPause    = time.Second
	openPause     = time.Minute
	answeredPause = 5 * time.Minute
	// interval is how often it is looked whether the certificate is due.
	interval = time.Minute
)

// Config says whose certificate is kept where.
type Config struct {
	Node string
	// File gets the key and the certificate, in PEM; in one, so that they change at once.
	File string
	// CAFile has the authority of those that it is shown to, "" = whichever signed it will do.
	CAFile   string
	Kube     *kube.Client
	Problems *problems.Ledger
	Logger   *slog.Logger
}

// Certificate keeps a certificate valid: it has one signed before the last one ends.
type Certificate struct {
	Config
	use
	now     func() time.Time
	request string // that is open, "" = none
	key     []byte // of which it is, in PEM
	tries   int    // since the certificate was not due
}

// A use is what a certificate is for.
type use struct {
	signer string // signerName of its requests
	owner  string // begins their names, and that of the signer's Deployment
	cert   string // what texts call the certificate
	usages []certificatesv1.KeyUsage
}

// New makes one for etcd, a client's.
func New(cfg Config) *Certificate {
	client := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	return &Certificate{Config: cfg, use: use{Signer, "calico-etcd", "certificate for etcd", client}, now: time.Now}
}

// NewNSM makes one for network services, a server's and a client's.
func NewNSM(cfg Config) *Certificate {
	k := New(cfg)
	k.use = use{NSMSigner, "calico-nsm", "certificate for network services", append(k.usages, certificatesv1.UsageServerAuth)}
	return k
}

// due says why a certificate must be asked for, "" = it need not; and whether the one that is there can't be used until then.
// uid is the Node's, "" = it isn't known.
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

// foreign says why a certificate is not of the authority, as of one that was made anew since.
func (k *Certificate) foreign(c *x509.Certificate) error {
	if k.CAFile == "" {
		return nil
	}
	pem, err := os.ReadFile(k.CAFile)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		return nil // who reads it says so
	}
	_, err = c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: c.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// Ensure returns once there is a certificate that can be used.
func (k *Certificate) Ensure(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(k.File), 0o700); err != nil {
		return statefile.Advise(err)
	}
	uid := "" // where the API is away, what is there is used
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

// Run has the certificate renewed until the context ends; the error is always nil.
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

// errOpen says that a request has no answer.
var errOpen = errors.New("nobody has signed the request")

func (k *Certificate) open() error {
	return fmt.Errorf("%w for a %s: see the log of %s-signer, and whether it runs", errOpen, k.cert, k.owner)
}

// renew does the next step towards a certificate, and says whether it is there, or how long to wait before the next one.
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

// ask makes a request for a certificate, or sees what became of the one that is open, and puts the certificate and its key in the
// place of the former ones. It reports whether the request was answered.
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

// create makes a request, for a new key.
func (k *Certificate) create(ctx context.Context) error {
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
