// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// increment decides to increment a counter.
func increment(name string) func(*model.View) (model.Change, error) {
	return func(v *model.View) (model.Change, error) {
		key := configKey(name)
		text, _ := v.Get(key).Value.(model.Text)
		n, _ := strconv.Atoi(string(text))
		return model.Change{Compares: []model.Compare{v.Compare(key)}, Puts: []model.Put{put(name, strconv.Itoa(n+1))}}, nil
	}
}

func text(t *testing.T, s *Client, name string) string {
	t.Helper()
	snapshot, err := s.Read(within(t, eventually.Limit), model.KeyRange(configKey(name)))
	if err != nil {
		t.Fatal(err)
	}
	e, _ := snapshot.Get(configKey(name))
	value, _ := e.Value.(model.Text)
	return string(value)
}

// TestTransactConflict: many writers increment one counter.
func TestTransactConflict(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	const writers, times = 5, 10
	var wg sync.WaitGroup
	for range writers {
		s := c.open()
		wg.Go(func() {
			for range times {
				if _, err := s.Transact(within(t, eventually.Limit), []model.Range{model.KeyRange(configKey("N"))}, increment("N")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := text(t, c.open(), "N"); got != strconv.Itoa(writers*times) {
		t.Errorf("the counter is %s, want %d", got, writers*times)
	}
}

// TestTransactDeadline: another writer is always faster.
func TestTransactDeadline(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s, faster := c.open(), c.open()
	ctx, cancel := context.WithCancel(within(t, eventually.Limit))
	attempts := 0
	_, err := s.Transact(ctx, []model.Range{model.KeyRange(configKey("N"))}, func(v *model.View) (model.Change, error) {
		if attempts++; attempts == 4 {
			cancel()
		}
		if _, err := faster.Transact(t.Context(), []model.Range{model.KeyRange(configKey("N"))}, increment("N")); err != nil {
			t.Error(err)
		}
		return increment("N")(v)
	})
	if !errors.Is(err, context.Canceled) || attempts != 4 {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
}

// TestTransactNeedsMore reads in several rounds, all at one revision.
func TestTransactNeedsMore(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s, ctx := c.open(), within(t, eventually.Limit)
	first := commit(t, s, model.Change{Puts: []model.Put{put("A", "1"), put("B", "1")}})
	var many []model.Range
	for i := range maxOps + 1 {
		many = append(many, model.KeyRange(configKey(fmt.Sprint(i))))
	}
	var got []string
	read := func(v *model.View) (model.Change, error) {
		if v.Revision() != first {
			t.Errorf("revision %d, want %d", v.Revision(), first)
		}
		if !v.Has(configKey("B")) {
			commit(t, c.open(), model.Change{Puts: []model.Put{put("B", "2"), put("7", "x")}})
			return model.Change{}, &model.NeedRangesError{Ranges: append(many, model.KeyRange(configKey("B")))}
		}
		for _, k := range []string{"A", "B", "7"} {
			got = append(got, fmt.Sprint(v.Get(configKey(k)).Value))
		}
		return model.Change{}, nil
	}
	before := s.Counters().RoundTrips
	var decided int
	revision, err := s.Transact(ctx, []model.Range{model.KeyRange(configKey("A"))}, read, BeforeCommit(func(*model.View) error { decided++; return nil }))
	if err != nil || revision != first || decided != 1 {
		t.Errorf("revision %d, want %d; decided %d times: %v", revision, first, decided, err)
	}
	if d := cmp.Diff([]string{"1", "1", "<nil>"}, got); d != "" {
		t.Error(d)
	}
	if n := s.Counters().RoundTrips - before; n != 3 {
		t.Errorf("%d round trips, want 3", n)
	}

	forever := func(*model.View) (model.Change, error) {
		return model.Change{}, &model.NeedRangesError{}
	}
	if _, err := s.Transact(ctx, nil, forever); err == nil {
		t.Error("a decision that always needs more is made")
	}
	mine := errors.New("mine")
	for name, tt := range map[string]struct{ decide, before error }{"decide": {mine, nil}, "before": {nil, mine}} {
		_, err := s.Transact(ctx, nil, func(*model.View) (model.Change, error) { return model.Change{}, tt.decide },
			BeforeCommit(func(*model.View) error { return tt.before }))
		if !errors.Is(err, mine) {
			t.Errorf("%s fails: %v", name, err)
		}
	}
}

// TestTransactDryRun decides and changes nothing.
func TestTransactDryRun(t *testing.T) {
	s := startCluster(t, clusterOptions{}).open()
	ctx, wants := within(t, eventually.Limit), []model.Range{model.KeyRange(configKey("N"))}
	var would []model.Change
	for range 2 {
		if _, err := s.Transact(ctx, wants, increment("N"), DryRun(&would)); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, err := s.Read(ctx, wants...)
	if len(would) != 2 || len(would[1].Puts) != 1 || len(snapshot.Entries()) > 0 || err != nil {
		t.Errorf("would %+v, holds %+v, %v", would, snapshot.Entries(), err)
	}
}

// TestTransactUnknown loses the answer to a commit that took effect.
func TestTransactUnknown(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s, door := c.open(), c.members[0].proxy
	direct := open(t, Config{Endpoints: []string{c.members[0].clientAddr}})
	ctx, wants := within(t, eventually.Limit), []model.Range{model.KeyRange(configKey("N"))}
	lose := BeforeCommit(func(v *model.View) error {
		if v.Get(configKey("N")).Exists() {
			return nil
		}
		door.set(deafen)
		go func() {
			defer door.set(forward)
			defer door.set(refuse)
			for ctx.Err() == nil && text(t, direct, "N") != "1" {
			}
		}()
		return nil
	})
	unknown := 0
	_, err := s.Transact(ctx, wants, increment("N"), lose, AfterUnknown(func(_ context.Context, change model.Change) error {
		unknown++
		return nil
	}))
	if err != nil || unknown != 1 || text(t, direct, "N") != "2" {
		t.Errorf("N is %s after %d lost answers: %v", text(t, direct, "N"), unknown, err)
	}
}

// TestWriteKeeps: parts of a value that a change isn't about stay as they are in etcd.
func TestWriteKeeps(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	admin, s := c.admin(), c.open()
	ctx := within(t, eventually.Limit)
	key := model.WorkloadEndpointKey{Host: "a", Orchestrator: "k8s", Workload: "d.web", Endpoint: "eth0"}
	const stored = `{"state":"active","name":"cali1","later":{"x": 1.0},"ipv4_nets":["10.0.0.1/32"],"labels":{"a":"b"}}`
	relabel := func(e model.Entry) model.Change {
		value := e.Value.(model.WorkloadEndpoint)
		value.Labels = model.Labels{"a": "c"}
		return model.Change{Compares: []model.Compare{{Key: key, Revision: e.Revision}}, Puts: []model.Put{{Key: key, Value: value}}}
	}
	for name, write := range map[string]func() error{
		"Transact": func() error {
			_, err := s.Transact(ctx, []model.Range{model.KeyRange(key)}, func(v *model.View) (model.Change, error) { return relabel(v.Get(key)), nil })
			return err
		},
		"Commit": func() error {
			snapshot, err := s.Read(ctx, model.KeyRange(key))
			if err != nil {
				return err
			}
			e, _ := snapshot.Get(key)
			_, err = s.Commit(ctx, relabel(e))
			return err
		},
	} {
		if _, err := admin.Put(ctx, key.Path(), stored); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		resp, err := admin.Get(ctx, key.Path())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(resp.Kvs[0].Value), strings.Replace(stored, `"b"`, `"c"`, 1); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
