// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
)

// connectAs connects with a certificate of a user's.
func connectAs(t *testing.T, a *authority, c *cluster, user string) *Client {
	t.Helper()
	ca, cert, key := a.files(t, user)
	client, err := Open(t.Context(), Config{Endpoints: c.endpoints(), CAFile: ca, CertFile: cert, KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestSetUsers checks the permissions of users, who are identified by their certificates.
func TestSetUsers(t *testing.T) {
	a := newAuthority(t)
	c := startSecure(t, a, 1, true)
	ctx := t.Context()
	as := func(name string) *Client { return connectAs(t, a, c, name) }
	root, node, ctl, stranger := as(RootUser), as("node"), as("ctl"), as("stranger")
	users := []User{{"node", []string{"/calico/v1/host/", "/calico/v1/config/"}}, {"ctl", []string{model.Root}}}
	if err := root.SetUsers(ctx, users...); err != nil {
		t.Fatal(err)
	}
	// Again, and with less.
	users[0].Write = users[0].Write[:1]
	if err := root.SetUsers(ctx, users...); err != nil {
		t.Fatal(err)
	}
	revision := func() (r uint64) {
		err := root.administer(ctx, "read the revision of etcd's users", func(ctx context.Context, client *clientv3.Client) error {
			resp, err := client.AuthStatus(ctx)
			if err == nil {
				r = resp.AuthRevision
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := revision()
	if err := root.SetUsers(ctx, users...); err != nil || revision() != before {
		t.Errorf("the same users again: %v, revision %d, then %d", err, before, revision())
	}
	host := model.Put{Key: model.HostConfigKey{Host: "a", Name: "Name"}, Value: model.Text("x")}
	pool := netip.MustParsePrefix("10.0.0.0/16")
	config, put := model.Put{Key: model.GlobalConfigKey{Name: "Name"}, Value: model.Text("x")},
		model.Put{Key: model.PoolKey{CIDR: pool}, Value: model.Pool{CIDR: pool, IPAM: true}}
	tests := []struct {
		user   string
		client *Client
		may    []bool // host, config, pool; read all
	}{
		{"node", node, []bool{true, false, false, true}},
		{"ctl", ctl, []bool{true, true, true, true}},
		{"stranger", stranger, []bool{false, false, false, false}},
	}
	for _, test := range tests {
		var may []bool
		note := func(err error) {
			t.Helper()
			may = append(may, err == nil)
			if err != nil && !errors.Is(err, ErrAuth) {
				t.Errorf("%s: %v", test.user, err)
			}
		}
		for _, p := range []model.Put{host, config, put} {
			_, err := test.client.Commit(ctx, model.Change{Puts: []model.Put{p}})
			note(err)
		}
		_, err := test.client.Read(ctx, model.PrefixRange(model.Root))
		note(err)
		if diff := cmp.Diff(test.may, may); diff != "" {
			t.Errorf("%s may (-want +got):\n%s", test.user, diff)
		}
	}
	if n, err := root.Defragment(ctx); n != 0 || err != nil {
		t.Errorf("a small etcd was defragmented: %d, %v", n, err)
	}
	if _, err := node.Defragment(context.WithoutCancel(ctx)); err != nil {
		t.Errorf("a member that wastes nothing needs no right: %v", err)
	}
}

// TestUsersWhileOthersWrite: no request fails while users are created and removed, and a removed user is told what that
// means.
func TestUsersWhileOthersWrite(t *testing.T) {
	a := newAuthority(t)
	c := startSecure(t, a, 1, true)
	ctx := t.Context()
	user := func(i int) User {
		return User{fmt.Sprintf("node:n%d:uid", i), []string{fmt.Sprintf("/calico/v1/host/n%d/", i)}}
	}
	root, node := connectAs(t, a, c, RootUser), connectAs(t, a, c, user(0).Name)
	if err := root.SetUsers(ctx, user(0)); err != nil {
		t.Fatal(err)
	}
	change := model.Change{Puts: []model.Put{{Key: model.HostConfigKey{Host: "n0", Name: "Name"}, Value: model.Text("x")}}}
	made := make(chan struct{})
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for n := 1; ; n++ {
				if _, err := node.Commit(ctx, change); err != nil {
					t.Errorf("commit %d: %v", n, err)
					return
				}
				select {
				case <-made:
					return
				default:
				}
			}
		})
	}
	for i := range 100 {
		if err := root.SetUser(ctx, user(i)); err != nil {
			t.Error(err)
		}
	}
	close(made)
	writers.Wait()
	if err := root.RemoveUser(ctx, user(0).Name); err != nil {
		t.Fatal(err)
	}
	_, err := node.Commit(ctx, change)
	wantError(t, err, ErrDenied, "nothing once it is revoked or its Node is another one: see docs/security.md")
}
