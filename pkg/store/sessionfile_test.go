// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// aSession is one that a server of the certificate gave a ticket for.
func aSession(t testing.TB) *tls.ClientSessionState {
	t.Helper()
	a := newAuthority(t)
	cert, key := a.issue(t, "server")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		server := tls.Server(there, &tls.Config{Certificates: []tls.Certificate{pair}})
		_, _ = server.Write([]byte("x")) // what fails is seen at the other end
		_ = there.Close()
	}()
	got := make(keeper, 1)
	client := tls.Client(here, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", ClientSessionCache: got})
	if _, err := io.ReadAll(client); err != nil && len(got) == 0 {
		t.Fatal(err)
	}
	return <-got
}

// keeper is a tls.ClientSessionCache that hands on what it is given.
type keeper chan *tls.ClientSessionState

func (k keeper) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (k keeper) Put(_ string, s *tls.ClientSessionState)    { k <- s }

// resum makes the digest right that the file begins with.
func resum(data []byte) []byte {
	sum := sha256.Sum256(data[sha256.Size:])
	copy(data, sum[:])
	return data
}

func TestSessionFormat(t *testing.T) {
	made := time.Unix(1_700_000_000, 0)
	belongs := digest([]byte("these"))
	state := aSession(t)
	good, err := formatSession(state, belongs, made)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int, b byte) func([]byte) []byte {
		return func(data []byte) []byte { data[i] ^= b; return data }
	}
	for _, tt := range []struct {
		name   string
		change func([]byte) []byte
		of     [sha256.Size]byte
		age    time.Duration
		want   string
	}{
		{"good", nil, belongs, 0, ""},
		{"nearly old", nil, belongs, sessionLife - time.Second, ""},
		{"old", nil, belongs, sessionLife, "it is of "},
		{"of the future", nil, belongs, -time.Second, "it is of "},
		{"of other certificates", nil, digest([]byte("those")), 0, "of other settings or files"},
		{"empty", func([]byte) []byte { return nil }, belongs, 0, "too short"},
		{"the head alone", func(d []byte) []byte { return resum(d[:sessionAt]) }, belongs, 0, "too short"},
		{"half a length", func(d []byte) []byte { return resum(d[:sessionTicketAt-1]) }, belongs, 0, "too short"},
		{"torn", func(d []byte) []byte { return d[:len(d)-1] }, belongs, 0, "damaged"},
		{"one bit of the digest", at(0, 1), belongs, 0, "damaged"},
		{"one bit further on", at(len(good)-500, 1), belongs, 0, "damaged"},
		{"the ticket is longer than the file", func(d []byte) []byte {
			binary.BigEndian.PutUint32(d[sessionTicketAt-4:], uint32(len(d)))
			return resum(d)
		}, belongs, 0, "too short for its ticket"},
		{"the ticket begins a byte late", func(d []byte) []byte {
			binary.BigEndian.PutUint32(d[sessionTicketAt-4:], binary.BigEndian.Uint32(d[sessionTicketAt-4:])-1)
			return resum(d)
		}, belongs, 0, "tls: "},
		{"a session of nothing", func(d []byte) []byte { return resum(d[:sessionTicketAt]) }, belongs, 0, "ticket"},
		{"garbage", func(d []byte) []byte { return bytes.Repeat([]byte("x"), len(d)) }, belongs, 0, "damaged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := slices.Clone(good)
			if tt.change != nil {
				data = tt.change(data)
			}
			got, err := parseSession(data, tt.of, made.Add(tt.age))
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if again, err := formatSession(got, belongs, made); err != nil || !bytes.Equal(again, good) {
				t.Errorf("another after reading it: %v", err)
			}
		})
	}
}

func FuzzParseSession(f *testing.F) {
	now := time.Unix(1_700_000_000, 0)
	belongs := digest([]byte("these"))
	data, err := formatSession(aSession(f), belongs, now)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:sessionTicketAt])
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < sha256.Size {
			return
		}
		state, err := parseSession(resum(slices.Clone(data)), belongs, now)
		if err != nil {
			return
		}
		again, err := formatSession(state, belongs, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseSession(again, belongs, now); err != nil {
			t.Error(err)
		}
	})
}

