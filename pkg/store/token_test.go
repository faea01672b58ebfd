// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
)

// tokenRig is an etcd with users, and calls of node, whose password is in a file.
type tokenRig struct {
	*testing.T
	*cluster
	root  *clientv3.Client
	trial time.Duration // how long etcd may take to answer to a token that was left
	cfg   Config
}

func newTokenRig(t *testing.T, opts clusterOptions) *tokenRig {
	t.Helper()
	c := startCluster(t, opts)
	enableAuth(t, c.admin())
	root, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints(), Username: "root", Password: "r00t", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	dir := t.TempDir()
	r := &tokenRig{t, c, root, patienceOfTests, Config{Endpoints: c.endpoints()[:1], SessionDir: filepath.Join(dir, "sessions"),
		Username: "node", PasswordFile: filepath.Join(dir, "password")}}
	r.writePassword("secret")
	return r
}

// writePassword writes the file, and waits until a token that is had with it is left.
func (r *tokenRig) writePassword(password string) {
	r.Helper()
	writeAll(r, map[string][]byte{r.cfg.PasswordFile: []byte(password)})
	eventually(r, "the password file is settled", func() bool {
		_, version, err := readPassword(r.cfg.PasswordFile)
		return err == nil && version != ""
	})
}

// call is what one run of a plugin does. It tells how often etcd was asked to look at the
// password, and the round trips.
func (r *tokenRig) call(do ...func(context.Context, *Client) error) (passwords, trips int64, err error) {
	r.Helper()
	before := r.passwords()
	s, err := Open(r.Context(), r.cfg)
	if err != nil {
		return 0, 0, err
	}
	s.trial = r.trial
	err = append(do, ready)[0](within(r, patienceOfTests), s)
	if err := s.Close(); err != nil {
		r.Error(err)
	}
	return r.passwords() - before, s.Counters().RoundTrips, err
}

func (r *tokenRig) passwords() (n int64) {
	for _, m := range r.members {
		n += m.passwords.Load()
	}
	return n
}

// calls makes one after the other, and wants of each how often it asks etcd to look at the password.
func (r *tokenRig) calls(what string, want ...int64) {
	r.Helper()
	for i, want := range want {
		passwords, _, err := r.call()
		if err != nil {
			r.Fatalf("%s: call %d: %v", what, i+1, err)
		}
		if passwords != want {
			r.Fatalf("%s: call %d: etcd has looked at %d passwords, want %d", what, i+1, passwords, want)
		}
	}
}

// refused is a call that etcd refuses, whatever was left for it.
func (r *tokenRig) refused(what string, is error, says ...string) {
	r.Helper()
	start := time.Now()
	_, _, err := r.call()
	if err == nil {
		r.Errorf("%s: served", what)
	}
	wantError(r.T, err, is, says...)
	took(r.T, start)
}

// leave puts a token into the file, as a call does.
func (r *tokenRig) leave(text string) {
	r.Helper()
	_, version, err := readPassword(r.cfg.PasswordFile)
	if err != nil {
		r.Fatal(err)
	}
	open(r, r.cfg).tokens.of(version).leave(text)
}

