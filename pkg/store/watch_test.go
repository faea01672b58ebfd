// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// folded is what a watcher knows from its updates alone.
type folded struct {
	mu       sync.Mutex
	state    map[string]model.Entry
	revision int64
	updates  int
	resyncs  int
	restored int
	faults   []string
	history  []moment
}

// moment is what was known after one update.
type moment struct {
	revision int64
	state    map[string]model.Entry
}

func (f *folded) take(u model.Update) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.Revision < f.revision || u.Revision == f.revision && !u.Resync {
		f.faults = append(f.faults, fmt.Sprintf("revision %d after %d", u.Revision, f.revision))
	}
	f.revision = u.Revision
	f.updates++
	if u.Resync {
		f.resyncs++
		if u.Restored {
			f.restored++
		}
		f.state = make(map[string]model.Entry)
	}
	for _, e := range u.Entries {
		switch {
		case e.Exists():
			if old := f.state[e.Path]; !u.Resync && old.Revision >= e.Revision {
				f.faults = append(f.faults, fmt.Sprintf("%s: %d again after %d", e.Path, e.Revision, old.Revision))
			}
			f.state[e.Path] = e
		default:
			if _, ok := f.state[e.Path]; !ok {
				f.faults = append(f.faults, e.Path+" was deleted without being there")
			}
			delete(f.state, e.Path)
		}
	}
	f.history = append(f.history, moment{u.Revision, maps.Clone(f.state)})
	return nil
}

func (f *folded) counts() (revision int64, updates, resyncs int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision, f.updates, f.resyncs
}

func (f *folded) check(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.faults {
		t.Error(s)
	}
}

func (f *folded) values() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return texts(f.state)
}

func texts(state map[string]model.Entry) map[string]string {
	all := make(map[string]string)
	for path, e := range state {
		all[path] = fmt.Sprint(e.Value)
		if e.Err != nil {
			all[path] = "invalid"
		}
	}
	return all
}

// start watches until the test ends.
func (f *folded) start(t *testing.T, s *Client, prefixes ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Watch(ctx, prefixes, f.take) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
		f.check(t)
	})
}

func (f *folded) reaches(t *testing.T, revision int64) {
	t.Helper()
	eventually.True(t, fmt.Sprintf("revision %d", revision), func() bool {
		r, _, _ := f.counts()
		return r >= revision
	})
}

const (
	configs = "/calico/v1/config/"
	hosts   = "/calico/v1/host/"
)

func hostKey(name string) model.Key { return model.HostConfigKey{Host: "h", Name: name} }

func hostPut(name, value string) model.Put {
	return model.Put{Key: hostKey(name), Value: model.Text(value)}
}

