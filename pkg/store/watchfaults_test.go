// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// TestWatchRolledBack restores etcd's data directory, and lets other changes take the lost revisions before a watch is
// back: the watch distinguishes the histories.
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

// TestWatchExpects announces revisions to a watch: some that it has received, some that it then receives, and one that
// never comes, upon which it leaves the member.
func TestWatchExpects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan clientv3.WatchResponse)
		w := &watch{prefixes: []string{configs}, seen: 1, expected: make(chan int64, 1)}
		done := make(chan error, 1)
		go func() { done <- w.hear(answers) }()
		tell := func(revision int64) {
			kv := &mvccpb.KeyValue{Key: []byte("/calico/other"), ModRevision: revision}
			answers <- clientv3.WatchResponse{Header: &pb.ResponseHeader{}, Events: []*clientv3.Event{{Kv: kv}}}
		}
		w.expected <- 1
		time.Sleep(2 * silence)
		for revision := int64(2); revision < 5; revision++ {
			w.expected <- 5 // again and again
			time.Sleep(silence - 1)
			tell(revision)
		}
		tell(5)
		time.Sleep(2 * silence)
		if synctest.Wait(); len(done) > 0 {
			t.Fatal(<-done)
		}
		w.expected <- 6
		before := time.Now()
		time.Sleep(silence / 2)
		w.expected <- 7
		if err := <-done; !errors.Is(err, errSilent) || time.Since(before) != silence {
			t.Errorf("%v after %v", err, time.Since(before))
		}
	})
}
