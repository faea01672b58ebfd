// SPDX-License-Identifier: Apache-2.0

package etcdguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// known are the addresses of an etcd with two names, one of them in DNS.
type known []netip.Addr

func (k known) Addrs() []netip.Addr { return slices.Clone(k) }

func (known) Names() []string { return []string{"etcd-1", "etcd-2"} }

func (known) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == "etcd-1" {
		return nil, errors.New("no such host")
	}
	return []netip.Addr{netip.MustParseAddr("::ffff:192.0.2.7")}, nil
}

// testGuard returns a guard of an etcd at two addresses and a name; routes to workloads cover the second address.
func testGuard(t *testing.T, said func(string)) *Guard {
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("10.65.0.9"), netip.MustParseAddr("127.0.0.1")}
	return &Guard{
		log:  slog.New(slog.NewTextHandler(t.Output(), nil)),
		etcd: known(addrs), resolver: known(nil),
		led: func(a netip.Addr) (bool, error) { return a == addrs[1], nil },
		remove: func(to ...netip.Addr) ([]netip.Prefix, func() error, error) {
			said(fmt.Sprint("remove ", to))
			return []netip.Prefix{netip.MustParsePrefix("192.0.2.0/26")}, func() error { said("restore"); return nil }, nil
		},
		heard: make(chan struct{}), byRoutes: map[netip.Addr]bool{},
	}
}

// TestAddrs: the routes to etcd's addresses are looked up once, when etcd has answered.
func TestAddrs(t *testing.T) {
	g := testGuard(t, func(string) {})
	if got := fmt.Sprint(g.Addrs()); got != "map[10.65.0.9:false 192.0.2.5:false]" {
		t.Errorf("before etcd has answered: %s", got)
	}
	g.Answered()
	g.Answered()
	g.led = func(netip.Addr) (bool, error) { return false, errors.New("asked again") }
	if got := fmt.Sprint(g.Addrs()); got != "map[10.65.0.9:true 192.0.2.5:false]" {
		t.Errorf("when it has: %s", got)
	}
	if got := fmt.Sprint(g.Needed()); got != "[192.0.2.5]" {
		t.Errorf("what no workload may have: %s", got)
	}
}

// TestRemoves: routes that lead away from an etcd that doesn't answer are removed, and come back if they were not the reason.
func TestRemoves(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers time.Duration
		want    []string
	}{
		{"it answers", 4 * time.Second, nil},
		{"it does without the routes", 6 * time.Second, []string{"5s remove [192.0.2.5 10.65.0.9 127.0.0.1 192.0.2.7]"}},
		{"it is away", 36 * time.Second, []string{"5s remove [192.0.2.5 10.65.0.9 127.0.0.1 192.0.2.7]", "35s restore"}},
		{"for long", 100 * time.Second, []string{"5s remove [192.0.2.5 10.65.0.9 127.0.0.1 192.0.2.7]", "35s restore", "1m35s remove [192.0.2.5 10.65.0.9 127.0.0.1 192.0.2.7]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var said []string
				g := testGuard(t, func(what string) { said = append(said, fmt.Sprint(time.Since(start), " ", what)) })
				ended := make(chan error)
				go func() { ended <- g.Run(t.Context()) }()
				time.Sleep(c.answers)
				g.Answered()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(c.want, said); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestRestores: an agent that ends while it tries without routes restores them: the next one would not know about them.
func TestRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		g := testGuard(t, func(what string) { said = append(said, what) })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"remove [192.0.2.5 10.65.0.9 127.0.0.1 192.0.2.7]", "restore"}, said); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
