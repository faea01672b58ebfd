// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/daemon/problems"
)

// TestLeasesFile: what the file may hold, and what nobody wrote.
func TestLeasesFile(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []lifeLease
		err  string
	}{
		{"", nil, ""},
		{"694d9e1f boot/1\n", []lifeLease{{0x694d9e1f, "boot/1"}}, ""},
		{"694d9e1f\n7fffffffffffffff boot/1\n", []lifeLease{{0x694d9e1f, ""}, {math.MaxInt64, "boot/1"}}, ""},
		{"\n", nil, `line 1 is ""`},
		{"0 boot/1\n", nil, "line 1"},
		{"-1 boot/1\n", nil, "line 1"},
		{"1\nzebra\n", nil, `line 2 is "zebra": want a lease's id and where it was taken`},
		{"8000000000000000\n", nil, "line 1"},
		{"1 boot/1 more\n", nil, "line 1"},
		{"1 \n", nil, "line 1"},
		{"\x00\x00\x00\x00", nil, "line 1"},
		{strings.Repeat("1\n", maxLives+1), nil, "no agent wrote that"},
	} {
		got, err := parseLeases([]byte(tt.text))
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(lifeLease{})); diff != "" || !strings.Contains(problems.Reason(err), tt.err) || (err == nil) != (tt.err == "") {
			t.Errorf("%q: %v, want %q (-want +got):\n%s", tt.text, err, tt.err, diff)
		}
	}
}

func FuzzLeasesFile(f *testing.F) {
	f.Add([]byte("694d9e1f boot/1\n1\n"))
	f.Add([]byte("\xff\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseLeases(data)
		if err != nil {
			return
		}
		again, err := parseLeases(formatLeases(all))
		if diff := cmp.Diff(all, again, cmp.AllowUnexported(lifeLease{})); diff != "" || err != nil {
			t.Fatalf("%q: %v (-first +again):\n%s", data, err, diff)
		}
	})
}

// TestLife: a lease is on disk before it is used, and those of former lives until the
// status hangs on another.
func TestLife(t *testing.T) {
	path := filepath.Join(t.TempDir(), "var", LeasesName)
	open := func(place string) *life {
		t.Helper()
		l, err := openLife(path, "", place)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, l *life, id int64, own, former bool) {
		t.Helper()
		if l.isOwn(id) != own || l.isFormer(id) != former {
			t.Errorf("%s: lease %d is own: %v, former: %v", what, id, l.isOwn(id), l.isFormer(id))
		}
	}
	first := open("boot/1")
	is("first", first, 1, false, false)
	must(first.take(1, 0))
	must(first.take(2, 1))
	is("first", first, 1, true, false)
	again := open("boot/1")
	is("again in the same place", again, 1, true, true)
	is("again in the same place", again, 2, true, true)
	moved := open("boot/2")
	is("elsewhere", moved, 2, false, true)
	must(moved.take(3, 0)) // and is killed, before it knows more
	is("elsewhere, again", open("boot/2"), 2, false, true)
	is("elsewhere, again", open("boot/2"), 3, true, true)
	must(moved.settle())
	is("settled", open("boot/2"), 2, false, false)
	is("settled", open("boot/2"), 3, true, true)
	doubtful := open("")
	is("not alone for sure", doubtful, 3, false, true)
	must(doubtful.take(4, 0))
	is("after that", open(""), 4, false, true)

	// What can't be read or written proves nothing, and ends nothing.
	must(os.WriteFile(path, []byte("zebra\n"), 0o600))
	l, err := openLife(path, "", "boot/1")
	if err == nil || !strings.Contains(err.Error(), path+": line 1") {
		t.Errorf("got %v", err)
	}
	must(l.take(5, 0))
	is("after garbage", open("boot/1"), 5, true, true)
	must(os.Remove(path))
	must(os.Mkdir(path, 0o700))
	if l, err = openLife(path, "", "boot/1"); err == nil {
		t.Error("a directory can be read")
	}
	if err := l.take(6, 0); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory is written: %v", err)
	}
	is("not written", l, 6, true, false)
}

// TestPlace: it is the same for whoever is in this network namespace.
func TestPlace(t *testing.T) {
	a, errA := Place()
	b, errB := Place()
	if a != b || !isPlace(a) || errA != nil || errB != nil {
		t.Errorf("%q, %v; %q, %v", a, errA, b, errB)
	}
}

// TestLifeSpared: where the var directory takes no writes, the run directory has the leases
// for the next process; and has them no more where the first takes writes again.
func TestLifeSpared(t *testing.T) {
	dir := t.TempDir()
	path, spare := filepath.Join(dir, "var", LeasesName), filepath.Join(dir, "run", LeasesName)
	var log bytes.Buffer
	open := func() *life {
		t.Helper()
		l, err := openLife(path, spare, "boot/1")
		if err != nil {
			t.Fatal(err)
		}
		l.log = slog.New(slog.NewTextHandler(&log, nil))
		return l
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(open().take(1, 0))
	if _, err := os.Stat(spare); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the spare is written though the file is: %v", err)
	}
	// Nobody may be stopped from writing by rights here: another file system is in the way.
	must(unix.Mount(filepath.Dir(path), filepath.Dir(path), "", unix.MS_BIND, ""))
	defer func() { must(unix.Unmount(filepath.Dir(path), 0)) }()
	readOnly := func(flag uintptr) {
		t.Helper()
		must(unix.Mount("", filepath.Dir(path), "", unix.MS_BIND|unix.MS_REMOUNT|flag, ""))
	}
	readOnly(unix.MS_RDONLY)
	second := open()
	must(second.take(2, 0))
	must(second.settle())
	if got := strings.Count(log.String(), "read-only file system"); got != 1 {
		t.Errorf("said %d times:\n%s", got, log.String())
	}
	if third := open(); !third.isOwn(2) || third.isOwn(3) {
		t.Errorf("the next process knows %+v", third.former)
	}
	readOnly(0)
	last := open()
	must(last.take(3, 0))
	must(last.settle())
	if again := open(); !again.isOwn(3) || again.isOwn(2) {
		t.Errorf("after all the file has %+v", again.former)
	}
}

// TestLeaseNotedLater: a lease that the disk had no room for is on it once there is room.
func TestLeaseNotedLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "var")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // where the directory is to be
		t.Fatal(err)
	}
	path := filepath.Join(dir, LeasesName)
	l := &life{path: path, place: "boot/1"}
	if l.take(7, 0) == nil || l.settle() == nil {
		t.Fatal("written where nothing can be")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := l.settle(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "7 boot/1\n" {
			t.Errorf("%q, %v", got, err)
		}
		if err := os.RemoveAll(dir); err != nil { // and it is written again
			t.Fatal(err)
		}
	}
	if l = (&life{path: path, place: "boot/1", noted: true}); l.settle() != nil {
		t.Fatal("nothing can't be settled")
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file without a lease: %v", err)
	}
}
