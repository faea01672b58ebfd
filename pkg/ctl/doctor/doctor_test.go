// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: begin.AddDate(1, 0, 0)},
		&x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file           string
		now            time.Time
		fine, findings string
	}{
		{file, begin, "is good until 2027-01-01 00:00:00", ""},
		{file, begin.AddDate(1, 0, -7), "", "ends at 2027-01-01 00:00:00: make a new one before"},
		{file, begin.AddDate(1, 0, 1), "", "ended at 2027-01-01 00:00:00: make a new one"},
		{empty, begin, "", "has none: want PEM"},
		{file + "x", begin, "", "no such file"},
	} {
		x := &examination{now: c.now}
		x.certificate(c.file)
		fine, findings := strings.Join(x.Fine, "\n"), strings.Join(x.Findings, "\n")
		if !strings.Contains(fine, c.fine) || !strings.Contains(findings, c.findings) || len(x.Fine)+len(x.Findings) != 1 {
			t.Errorf("%s at %s: fine %q, findings %q", c.file, c.now, fine, findings)
		}
	}
}
