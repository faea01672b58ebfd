// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/eventually"
	"github.com/calico-go/calico/test/long"
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
		})
	}
}

// TestWatchResumed has a stream end while one prefix's entries wait for another prefix to reach their revision: on the
// next stream they come at once, though nothing else happens.
func TestWatchResumed(t *testing.T) {
	t.Parallel()
	s := startCluster(t, clusterOptions{}).open()
	ctx, stop := context.WithCancel(within(t, eventually.Limit))
	before := commit(t, s, model.Change{Puts: []model.Put{put("A", "1")}})
	waiting := commit(t, s, model.Change{Puts: []model.Put{put("A", "2")}})
	w := &watch{c: s, prefixes: []string{configs, hosts}, expected: make(chan int64, 1), merger: newMerger(2, before)}
	w.merger.event(0, waiting, model.Entry{Path: configs + "A", Revision: waiting})
	w.merger.arrived(0, waiting)
	var got []int64
	w.fn = func(u model.Update) error {
		got = append(got, u.Revision)
		stop()
		return nil
	}
	if err := w.follow(ctx); len(got) != 1 || got[0] != waiting {
		t.Errorf("revisions %v came, want %d: %v", got, waiting, err)
	}
}

// TestWatchMute has a member say nothing of what it is asked, and go on otherwise: a watch
// that is told that there is something leaves it.
func TestWatchMute(t *testing.T) {
	long.Test(t)
	t.Parallel()
	c := startCluster(t, clusterOptions{size: 3})
	writer := open(t, Config{Endpoints: []string{c.members[1].clientAddr}})
	for range 2 {
		s := c.open()
		s.current = 0
		var f folded
		f.start(t, s, configs, hosts)
		first := commit(t, writer, model.Change{Puts: []model.Put{put("A", "1")}})
		f.reaches(t, first)
		// A revision that isn't there costs a member or two, and nothing that is.
		s.Expect(first + 1000)
		c.members[0].mute.Store(true)
		second := commit(t, writer, model.Change{Puts: []model.Put{put("A", "2"), hostPut("A", "2")}})
		eventually.True(t, "the watch leaves the member", func() bool {
			s.Expect(second)
			r, _, _ := f.counts()
			return r == second
		})
		if _, _, resyncs := f.counts(); resyncs != 1 {
			t.Errorf("%d resyncs", resyncs)
		}
		c.members[0].mute.Store(false)
	}
}

// TestWatchExpects tells a watch of what its member has told it already, or of what is in no prefix of it: it stays
// where it is. It leaves one that doesn't answer.
func TestWatchExpects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &reached{answers: make(chan answer, 1), revision: 1}
		w := &watch{expected: make(chan int64), merger: newMerger(1, 1)}
		done := make(chan error, 1)
		go func() { done <- w.take(t.Context(), m, m.answers) }()
		for range 10 {
			m.revision++
			for range 2 {
				w.expected <- m.revision
				time.Sleep(2 * silence)
				synctest.Wait()
			}
		}
		if len(done) > 0 || m.asked != 10 {
			t.Errorf("asked %d times of 10 revisions", m.asked)
		}
		last := m.revision
		m.revision = 0
		w.expected <- last + 1
		if err := <-done; !errors.Is(err, errSilent) {
			t.Error(err)
		}
	})
}

// reached is a member that says which revision it has reached, and nothing where that is 0.
type reached struct {
	clientv3.Watcher
	answers  chan answer
	revision int64
	asked    int
}

func (r *reached) RequestProgress(context.Context) error {
	r.asked++
	if r.revision > 0 {
		r.answers <- answer{0, clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: r.revision}}}
	}
	return nil
}
