// SPDX-License-Identifier: Apache-2.0

package ctl_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/ctl"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// TestWatchDeleted: each line of a watch is in the requested format, or on stderr, and about a named resource.
func TestWatchDeleted(t *testing.T) {
	s := etcd.New(t)
	key, other := model.PoolKey{CIDR: netip.MustParsePrefix("10.0.0.0/16")}, model.PoolKey{CIDR: netip.MustParsePrefix("10.1.0.0/16")}
	for _, format := range []string{"json", "name", "table"} {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		out, w := io.Pipe()
		var errs strings.Builder
		s.Put(key, model.Pool{CIDR: key.CIDR, IPAM: true, Meta: model.Meta{Name: "pods"}})
		s.Put(other, model.Pool{CIDR: other.CIDR, IPAM: true})
		wg.Go(func() {
			env := &session.Env{Stdout: w, Stderr: &errs, Environ: []string{"ETCD_ENDPOINTS=http://" + s.Addr()}}
			ctl.Run(ctx, env, []string{"get", "pools", "10.0.0.0/16", "none", "--watch", "-o", format})
			w.Close()
		})
		var got []string
		switch format {
		case "json":
			decoder := json.NewDecoder(out)
			for range 3 {
				var event struct {
					Type             string
					Metadata, Object struct {
						Name     string
						Metadata struct{ Name string }
					}
				}
				if err := decoder.Decode(&event); err != nil {
					t.Fatal(err)
				}
				got = append(got, event.Type+event.Metadata.Name+event.Object.Metadata.Name)
				s.Remove(other)
				if len(got) == 2 {
					s.Put(key, model.Pool{CIDR: key.CIDR, IPAM: true, Meta: model.Meta{Name: "pods"}})
				} else {
					s.Remove(key)
				}
			}
		default:
			lines := bufio.NewScanner(out)
			line := func() {
				if lines.Scan() {
					got = append(got, lines.Text())
				}
			}
			line()
			if format == "table" {
				line()
			}
			s.Remove(key)
			if format == "name" { // what comes next is behind the deletion
				s.Put(key, model.Pool{CIDR: key.CIDR, IPAM: true, Meta: model.Meta{Name: "pods"}})
			}
			line()
		}
		cancel()
		go func() { _, _ = io.Copy(io.Discard, out) }() // what it was about to say
		wg.Wait()
		want := map[string][]string{
			"json": {"pods", "DELETEDpods", "pods"}, "name": {"ippool/pods", "ippool/pods"}, "table": {"NAME   CIDR          SELECTOR", "pods   10.0.0.0/16   all()", "IPPool pods deleted"},
		}[format]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", format, diff)
		}
		if format == "name" && !strings.Contains(errs.String(), "calicoctl: IPPool pods deleted\n") {
			t.Errorf("stderr: %s", &errs)
		}
	}
}

// TestWatchSelected: a watch of a selector tells of what the selector picks, and that it picks one no longer, and of nothing else.
func TestWatchSelected(t *testing.T) {
	s := etcd.New(t)
	put := func(cidr string, labels map[string]string) {
		p := model.Pool{CIDR: netip.MustParsePrefix(cidr), IPAM: true, Meta: model.Meta{Labels: model.MapText(labels)}}
		s.Put(model.PoolKey{CIDR: p.CIDR}, p)
	}
	put("10.0.0.0/16", map[string]string{"rack": "a"})
	put("10.1.0.0/16", nil)
	ctx, cancel := context.WithCancel(t.Context())
	out, w := io.Pipe()
	var errs strings.Builder
	var wg sync.WaitGroup
	wg.Go(func() {
		env := &session.Env{Stdout: w, Stderr: &errs, Environ: []string{"ETCD_ENDPOINTS=http://" + s.Addr()}}
		ctl.Run(ctx, env, []string{"get", "pools", "-l", "rack in (a, b)", "--watch"})
		w.Close()
	})
	lines := bufio.NewScanner(out)
	for i, want := range []string{"NAME          CIDR          SELECTOR", "10.0.0.0-16   10.0.0.0/16   all()", "IPPool 10.0.0.0-16 deleted", "10.1.0.0-16   10.1.0.0/16   all()", "IPPool 10.1.0.0-16 deleted"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, want %q; stderr: %s", lines.Text(), want, &errs)
		}
		switch i {
		case 1:
			put("10.0.0.0/16", map[string]string{"rack": "c"})
		case 2:
			s.Remove(model.PoolKey{CIDR: netip.MustParsePrefix("10.0.0.0/16")})
			put("10.1.0.0/16", map[string]string{"rack": "b"})
		case 3:
			s.Remove(model.PoolKey{CIDR: netip.MustParsePrefix("10.1.0.0/16")})
		}
	}
	cancel()
	wg.Wait()
}

// TestProgressEnds: no progress is reported while a command waits for the reader of its output, such as a pager.
func TestProgressEnds(t *testing.T) {
	s := etcd.New(t)
	now := make(chan time.Time)
	out, w := io.Pipe()
	var errs strings.Builder
	var wg sync.WaitGroup
	wg.Go(func() {
		env := &session.Env{Stdout: w, Stderr: &errs, Environ: []string{"ETCD_ENDPOINTS=http://" + s.Addr()}, After: func(time.Duration) <-chan time.Time { return now }}
		ctl.Run(t.Context(), env, []string{"get", "tiers"})
		w.Close()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second is heard once nothing is left to be said by the first
		now <- time.Time{}
	}
	_, _ = io.Copy(io.Discard, out)
	wg.Wait()
	if errs.Len() > 0 {
		t.Errorf("stderr: %s", &errs)
	}
}