func TestWatch(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s, admin := c.open(), c.admin()
	ctx := within(t, eventually.Limit)
	commit := func(ch model.Change) int64 {
		t.Helper()
		r, err := s.Commit(ctx, ch)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	commit(model.Change{Puts: []model.Put{put("A", "1"), hostPut("A", "1"), {Key: model.ReadyKey{}, Value: model.Ready(true)}}})
	for _, prefixes := range [][]string{{configs, hosts}, {"/calico/v1/"}} {
		var got []model.Update
		wctx, cancel := context.WithCancel(ctx)
		defer cancel()
		steps := []func(){
			func() { commit(model.Change{Puts: []model.Put{put("A", "2"), hostPut("A", "2"), put("B", "1")}}) },
			func() {
				commit(model.Change{Puts: []model.Put{{Key: model.IPAMConfigKey{}, Value: model.DefaultIPAMConfig}}})
				commit(model.Change{Deletes: []model.Key{configKey("B")}})
			},
			func() {
				if _, err := admin.Put(ctx, hosts+"h/metadata", "{"); err != nil {
					t.Error(err)
				}
			},
			func() { commit(model.Change{Deletes: []model.Key{model.HostMetadataKey{Host: "h"}}}) },
			func() { commit(model.Change{Puts: []model.Put{put("A", "1"), hostPut("A", "1")}}) },
			cancel,
		}
		err := s.Watch(wctx, prefixes, func(u model.Update) error {
			got = append(got, u)
			steps[len(got)-1]()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for i, u := range got {
			text := fmt.Sprint("resync ", u.Resync)
			// The order within a transaction is etcd's.
			slices.SortFunc(u.Entries, func(a, b model.Entry) int { return strings.Compare(a.Path, b.Path) })
			for _, e := range u.Entries {
				if e.Path == "/calico/v1/Ready" {
					continue
				}
				text += fmt.Sprintf(" %s=%v", e.Key.Path()[len("/calico/v1/"):], e.Value)
				if e.Err != nil {
					text += " invalid"
				}
				if !e.Exists() {
					text += " deleted"
				}
			}
			texts = append(texts, text)
			if i > 0 && u.Revision <= got[i-1].Revision {
				t.Errorf("revision %d after %d", u.Revision, got[i-1].Revision)
			}
		}
		want := []string{
			"resync true config/A=1 host/h/config/A=1",
			"resync false config/A=2 config/B=1 host/h/config/A=2",
			"resync false config/B=<nil> deleted",
			"resync false host/h/metadata=<nil> invalid",
			"resync false host/h/metadata=<nil> deleted",
			"resync false config/A=1 host/h/config/A=1",
		}
		if d := cmp.Diff(want, texts); d != "" {
			t.Errorf("%v: %s", prefixes, d)
		}
	}
}

func TestWatchEnds(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s := c.open()
	mine := errors.New("mine")
	if err := s.Watch(t.Context(), []string{configs}, func(model.Update) error { return mine }); err != mine {
		t.Errorf("got %v", err)
	}
	if err := s.Watch(t.Context(), nil, nil); err == nil {
		t.Error("a watch of nothing")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Watch(ctx, []string{configs}, nil); err != nil {
		t.Errorf("got %v", err)
	}
}

// TestWatchAlone: etcd can't be found for an hour.
func TestWatchAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, asked := open(t, Config{DiscoverySRV: "example.org"}), 0
		s.lookup = func(context.Context, string, string, string) (string, []*net.SRV, error) {
			asked++
			return "", nil, errors.New("no such host")
		}
		if err := s.Watch(within(t, time.Hour), []string{configs}, nil); err != nil {
			t.Errorf("got %v", err)
		}
		if perSecond := asked / 3600; perSecond < 1 || perSecond > 5 {
			t.Errorf("%d lookups a second", perSecond)
		}
	})
}

// TestWatchResumes breaks the connection and checks that missed changes are delivered, without a resync.
func TestWatchResumes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	s, proxy := c.open(), c.members[0].proxy
	direct := open(t, Config{Endpoints: []string{c.members[0].clientAddr}})
	ctx := within(t, eventually.Limit)
	var f folded
	f.start(t, s, configs, hosts)
	var last int64
	for i := range 20 {
		if i%4 == 0 {
			proxy.set(refuse)
		}
		var err error
		last, err = direct.Commit(ctx, model.Change{Puts: []model.Put{put("A", fmt.Sprint(i)), hostPut("A", fmt.Sprint(i)), put(fmt.Sprint(i), "x")}})
		if err != nil {
			t.Fatal(err)
		}
		proxy.set(forward)
		if i%4 == 3 {
			f.reaches(t, last)
		}
	}
	if _, updates, resyncs := f.counts(); resyncs != 1 || updates > 21 {
		t.Errorf("%d updates, %d resyncs", updates, resyncs)
	}
}

