// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/eventually"
)

// TestWatchRolledBack puts back etcd's data directory, and has other changes take the
// revisions of those that are gone before a watch is back: it tells one history from the other.
func TestWatchRolledBack(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string][]model.Change{
		"put":                          {{Puts: []model.Put{put("A", "lost"), hostPut("A", "lost")}}},
		"put like next":                {{Puts: []model.Put{put("B", "lost")}}},
		"deletion of what isn't there": {{Puts: []model.Put{put("L", "lost")}}, {Deletes: []model.Key{configKey("L")}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, clusterOptions{})
			m, ctx := c.members[0], within(t, eventually.Limit)
			direct := open(t, Config{Endpoints: []string{m.clientAddr}})
			commit := func(ch model.Change) int64 {
				t.Helper()
				r, err := direct.Commit(ctx, ch)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			commit(model.Change{Puts: []model.Put{put("A", "kept"), hostPut("A", "kept")}})
			m.stop()
			backup := filepath.Join(t.TempDir(), "backup")
			if err := os.CopyFS(backup, os.DirFS(m.cfg.Dir)); err != nil {
				t.Fatal(err)
			}
			if err := m.start(); err != nil {
				t.Fatal(err)
			}
			wire := startProxy(t, m.clientAddr)
			wire.set(forward)
			var f folded
			f.start(t, open(t, Config{Endpoints: []string{wire.addr}}), configs, hosts)
			eventually.True(t, "the snapshot", func() bool { _, n, _ := f.counts(); return n == 1 })
			for _, ch := range lost {
				f.reaches(t, commit(ch))
			}
			wire.set(refuse)
			m.stop()
			m.cfg.Dir = backup
			if err := m.start(); err != nil {
				t.Fatal(err)
			}
			commit(model.Change{Puts: []model.Put{put("B", "0"), put("D", "once")}})
			for i := range 2 {
				commit(model.Change{Puts: []model.Put{put("B", fmt.Sprint(1+i))}})
			}
			wire.set(forward)
			f.reaches(t, commit(model.Change{Puts: []model.Put{put("C", "last")}}))
			want := map[string]string{configs + "A": "kept", hosts + "h/config/A": "kept", configs + "B": "2", configs + "C": "last", configs + "D": "once"}
			if d := cmp.Diff(want, f.values()); d != "" {
				t.Error(d)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.restored != 1 {
				t.Errorf("it is told %d times that etcd was restored", f.restored)
			}
		})
	}
}