func TestToken(t *testing.T) {
	r := newTokenRig(t, clusterOptions{})
	r.calls("new", 1, 0, 0)
	path := theSession(t, r.cfg)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(good, []byte("secret")) {
		t.Error("the password is in the file")
	}
	for path, want := range map[string]os.FileMode{path: 0o600, r.cfg.SessionDir: 0o700 | os.ModeDir} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	agent := *r
	agent.cfg.SessionDir = ""
	agent.calls("no directory", 1, 1)

	for name, data := range map[string][]byte{
		"empty": nil, "torn": good[:len(good)/2], "a bit torn": good[:len(good)-1], "the head alone": good[:sessionAt],
		"no token": resum(bytes.Clone(good[:sessionAt])), "garbage": []byte("garbage"), "huge": make([]byte, 10<<20),
	} {
		writeAll(t, map[string][]byte{path: data})
		r.calls(name, 1, 0)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	r.calls("others may read it", 1, 0)
	if err := errors.Join(os.Rename(path, path+".moved"), os.Symlink(path+".moved", path)); err != nil {
		t.Fatal(err)
	}
	r.calls("a link", 1, 0)
	if err := errors.Join(os.Remove(path+".moved"), os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	r.calls("a directory", 1, 0) // it is empty, and taken away
	if err := os.Chmod(r.cfg.SessionDir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.calls("others may enter the directory", 1, 1)
	if err := os.Chmod(r.cfg.SessionDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(r.cfg.SessionDir), os.WriteFile(r.cfg.SessionDir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r.calls("a file for the directory", 1, 1)
	if err := os.Remove(r.cfg.SessionDir); err != nil {
		t.Fatal(err)
	}
	r.calls("the directory is gone", 1, 0)

	// A write is not sent with a token that etcd may not answer to: it couldn't be sent again.
	write := func(ctx context.Context, s *Client) error {
		_, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", "1")}})
		return err
	}
	readAndWrite := func(ctx context.Context, s *Client) error { return errors.Join(ready(ctx, s), write(ctx, s)) }
	for _, tt := range []struct {
		name             string
		do               func(context.Context, *Client) error
		passwords, trips int64
	}{{"a write", write, 1, 2}, {"a read and a write", readAndWrite, 0, 2}, {"a read", ready, 0, 1}} {
		if passwords, trips, err := r.call(tt.do); err != nil || passwords != tt.passwords || trips != tt.trips {
			t.Errorf("%s: %d passwords, %d round trips, %v, want %d, %d", tt.name, passwords, trips, err, tt.passwords, tt.trips)
		}
	}
}

// TestPasswordVersion has the password file change.
func TestPasswordVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	read := func() (version string) {
		t.Helper()
		password, version, err := readPassword(path)
		if err != nil || password != "secret" {
			t.Fatalf("%q, %v", password, err)
		}
		return version
	}
	settle := func() (version string) {
		t.Helper()
		eventually(t, "the file is settled", func() bool { version = read(); return version != "" })
		return version
	}
	start := time.Now()
	writeAll(t, map[string][]byte{path: []byte("secret\n")})
	if version := read(); version != "" && time.Since(start) < settled {
		t.Error("a file of just now has a version")
	}
	first := settle()
	if again := read(); again != first {
		t.Errorf("%q, then %q", first, again)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, map[string][]byte{path: []byte("secret ")}) // as long
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	second := settle()
	if second == first {
		t.Error("written anew, and the same version")
	}
	writeAll(t, map[string][]byte{path + ".new": []byte("secret\n")})
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if third := settle(); third == first || third == second {
		t.Error("replaced, and the same version")
	}
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(path, []byte("secret"), 0) }() // what is read tells
	if version := read(); version != "" {
		t.Error("a pipe has a version")
	}
	writeAll(t, map[string][]byte{path + ".long": bytes.Repeat([]byte("p"), maxPassword+1)})
	if _, _, err := readPassword(path + ".long"); err == nil || !strings.Contains(err.Error(), path+".long has more than 4096 bytes") {
		t.Errorf("a file that is no password: %v", err)
	}
}

// TestTokenUnknown has a token that etcd doesn't know. Such a call makes three round trips: the request is
// refused, or not answered to; the password; the request.
func TestTokenUnknown(t *testing.T) {
	r := newTokenRig(t, clusterOptions{})
	r.calls("new", 1, 0)
	impatient := *r
	impatient.trial = 50 * time.Millisecond
	for _, tt := range []struct {
		name  string
		spoil func()
		r     *tokenRig
	}{
		{"etcd was restarted", func() {
			r.members[0].stop()
			if err := r.members[0].start(); err != nil {
				t.Fatal(err)
			}
		}, r},
		{"never one of etcd's", func() { r.leave("ABCDEFGHIJKLMNOP.1") }, r},
		{"no token in any way", func() { r.leave("x") }, r},
		{"of a longer log", func() { r.leave("ABCDEFGHIJKLMNOP.1000000000") }, &impatient},
	} {
		tt.spoil()
		// Who is impatient may send it several times.
		if passwords, trips, err := tt.r.call(); err != nil || passwords != 1 || trips != 3 && tt.r == r {
			t.Errorf("%s: %d passwords, %d round trips, %v", tt.name, passwords, trips, err)
		}
		r.calls(tt.name+", and replaced", 0)
	}
}

// TestTokenExpired has a token's time be over, before a call and within one.
func TestTokenExpired(t *testing.T) {
	r := newTokenRig(t, clusterOptions{tokenTTL: 1})
	expire := func() {
		over := time.Now().Add(3 * time.Second) // etcd looks once a second
		eventually(t, "the token's time is over", func() bool { return time.Now().After(over) })
	}
	r.calls("new", 1)
	expire()
	r.calls("later", 1)
	_, _, err := r.call(func(ctx context.Context, s *Client) error {
		if err := ready(ctx, s); err != nil {
			return err
		}
		expire()
		before := r.passwords()
		_, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", "1")}})
		if n := r.passwords() - before; n != 1 {
			t.Errorf("for a write whose token's time is over: %d passwords", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestTokenOfUser has the password change, in the file and in etcd, and the user.
func TestTokenOfUser(t *testing.T) {
	for name, opts := range tokenKinds(t) {
		t.Run(name, func(t *testing.T) {
			r := newTokenRig(t, opts)
			ctx := within(t, patienceOfTests)
			must := func(_ any, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			r.calls("new", 1, 0)
			was, err := os.Stat(r.cfg.PasswordFile)
			must(nil, err)
			writeAll(t, map[string][]byte{r.cfg.PasswordFile: []byte("sekret")})
			must(nil, os.Chtimes(r.cfg.PasswordFile, was.ModTime(), was.ModTime()))
			r.refused("another password in the file", ErrAuth, "invalid user ID or password")
			r.writePassword("sekret")
			r.refused("another password in the file for longer", ErrAuth, "invalid user ID or password")

			_, err = r.root.UserChangePassword(ctx, "node", "sekret")
			must(nil, err)
			r.calls("etcd has it as well", 1, 0)
			_, err = r.root.UserChangePassword(ctx, "node", "secret")
			must(nil, err)
			r.refused("another password in etcd", ErrAuth, "invalid user ID or password")
			r.writePassword("secret")
			r.calls("the file has it as well", 1, 0)

			must(r.root.UserRevokeRole(ctx, "node", "node"))
			r.refused("a role less", ErrDenied, "the user node may not read")
			must(r.root.UserGrantRole(ctx, "node", "node"))
			if _, _, err := r.call(); err != nil {
				t.Error(err)
			}
			end := clientv3.GetPrefixRangeEnd("/calico/")
			must(r.root.RoleRevokePermission(ctx, "node", "/calico/", end))
			r.refused("a permission less", ErrDenied, "the user node may not read")
			must(r.root.RoleGrantPermission(ctx, "node", "/calico/", end, clientv3.PermissionType(clientv3.PermReadWrite)))
			if _, _, err := r.call(); err != nil {
				t.Error(err)
			}

			other := *r
			other.cfg.Username = "root" // with node's password
			other.refused("another user", ErrAuth, "invalid user ID or password")
			must(r.root.UserDelete(ctx, "node"))
			r.refused("no such user", ErrAuth, "invalid user ID or password")
			must(nil, os.Remove(r.cfg.PasswordFile))
			if _, _, err := r.call(); err == nil || !strings.Contains(err.Error(), "no such file") {
				t.Errorf("without the password file: %v", err)
			}
		})
	}
}

// tokenKinds are etcd's, see its flag --auth-token.
func tokenKinds(t *testing.T) map[string]clusterOptions {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	writeAll(t, map[string][]byte{key: []byte("a key of the etcd of this test")})
	return map[string]clusterOptions{"simple": {}, "jwt": {token: "jwt,sign-method=HS256,priv-key=" + key + ",ttl=10m"}}
}

// TestTokenSigned has etcd sign its tokens: a restart doesn't make it forget them, a change of users does.
func TestTokenSigned(t *testing.T) {
	r := newTokenRig(t, tokenKinds(t)["jwt"])
	r.calls("new", 1, 0)
	r.members[0].stop()
	if err := r.members[0].start(); err != nil {
		t.Fatal(err)
	}
	r.calls("restarted", 0)
	if _, err := r.root.UserAdd(within(t, patienceOfTests), "somebody", "else"); err != nil {
		t.Fatal(err)
	}
	r.calls("a user more", 1, 0)
}

// TestTokenMembers has several members: what one gave all know, but for one that was restarted.
func TestTokenMembers(t *testing.T) {
	r := newTokenRig(t, clusterOptions{size: 3})
	r.cfg.Endpoints = r.endpoints()
	// While a leader is elected a call may go on to another member, and what it asks says nothing.
	for try := 1; r.membersDiffer(); try++ {
		if try == 20 {
			t.Fatal("calls don't stay at the member that they begin with")
		}
	}
	r.members[1].proxy.set(stall)
	if passwords, _, err := r.call(func(ctx context.Context, s *Client) error {
		s.current = 1
		return ready(ctx, s)
	}); err != nil || passwords != 0 {
		t.Errorf("a member hangs: %d passwords, %v", passwords, err)
	}
}

// membersDiffer restarts a member and calls each. It reports whether a call went elsewhere.
func (r *tokenRig) membersDiffer() (moved bool) {
	if err := os.RemoveAll(r.cfg.SessionDir); err != nil {
		r.Fatal(err)
	}
	r.calls("new", 1)
	r.members[1].stop()
	if err := r.members[1].start(); err != nil {
		r.Fatal(err)
	}
	for _, endpoint := range r.endpoints() { // what was committed has come to all of them when they answer
		root, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Username: "root", Password: "r00t", Logger: zap.NewNop()})
		if err == nil {
			_, err = root.Get(within(r, patienceOfTests), model.ReadyKey{}.Path())
			_ = root.Close()
		}
		if err != nil {
			r.Fatal(err)
		}
	}
	for _, tt := range []struct {
		member    int
		passwords int64
	}{{0, 0}, {2, 0}, {1, 1}, {0, 0}, {1, 0}, {2, 0}} {
		passwords, _, err := r.call(func(ctx context.Context, s *Client) error {
			s.current = tt.member
			err := ready(ctx, s)
			moved = s.current != tt.member
			return err
		})
		if moved {
			return true
		}
		if err != nil || passwords != tt.passwords {
			r.Errorf("member %d: %d passwords, want %d, %v", tt.member, passwords, tt.passwords, err)
		}
	}
	return false
}

// TestTokenBurst begins many calls at once where there is no token: one asks for it.
func TestTokenBurst(t *testing.T) {
	r := newTokenRig(t, clusterOptions{})
	for try := 1; ; try++ {
		before := r.passwords()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, _, err := r.call(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		asked := r.passwords() - before
		r.calls("after many at once", 0)
		if asked == 1 {
			return
		}
		if try == 20 {
			t.Fatalf("%d of 20 asked", asked) // where one takes long the others don't wait for ever
		}
		if err := os.RemoveAll(r.cfg.SessionDir); err != nil {
			t.Fatal(err)
		}
	}
}
