// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
)

const (
	ours = `{"name": "net", "cniVersion": "1.0.0", "plugins": [{"type": "calico"}, {"type": "portmap"}]}`
	next = `{"name": "net", "cniVersion": "1.0.0", "plugins": [{"type": "calico", "mtu": 1400}]}`
)

// rig is a keeper with its directories.
type rig struct {
	t      *testing.T
	cfg    Config
	served chan struct{}
	events []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, served: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	r.cfg = Config{
		Dir: t.TempDir(), VarDir: t.TempDir(), Served: r.served, Health: health.New("calico-test"), Problems: problems.New(log), Logger: log,
		Event: func(reason, message string) { r.events = append(r.events, reason+": "+message) },
	}
	r.write(filepath.Join(r.cfg.VarDir, netconf.StagedName), ours)
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.cfg.Dir, name) }

func (r *rig) write(path, text string) {
	r.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) expect(when, name, want string) {
	r.t.Helper()
	text, err := os.ReadFile(r.path(name))
	if err != nil && want != "" {
		r.t.Errorf("%s: %v", when, err)
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		r.t.Errorf("%s: %s (-want +got):\n%s", when, name, diff)
	}
}

// page returns the text of the readiness page.
func (r *rig) page() string {
	r.cfg.Health.SetUnready("")
	w := httptest.NewRecorder()
	r.cfg.Health.Handler(r.cfg.Problems).ServeHTTP(w, httptest.NewRequest("GET", "/readiness", nil))
	return strings.TrimSpace(w.Body.String())
}

