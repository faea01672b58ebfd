// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"net/netip"
	"os"
	"testing"

	"github.com/calico-go/calico/pkg/nsm"
)

// TestFormerState: connections of other managers' clients are known by their managers, as a former version wrote them too, whose files had
// other names.
func TestFormerState(t *testing.T) {
	m := &Manager{cfg: Config{State: t.TempDir()}}
	if err := os.Mkdir(m.file(""), 0o700); err != nil {
		t.Fatal(err)
	}
	for id, text := range map[string]string{
		"1": `{"key":{"id":"1","service":"s","remote":true},"phase":"ready","request":{"id":"","service":"","namespace":0},"remote":"x","requestor":"b","made":7}`,
		"2": `{"key":{"id":"2","service":"s","remote":true},"phase":"ready","remote":"x","requestor":"","tunnel":{"vni":5,"local":"192.0.2.1","remote":"192.0.2.2","port":4795}}`,
	} {
		if err := os.WriteFile(m.file(fileName("s", id, "remote")), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(m.file(fileName("s", "1", "client")), []byte(`{"key":{"id":"1","service":"s"},"phase":"ready","requestor":""}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // as it was, and as it is written now
		m.ledger = nsm.Ledger{}
		if err := load(m.file(""), m.connectionFiles, m.ledger.Put); err != nil {
			t.Fatal(err)
		}
		b, _ := m.get(nsm.Key{ID: "1", Service: "s", Peer: "b"})
		address, _ := m.get(nsm.Key{ID: "2", Service: "s", Peer: "192.0.2.2"})
		client, _ := m.get(nsm.Key{ID: "1", Service: "s"})
		if b.Made != 7 || address.Tunnel.Remote != netip.MustParseAddr("192.0.2.2") || client.Phase != nsm.Ready || len(m.ledger.All()) != 3 {
			t.Errorf("%+v", m.ledger.All())
		}
		for _, c := range m.ledger.All() {
			if err := m.save(c); err != nil {
				t.Error(err)
			}
		}
		if files, err := os.ReadDir(m.file("")); len(files) != 3 || err != nil {
			t.Error(files, err)
		}
	}
}