func TestSessionFile(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-sessionLife)
	for _, tt := range []struct {
		name   string
		spoil  func(f *sessionFile, path string)
		want   string
		mended bool // when it is written again
	}{
		{"good", func(*sessionFile, string) {}, "", true},
		{"missing", func(_ *sessionFile, path string) { must(os.Remove(path)) }, "no such file", true},
		{"no directory", func(f *sessionFile, _ string) { must(os.RemoveAll(f.dir)) }, "no such file", true},
		{"others may read it", func(_ *sessionFile, path string) { must(os.Chmod(path, 0o640)) }, "mode 0600", true},
		{"others may write it", func(_ *sessionFile, path string) { must(os.Chmod(path, 0o602)) }, "mode 0600", true},
		{"another user's", func(f *sessionFile, _ string) { f.uid++ }, "not a directory of this user's", false},
		{"others may enter", func(f *sessionFile, _ string) { must(os.Chmod(f.dir, 0o755)) }, "not a directory of this user's", false},
		{"a link", func(f *sessionFile, path string) {
			must(os.Rename(path, path+".moved"))
			must(os.Symlink(path+".moved", path))
		}, "too many levels", true},
		{"a link for the directory", func(f *sessionFile, _ string) {
			must(os.Rename(f.dir, f.dir+".moved"))
			must(os.Symlink(f.dir+".moved", f.dir))
		}, "not a directory", false},
		{"a file for the directory", func(f *sessionFile, _ string) {
			must(os.RemoveAll(f.dir))
			must(os.WriteFile(f.dir, nil, 0o600))
		}, "not a directory", false},
		{"a pipe", func(_ *sessionFile, path string) {
			must(os.Remove(path))
			must(unix.Mkfifo(path, 0o600))
		}, "it is no file", true},
		{"a directory", func(_ *sessionFile, path string) {
			must(os.Remove(path))
			must(os.Mkdir(path, 0o700))
		}, "it is no file", false},
		{"huge", func(_ *sessionFile, path string) { must(os.Truncate(path, maxSession+1)) }, "it has 65537 bytes", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := sessionFile{filepath.Join(t.TempDir(), "sessions"), "name", os.Geteuid()}
			path := filepath.Join(f.dir, f.name)
			must(f.write([]byte("one"), long))
			tt.spoil(&f, path)
			data, err := f.read()
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("read: %v, want %q", err, tt.want)
			}
			if tt.want == "" && (err != nil || string(data) != "one") {
				t.Errorf("read: %q, %v", data, err)
			}
			if err := f.write([]byte("two"), long); (err == nil) != tt.mended {
				t.Fatalf("write: %v", err)
			}
			if !tt.mended {
				return
			}
			if data, err := f.read(); err != nil || string(data) != "two" {
				t.Errorf("read what was written: %q, %v", data, err)
			}
			for path, want := range map[string]os.FileMode{path: 0o600, f.dir: 0o700 | os.ModeDir} {
				if info, err := os.Lstat(path); err != nil || info.Mode() != want {
					t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
				}
			}
		})
	}
}

// TestSessionFileUnlisted has a directory that may be written to and not be listed: the file is
// written, and no more is needed.
func TestSessionFileUnlisted(t *testing.T) {
	f := sessionFile{filepath.Join(t.TempDir(), "sessions"), "name", os.Geteuid()}
	if err := os.Mkdir(f.dir, 0o300); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread, which has no capabilities then, ends here
		var none [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			t.Error(err)
			return
		}
		if _, err := os.ReadDir(f.dir); err == nil {
			t.Error("the directory can be listed")
		}
		if err := f.write([]byte("one"), time.Now()); err != nil {
			t.Errorf("write: %v", err)
		}
		if data, err := f.read(); err != nil || string(data) != "one" {
			t.Errorf("read: %q, %v", data, err)
		}
	}()
	<-done
	if err := os.Chmod(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestSessionFileLock has others wait, and none for longer than it wants to.
func TestSessionFileLock(t *testing.T) {
	f := sessionFile{filepath.Join(t.TempDir(), "sessions"), "name", os.Geteuid()}
	unlock, err := f.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.lock(within(t, 10*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("locked twice: %v", err)
	}
	got := make(chan error)
	go func() {
		unlock, err := f.lock(t.Context())
		if err == nil {
			unlock()
		}
		got <- err
	}()
	unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := os.Chmod(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := f.lock(t.Context()); err == nil || !strings.Contains(err.Error(), "not a directory of this user's") {
		t.Errorf("others may enter: %v", err)
	}
}

// TestSessionFilesOld has what others and killed processes have left.
func TestSessionFilesOld(t *testing.T) {
	f := sessionFile{filepath.Join(t.TempDir(), "sessions"), "b", os.Geteuid()}
	now := time.Now()
	for name, at := range map[string]time.Time{"a": now, "b": now, ".b.12345": now.Add(-2 * sessionLife), "old": now.Add(-2 * sessionLife)} {
		f := sessionFile{f.dir, name, f.uid}
		if err := f.write(nil, now.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(f.dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.write(nil, now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(f.dir)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := []string{"a", "b"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("left: %v, %v, want %v", got, err, want)
	}
}
