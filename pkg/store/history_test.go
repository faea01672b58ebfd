// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
	"github.com/calico-go/calico/test/long"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "12") // they wait for etcd more than they compute
	code := m.Run()
	if code == 0 {
		// Nothing of a closed client stays. Members of etcd that were killed leave
		// their connections to each other, which are HTTP of net/http.
		if err := leaks(
			goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
			goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
			goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"),
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks waits until no goroutine is left; the error lists those that are.
func leaks(ignore ...goleak.Option) error {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit)
	defer cancel()
	return eventually.Wait(ctx, "goroutines to end", func() error { return goleak.Find(ignore...) })
}

// scribble writes pairs of keys, both below different prefixes and always equal
// after each transaction, until the context ends.
func scribble(ctx context.Context, t *testing.T, s *Client, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	for i := 0; ctx.Err() == nil; i++ {
		name, value := fmt.Sprint("P", r.IntN(20)), fmt.Sprint(seed, "-", i)
		change := model.Change{Puts: []model.Put{put(name, value), hostPut(name, value)}}
		switch r.IntN(4) {
		case 0:
			change = model.Change{Deletes: []model.Key{configKey(name), hostKey(name)}}
		case 1:
			name := fmt.Sprint("Q", r.IntN(20))
			change.Puts = append(change.Puts, put(name, value))
		case 2:
			change = model.Change{Puts: []model.Put{{Key: model.IPAMConfigKey{}, Value: model.DefaultIPAMConfig}}} // not watched
		}
		_, err := s.Commit(ctx, change)
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
			t.Errorf("commit: %v", err)
		}
		if retry.Wait(ctx, rand.N(4*time.Millisecond)) != nil {
			return
		}
	}
}