func TestWatchCompacted(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s := c.open()
	ctx := within(t, eventually.Limit)
	for i := range 3 {
		if _, err := s.Commit(ctx, model.Change{Puts: []model.Put{put(fmt.Sprint(i), "old")}}); err != nil {
			t.Fatal(err)
		}
	}
	direct := open(t, Config{Endpoints: []string{c.members[0].clientAddr}})
	var f folded
	f.start(t, s, configs, hosts)
	eventually.True(t, "the snapshot", func() bool { _, n, _ := f.counts(); return n == 1 })

	c.members[0].proxy.set(refuse)
	if _, err := direct.Commit(ctx, model.Change{Deletes: []model.Key{configKey("0")}}); err != nil {
		t.Fatal(err)
	}
	last, err := direct.Commit(ctx, model.Change{Puts: []model.Put{put("1", "new")}})
	if err != nil {
		t.Fatal(err)
	}
	compactor, err := clientv3.New(clientv3.Config{Endpoints: []string{c.members[0].clientAddr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compactor.Compact(ctx, last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	compactor.Close()
	c.members[0].proxy.set(forward)
	f.reaches(t, last)
	if d := cmp.Diff(map[string]string{configs + "1": "new", configs + "2": "old"}, f.values()); d != "" {
		t.Error(d)
	}
	if _, _, resyncs := f.counts(); resyncs != 2 || f.restored != 0 {
		t.Errorf("%d resyncs, %d of an etcd that was restored", resyncs, f.restored)
	}
}

// TestWatchOtherCluster replaces etcd with an empty one: revisions start over.
func TestWatchOtherCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	s, m := c.open(), c.members[0]
	ctx := within(t, eventually.Limit)
	for i := range 10 {
		if _, err := s.Commit(ctx, model.Change{Puts: []model.Put{put(fmt.Sprint(i), "old")}}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	state := map[string]model.Entry{}
	wctx, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() {
		done <- s.Watch(wctx, []string{configs}, func(u model.Update) error {
			mu.Lock()
			defer mu.Unlock()
			if u.Resync {
				clear(state)
			}
			for _, e := range u.Entries {
				state[e.Path] = e
			}
			return nil
		})
	}()
	holds := func(want map[string]string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return cmp.Equal(want, texts(state))
		}
	}
	eventually.True(t, "the snapshot", func() bool { mu.Lock(); defer mu.Unlock(); return len(state) == 10 })
	m.stop()
	m.wipe()
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "nothing is left", holds(map[string]string{}))
	if _, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", "new")}}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the new cluster's content", holds(map[string]string{configs + "A": "new"}))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWatchWithoutLeader isolates a member: it must not be mistaken for a quiet one.
func TestWatchWithoutLeader(t *testing.T) {
	long.Test(t)
	t.Parallel()
	c := startCluster(t, clusterOptions{size: 3})
	s := c.open(func(cfg *Config) { cfg.Endpoints = cfg.Endpoints[:1] })
	var f folded
	f.start(t, s, configs, hosts)
	eventually.True(t, "the snapshot", func() bool { _, n, _ := f.counts(); return n == 1 })
	c.members[1].stop()
	c.members[2].stop()
	// Not in the log, where the first trouble may be that the member leaves it without an answer.
	eventually.True(t, "the watch ends", func() bool {
		_, err := s.WatchTrouble()
		return err != nil && strings.Contains(err.Error(), "no leader")
	})
	started := make(chan error)
	for _, m := range c.members[1:] {
		go func() { started <- m.start() }()
	}
	for range 2 {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	f.reaches(t, commit(t, c.open(), model.Change{Puts: []model.Put{put("A", "1")}}))
	if _, _, resyncs := f.counts(); resyncs != 1 {
		t.Errorf("%d resyncs", resyncs)
	}
}

func TestDisjoint(t *testing.T) {
	for _, tt := range []struct {
		prefixes, want []string
		common         string
	}{
		{[]string{"/b/", "/a/b/", "/a/", "/b/", "/a", "/c/"}, []string{"/a", "/b/", "/c/"}, "/"},
		{[]string{hosts, configs}, []string{configs, hosts}, "/calico/v1/"},
		{[]string{hosts, "/calico/v1/", configs}, []string{"/calico/v1/"}, "/calico/v1/"},
	} {
		roots, common, err := disjoint(tt.prefixes)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, roots); d != "" || common != tt.common {
			t.Errorf("%v have %q in common: %s", tt.prefixes, common, d)
		}
	}
	var many []string
	for i := range maxOps + 1 {
		many = append(many, fmt.Sprintf("/%d/", i))
	}
	for _, bad := range [][]string{nil, {""}, {"a", "b"}, many} {
		if _, _, err := disjoint(bad); err == nil {
			t.Errorf("%d prefixes were taken", len(bad))
		}
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
