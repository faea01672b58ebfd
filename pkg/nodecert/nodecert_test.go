// SPDX-License-Identifier: Apache-2.0

package nodecert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/calico-go/calico/pkg/kube"
)

// TestCreate: the contents of a request, and its signer.
func TestCreate(t *testing.T) {
	var got certificatesv1.CertificateSigningRequest
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = certificatesv1.CertificateSigningRequest{}
		data, err := io.ReadAll(r.Body)
		var u runtime.Unknown // protobuf, after a magic number
		if err != nil || u.Unmarshal(data[4:]) != nil || got.Unmarshal(u.Raw) != nil {
			t.Errorf("%q: %v", data, err)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(got)
	}))
	defer api.Close()
	client, err := kube.New(kube.Config{Name: "test", APIRoot: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	cfg := Config{Kube: client, Logger: slog.New(slog.DiscardHandler)}
	const open = "nobody has signed the request for a certificate for %s: see the log of %ssigner, and whether it runs"
	for _, test := range []struct {
		k                                *Certificate
		signer, name, purpose, moreUsage string
	}{
		{New(cfg), "projectcalico.org/etcd-node", "calico-etcd-", "etcd", ""},
		{NewNSM(cfg), "projectcalico.org/nsm", "calico-nsm-", "network services", " server auth"},
	} {
		_, err := test.k.ask(t.Context())
		if want := fmt.Sprintf(open, test.purpose, test.name); !errors.Is(err, errOpen) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if usages, want := fmt.Sprint(got.Spec.Usages), "[digital signature client auth"+test.moreUsage+"]"; got.Spec.SignerName != test.signer || !strings.HasPrefix(got.Name, test.name) || usages != want {
			t.Errorf("%s: %s, %s; want %s", got.Name, got.Spec.SignerName, usages, want)
		}
	}
}

// TestDue: a certificate is due when two thirds of the former one's lifetime are over, and waited for if that is unusable.
func TestDue(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	const life = 30 * 24 * time.Hour
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node:n1:uid"}, NotBefore: now, NotAfter: now.Add(life)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	authorities := map[string][]byte{}
	for name, der := range map[string][]byte{"own": der, "other": other} {
		authorities[name] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	for _, test := range []struct {
		name, uid, why string
		file           []byte
		after          time.Duration
		useless        bool
		authority      string
	}{
		{"new", "uid", "", both, 0, false, ""},
		{"half", "", "", both, life / 2, false, ""},
		{"due", "uid", "two thirds", both, life*2/3 + 1, false, ""},
		{"expired", "uid", "expired", both, life + 1, true, ""},
		{"of a Node that was made anew", "other", "the Node another one", both, 0, true, ""},
		{"cut off", "uid", "tls: ", both[:100], 0, true, ""},
		{"none", "uid", "no such file", nil, 0, true, ""},
		{"of the authority", "uid", "", both, 0, false, "own"},
		{"of a former authority", "uid", "x509: ", both, 0, true, "other"},
	} {
		k := Certificate{Config: Config{File: filepath.Join(t.TempDir(), "pem")}, now: func() time.Time { return now.Add(test.after) }}
		if test.authority != "" {
			k.CAFile = filepath.Join(t.TempDir(), "ca")
			if err := os.WriteFile(k.CAFile, authorities[test.authority], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if test.file != nil {
			if err := os.WriteFile(k.File, test.file, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if why, useless := k.due(test.uid); (why == "") != (test.why == "") || !strings.Contains(why, test.why) || useless != test.useless {
			t.Errorf("%s: %q, %v", test.name, why, useless)
		}
	}
}
