// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// tokenRig is an etcd with users, with calls by the user node, whose password is in a file.
type tokenRig struct {
	*testing.T
	*cluster
	root  *clientv3.Client
	cfg   Config
	trial time.Duration
}

func newTokenRig(t *testing.T) *tokenRig {
	t.Helper()
	c := startCluster(t, clusterOptions{})
	enableAuth(t, c.admin())
	root, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints(), Username: "root", Password: "r00t", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	dir := t.TempDir()
	r := &tokenRig{t, c, root, Config{Endpoints: c.endpoints(), TokenDir: filepath.Join(dir, "tokens"),
		Username: "node", PasswordFile: filepath.Join(dir, "password")}, eventually.Limit}
	r.write(r.cfg.PasswordFile, "secret")
	return r
}

func (r *tokenRig) write(path, data string) {
	r.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		r.Fatal(err)
	}
}

// file returns the file in which a token was left.
func (r *tokenRig) file() string { return string(newTokenFile(r.cfg)) }

// call does what one run of a plugin does. It returns how often etcd was asked to check the password, and the number of
// round trips.
func (r *tokenRig) call(do func(context.Context, *Client) error) (passwords, trips int64, err error) {
	r.Helper()
	before := r.members[0].passwords.Load()
	s, err := Open(r.Context(), r.cfg)
	if err != nil {
		return 0, 0, err
	}
	s.trial = r.trial
	err = do(within(r, eventually.Limit), s)
	if err := s.Close(); err != nil {
		r.Error(err)
	}
	return r.members[0].passwords.Load() - before, s.Counters().RoundTrips, err
}

// wantTrips makes a call and checks the round trips, of which some are for the password.
func (r *tokenRig) wantTrips(what string, do func(context.Context, *Client) error, passwords, trips int64) {
	r.Helper()
	if p, n, err := r.call(do); err != nil || p != passwords || n != trips {
		r.Errorf("%s: %d passwords, %d round trips, want %d and %d: %v", what, p, n, passwords, trips, err)
	}
}

func TestToken(t *testing.T) {
	r := newTokenRig(t)
	write := func(ctx context.Context, s *Client) error {
		_, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", "1")}})
		return err
	}
	r.wantTrips("the first call", ready, 1, 2)
	r.wantTrips("the second call", ready, 0, 1)
	r.wantTrips("a write alone, which is not sent with a token on trial", write, 1, 2)
	r.wantTrips("a read and a write", func(ctx context.Context, s *Client) error { return errors.Join(ready(ctx, s), write(ctx, s)) }, 0, 2)
	for path, want := range map[string]os.FileMode{r.file(): 0o600, r.cfg.TokenDir: 0o700 | os.ModeDir} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	agent := *r
	agent.cfg.TokenDir = ""
	agent.wantTrips("without a directory", ready, 1, 2)

	for what, data := range map[string]string{"an empty file": "", "garbage": "garb\x00age\n"} {
		r.write(r.file(), data)
		r.wantTrips(what, ready, 1, 2)
		r.wantTrips(what+", replaced", ready, 0, 1)
	}
	if err := os.Chmod(r.cfg.TokenDir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.wantTrips("others may enter the directory", ready, 1, 2)
	r.wantTrips("others may enter the directory", ready, 1, 2)
}

// TestTokenUnknown: etcd doesn't know the token. That takes the request, the password, and the request again.
func TestTokenUnknown(t *testing.T) {
	t.Parallel()
	r := newTokenRig(t)
	r.wantTrips("the first call", ready, 1, 2)
	r.write(r.file(), "ABCDEFGHIJKLMNOP.1")
	r.wantTrips("never one of etcd's", ready, 1, 3)
	r.wantTrips("never one of etcd's, replaced", ready, 0, 1)
	r.trial = time.Millisecond
	eventually.True(t, "the trial is long enough to be sent", func() bool {
		r.trial *= 2
		r.write(r.file(), "ABCDEFGHIJKLMNOP.1000000000") // of a longer log
		passwords, trips, err := r.call(ready)
		return err == nil && passwords == 1 && trips == 3
	})
	r.trial = eventually.Limit
	r.wantTrips("of a longer log, replaced", ready, 0, 1)
	r.members[0].stop()
	if err := r.members[0].start(); err != nil {
		t.Fatal(err)
	}
	if passwords, _, err := r.call(ready); err != nil || passwords != 1 {
		t.Errorf("etcd was restarted: %d passwords: %v", passwords, err)
	}
	r.wantTrips("etcd was restarted, replaced", ready, 0, 1)
}

// TestTokenOfUser: the password changes, in the file and in etcd.
func TestTokenOfUser(t *testing.T) {
	r := newTokenRig(t)
	r.wantTrips("the first call", ready, 1, 2)
	refused := func(what string) {
		t.Helper()
		_, _, err := r.call(ready)
		wantError(t, err, ErrAuth, "invalid user ID or password")
	}
	r.write(r.cfg.PasswordFile, "sekret!")
	refused("another password in the file")
	if _, err := r.root.UserChangePassword(within(t, eventually.Limit), "node", "sekret!"); err != nil {
		t.Fatal(err)
	}
	r.wantTrips("etcd has it as well", ready, 1, 2)
	if _, err := r.root.UserChangePassword(within(t, eventually.Limit), "node", "secret"); err != nil {
		t.Fatal(err)
	}
	refused("another password in etcd")
	if err := os.WriteFile(r.cfg.PasswordFile, []byte(strings.Repeat("p", maxPassword+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.call(ready); err == nil || !strings.Contains(err.Error(), "more than 4096 bytes") {
		t.Errorf("a file that is no password: %v", err)
	}
}