// TestHistory changes etcd at random while its members are stopped, killed, cut off and stalled, and the watchers with
// them. What each watcher knows must be what etcd held, at every revision that it was told about.
func TestHistory(t *testing.T) {
	long.Test(t)
	t.Parallel()
	c := startCluster(t, clusterOptions{size: 3})
	var watchers [3]folded
	for i := range watchers {
		s := c.open()
		s.current = i
		if i == 0 {
			watchers[i].start(t, s, "/calico/v1/")
		} else {
			watchers[i].start(t, s, configs, hosts)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var writers sync.WaitGroup
	for i := range uint64(2) {
		s := c.open()
		writers.Go(func() { scribble(ctx, t, s, i) })
	}
	moves := func() {
		t.Helper()
		before := make([]int, len(watchers))
		for i := range watchers {
			_, before[i], _ = watchers[i].counts()
		}
		eventually.True(t, "every watcher moves on", func() bool {
			for i := range watchers {
				if _, n, _ := watchers[i].counts(); n < before[i]+20 {
					return false
				}
			}
			return true
		})
	}
	moves()
	for i, m := range c.members { // each in turn
		if i == 1 {
			m.halt()
		}
		m.stop()
		moves()
		if err := m.start(); err != nil {
			t.Fatal(err)
		}
		moves()
	}
	var leader *server
	eventually.True(t, "a leader", func() bool { leader = c.leader(); return leader != nil })
	leader.halt()
	leader.stop()
	moves()
	if err := leader.start(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		p := c.members[rand.IntN(3)].proxy
		p.set(refuse)
		p.set(forward)
		moves()
	}
	cancel()
	writers.Wait()

	admin := c.admin()
	last := put("Last", "x")
	final := commit(t, c.open(), model.Change{Puts: []model.Put{last, hostPut("Last", "x")}})
	dump := dumps(t, admin)
	for i := range watchers {
		f := &watchers[i]
		f.reaches(t, final)
		if _, _, resyncs := f.counts(); resyncs != 1 {
			t.Errorf("watcher %d: %d resyncs although nothing was compacted", i, resyncs)
		}
		f.mu.Lock()
		for n, m := range f.history {
			if d := cmp.Diff(paired(m.state, configs), paired(m.state, hosts+"h/config/")); d != "" {
				t.Fatalf("watcher %d saw half a transaction at revision %d: %s", i, m.revision, d)
			}
			if n%7 != 0 && n != len(f.history)-1 {
				continue
			}
			if d := cmp.Diff(dump(m.revision), texts(m.state)); d != "" {
				t.Fatalf("watcher %d at revision %d: %s", i, m.revision, d)
			}
		}
		t.Logf("watcher %d: %d updates", i, len(f.history))
		f.mu.Unlock()
	}
}

// paired are the values of the keys P… below a prefix.
func paired(state map[string]model.Entry, prefix string) map[string]string {
	all := make(map[string]string)
	for i := range 20 {
		name := fmt.Sprint("P", i)
		if e, ok := state[prefix+name]; ok {
			all[name] = fmt.Sprint(e.Value)
		}
	}
	return all
}

// dumps reads the content of etcd at a revision.
func dumps(t *testing.T, admin *clientv3.Client) func(revision int64) map[string]string {
	known := map[int64]map[string]string{}
	return func(revision int64) map[string]string {
		t.Helper()
		if d := known[revision]; d != nil {
			return d
		}
		resp, err := admin.Get(within(t, eventually.Limit), "/calico/v1/", clientv3.WithPrefix(), clientv3.WithRev(revision))
		if err != nil {
			t.Fatal(err)
		}
		d := make(map[string]string)
		for _, kv := range resp.Kvs {
			d[string(kv.Key)] = string(kv.Value)
		}
		known[revision] = d
		return d
	}
}

// TestCompaction compacts all the time, while large snapshots are read in pages and connections break.
func TestCompaction(t *testing.T) {
	long.Test(t)
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, admin := c.open(), c.admin()
	for i := 0; i < 3*pageSize; i += maxOps {
		var ch model.Change
		for j := range maxOps {
			ch.Puts = append(ch.Puts, put(fmt.Sprint("N", i+j), "x"))
		}
		if _, err := s.Commit(ctx, ch); err != nil {
			t.Fatal(err)
		}
	}
	var work sync.WaitGroup
	work.Go(func() { scribble(ctx, t, open(t, Config{Endpoints: []string{c.members[0].clientAddr}}), 1) })
	work.Go(func() {
		for retry.Wait(ctx, rand.N(300*time.Millisecond)) == nil {
			if resp, err := admin.Get(ctx, "x"); err == nil {
				admin.Compact(ctx, resp.Header.Revision)
			}
		}
	})
	var watchers [2]folded
	for i := range watchers {
		watchers[i].start(t, c.open(), configs, hosts)
	}
	for range 4 {
		before := make([]int, len(watchers))
		for i := range watchers {
			_, before[i], _ = watchers[i].counts()
		}
		c.members[0].proxy.set(refuse)
		c.members[0].proxy.set(forward)
		eventually.True(t, "every watcher moves on", func() bool {
			for i := range watchers {
				if _, n, _ := watchers[i].counts(); n < before[i]+5 {
					return false
				}
			}
			return true
		})
	}
	cancel()
	work.Wait()
	final, err := s.Commit(within(t, eventually.Limit), model.Change{Puts: []model.Put{put("Last", "x")}})
	if err != nil {
		t.Fatal(err)
	}
	dump := dumps(t, admin)
	for i := range watchers {
		f := &watchers[i]
		f.reaches(t, final)
		f.mu.Lock()
		last := f.history[len(f.history)-1] // a commit that was under way as its context ended may come after the final one
		f.mu.Unlock()
		if d := cmp.Diff(dump(last.revision), texts(last.state)); d != "" {
			t.Errorf("watcher %d at revision %d: %s", i, last.revision, d)
		}
		_, updates, resyncs := f.counts()
		t.Logf("watcher %d: %d updates, %d resyncs", i, updates, resyncs)
	}
}
