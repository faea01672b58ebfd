// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/nsm"
)

// FuzzState: a connection that a file holds is forgotten with that file, and written as it was read; an error names the file.
func FuzzState(f *testing.F) {
	c := nsm.Connection{Key: nsm.Key{ID: "1", Service: "s"}, Phase: nsm.Ready, Client: nsm.End{Namespace: 7, Name: "nsm0"}}
	env := run.Env{Problems: problems.New(slog.New(slog.DiscardHandler))}
	m := &Manager{Env: env, cfg: Config{State: f.TempDir()}}
	path := m.file(name(c.Key))
	if err := os.Mkdir(m.file(""), 0o700); err != nil {
		f.Fatal(err)
	}
	if err := m.save(c); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte("null"))
	f.Add([]byte(strings.Replace(string(good), `"id":"1"`, `"id":"2"`, 1)))
	f.Add([]byte(strings.Replace(string(good), `"id":"1"`, `"id":"1","peer":"b"`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &Manager{Env: env, cfg: m.cfg}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := load(m.file(""), m.connectionFiles, m.ledger.Put); err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Fatal(err)
			}
			return
		}
		had, known := m.get(c.Key)
		if !known || len(m.ledger.All()) != 1 {
			t.Fatalf("%+v is not what the file is of", m.ledger.All())
		}
		again := &Manager{Env: env, cfg: m.cfg}
		if err := m.save(had); err != nil {
			t.Fatal(err)
		}
		if err := load(m.file(""), m.connectionFiles, again.ledger.Put); err != nil {
			t.Fatal(err)
		}
		got, _ := again.get(c.Key)
		if diff := cmp.Diff(had, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		if err := m.forget(c.Key); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(m.file("")); len(left) > 0 || err != nil {
			t.Fatal(left, err)
		}
	})
}