// run runs steps; wait lets the keeper catch up between them.
func (r *rig) run(steps func(wait func())) {
	synctest.Test(r.t, func(t *testing.T) {
		r.served = make(chan struct{})
		r.cfg.Served = r.served
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- New(r.cfg).Run(ctx) }()
		steps(func() {
			time.Sleep(interval)
			synctest.Wait()
		})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestKept: there is no file before the agent serves; then the file is repaired, and outlives the agent.
func TestKept(t *testing.T) {
	r := newRig(t)
	r.write(r.path(netconf.SingleName), `{"name": "net", "type": "calico"}`)
	r.run(func(wait func()) {
		wait()
		r.expect("before it serves", netconf.ListName, "")
		close(r.served)
		wait()
		r.expect("when it serves", netconf.ListName, ours)
		r.expect("when it serves", netconf.SingleName, "")
		for _, path := range []string{r.path(netconf.ListName), filepath.Join(r.cfg.VarDir, writtenName)} {
			if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("%s: %v, %v", path, info, err)
			}
		}
		if err := os.Remove(r.path(netconf.ListName)); err != nil {
			t.Fatal(err)
		}
		wait()
		r.expect("removed", netconf.ListName, ours)
		r.write(r.path(netconf.ListName), ours[:30])
		wait()
		r.expect("cut off", netconf.ListName, ours)
		if err := os.Chmod(r.path(netconf.ListName), 0o644); err != nil {
			t.Fatal(err)
		}
		wait()
		if info, err := os.Stat(r.path(netconf.ListName)); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		chained := `{"name": "net", "cniVersion": "1.0.0", "plugins": [{"type": "calico"}, {"type": "portmap"}, {"type": "istio-cni"}]}`
		r.write(r.path(netconf.ListName), chained)
		wait()
		r.expect("another's plugin", netconf.ListName, chained)
	})
	// Another installer has staged a list without one of the plugins; the chained one stays.
	r.write(filepath.Join(r.cfg.VarDir, netconf.StagedName), next)
	r.run(func(wait func()) {
		wait()
		close(r.served)
		wait()
		text, err := os.ReadFile(r.path(netconf.ListName))
		if err != nil || !strings.Contains(string(text), "istio-cni") || strings.Contains(string(text), "portmap") || !strings.Contains(string(text), "1400") {
			t.Errorf("after an upgrade: %s, %v", text, err)
		}
	})
	if _, err := os.Stat(r.path(netconf.ListName)); err != nil {
		t.Errorf("after the agent's end: %v", err)
	}
	if left, err := filepath.Glob(r.path(".*")); len(left) != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if len(r.events) != 0 {
		t.Error(r.events)
	}
}

// TestOthers: another file that comes first is reported and left alone, unless the node is configured to be ours alone.
func TestOthers(t *testing.T) {
	r := newRig(t)
	const foreign = `{"name": "m", "type": "multus"}`
	r.write(r.path("00-multus.conf"), foreign)
	r.write(r.path("00-notes.txt"), "")
	r.write(r.path("99-loopback.conf"), foreign)
	message := "00-multus.conf comes before 10-calico.conflist by name in " + r.cfg.Dir + ", so the runtime uses it in place of Calico's: if it doesn't mean to call that, " +
		"remove it from the node, or set CNI_EXCLUSIVE=true in calico-node's pod"
	r.run(func(wait func()) {
		close(r.served)
		wait()
		wait()
		r.expect("left alone", "00-multus.conf", foreign)
		if diff := cmp.Diff([]string{"AnotherNetworkConfiguration: " + message}, r.events); diff != "" {
			t.Error(diff)
		}
		if all := r.cfg.Problems.All(); len(all) != 1 || all[0].Reason != message {
			t.Error(all)
		}
		if page := r.page(); page != "ok" {
			t.Errorf("readiness: %s", page)
		}
		if err := os.Remove(r.path("00-multus.conf")); err != nil {
			t.Fatal(err)
		}
		wait()
		if all := r.cfg.Problems.All(); len(all) != 0 {
			t.Error(all)
		}
	})
	r.events, r.cfg.Exclusive = nil, true
	r.write(r.path("05-cilium.conflist"), foreign)
	r.run(func(wait func()) {
		close(r.served)
		wait()
		r.expect("renamed", "05-cilium.conflist", "")
		r.expect("renamed", "05-cilium.conflist.calico_bak", foreign)
		r.expect("behind ours", "99-loopback.conf", foreign)
		if len(r.events) != 1 || r.events[0] != "NetworkConfigurationRenamed: "+r.path("05-cilium.conflist")+" came before 10-calico.conflist, and is renamed to 05-cilium.conflist.calico_bak" {
			t.Error(r.events)
		}
	})
}

// TestWrong: what is wrong is on the readiness page, in one event, and is tried again.
func TestWrong(t *testing.T) {
	r := newRig(t)
	staged, dir := filepath.Join(r.cfg.VarDir, netconf.StagedName), r.cfg.Dir
	if err := os.Remove(staged); err != nil {
		t.Fatal(err)
	}
	r.run(func(wait func()) {
		close(r.served)
		wait()
		wait()
		want := "the network configuration is not in place: " + staged + " is not there: calico-install leaves it, as the init container of calico-node's pod or by hand"
		if page := r.page(); page != want {
			t.Errorf("readiness: %s, want %s", page, want)
		}
		if diff := cmp.Diff([]string{"NetworkConfigurationNotWritten: " + want}, r.events); diff != "" {
			t.Error(diff)
		}
		r.write(staged, `{"name": "net", "plugins": [{"type": "calico", "mtu": 1}]}`)
		wait()
		if page, want := r.page(), "plugins[0].mtu: want 0 or 68 to 65535 bytes, got 1: run calico-install again"; !strings.HasSuffix(page, want) {
			t.Errorf("readiness: %s, want %s", page, want)
		}
		r.write(staged, ours)
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		wait()
		if page, want := r.page(), "no such file or directory: it isn't there: in a pod, mount the node's directory"; !strings.Contains(page, want) {
			t.Errorf("readiness: %s, want %s", page, want)
		}
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		wait()
		if page := r.page(); page != "ok" {
			t.Errorf("readiness: %s", page)
		}
		r.expect("put right", netconf.ListName, ours)
	})
}

// pair creates a certificate and its key.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// TestTLS: the copies follow the secret as it rotates, and never hold a certificate with another's key.
func TestTLS(t *testing.T) {
	r := newRig(t)
	secret := t.TempDir()
	in := func(name string) string { return filepath.Join(secret, name) }
	r.cfg.CAFile, r.cfg.CertFile, r.cfg.KeyFile = in("ca"), in("cert"), in("key")
	cert, key := pair(t)
	newCert, newKey := pair(t)
	r.write(in("ca"), "ca")
	r.write(in("cert"), cert)
	r.write(in("key"), key)
	r.run(func(wait func()) {
		close(r.served)
		wait()
		r.expect("at first", "calico-tls/etcd-ca", "ca")
		r.expect("at first", "calico-tls/etcd-cert", cert)
		r.expect("at first", "calico-tls/etcd-key", key)
		if info, err := os.Stat(r.path("calico-tls/etcd-key")); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		r.write(in("cert"), newCert)
		wait()
		r.expect("half replaced", "calico-tls/etcd-cert", cert)
		if page := r.page(); !strings.Contains(page, "what was written before stays") {
			t.Errorf("readiness: %s", page)
		}
		r.write(in("key"), newKey)
		wait()
		r.expect("replaced", "calico-tls/etcd-cert", newCert)
		r.expect("replaced", "calico-tls/etcd-key", newKey)
		if page := r.page(); page != "ok" {
			t.Errorf("readiness: %s", page)
		}
	})
}
