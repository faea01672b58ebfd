// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"crypto/sha1"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// TestNotes has containers whose names make the same handle, and notes of versions that
// wrote no endpoint and found them by the handle.
func TestNotes(t *testing.T) {
	d := newDelegations(t.TempDir())
	key := model.WorkloadEndpointKey{Host: "n 1", Orchestrator: "k8s", Workload: "shop.web", Endpoint: "eth0"}
	all := []delegation{
		{network: "neta", cid: "b.c", ifName: "eth0", hostIf: "cali1", key: key},
		{network: "neta.b", cid: "c", ifName: "eth0", hostIf: "cali2", key: key},
		{network: "neta", cid: "b", ifName: "c.eth0", hostIf: "cali3", key: key},
	}
	for _, x := range all {
		for _, want := range []bool{false, true} {
			if former, err := d.note(x); err != nil || former != want {
				t.Errorf("note of %+v: %v, %v, want %v", x, former, err, want)
			}
		}
	}
	for _, x := range all {
		if got, ok := d.read(x); !ok || got != x {
			t.Errorf("read %+v, %v, want %+v", got, ok, x)
		}
		if err := d.forget(x); err != nil {
			t.Error(err)
		}
		if _, ok := d.read(x); ok {
			t.Errorf("%+v is not forgotten", x)
		}
	}

	sum := sha1.Sum([]byte("neta.b.c.eth0"))
	old := filepath.Join(d.dir, hex.EncodeToString(sum[:]))
	if err := os.Symlink("neta b.c eth0 cali1", old); err != nil {
		t.Fatal(err)
	}
	all[0].key = model.WorkloadEndpointKey{}
	if got, ok := d.read(all[0]); !ok || got != all[0] {
		t.Errorf("read %+v, %v, want %+v", got, ok, all[0])
	}
	got, err := d.of("neta")
	if diff := cmp.Diff(all[:1], got, cmp.AllowUnexported(delegation{})); err != nil || diff != "" {
		t.Errorf("notes of the network: %v (-want +got):\n%s", err, diff)
	}
	if err := d.forget(all[0]); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(old); !os.IsNotExist(err) {
		t.Errorf("the older note: %v", err)
	}
}
