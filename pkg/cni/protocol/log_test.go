// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/netconf"
)

func TestLogRotation(t *testing.T) {
	dir := t.TempDir()
	conf := netconf.Log{File: filepath.Join(dir, "sub", "cni.log"), MaxSize: 1, MaxAge: 30, MaxCount: 2}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 5 {
		log, shut, err := NewLogger(conf, io.Discard, io.Discard, now.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		log.Info(strings.Repeat(fmt.Sprint(i), 1<<20))
		shut()
	}
	got, err := filepath.Glob(filepath.Join(dir, "sub", "*"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"cni-20260101T000003.000000000.log", "cni-20260101T000004.000000000.log", "cni.log"}
	for i, w := range want {
		want[i] = filepath.Join(dir, "sub", w)
	}
	if !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	old := now.AddDate(0, 0, -60)
	if err := os.Chtimes(got[0], old, old); err != nil {
		t.Fatal(err)
	}
	conf.MaxCount = 0
	if _, shut, err := NewLogger(conf, io.Discard, io.Discard, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	} else {
		shut()
	}
	if _, err := os.Stat(got[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of 60 days ago: %v", err)
	}
}

// TestLogKeptLong: with more days than fit in a time.Duration everything is kept.
func TestLogKeptLong(t *testing.T) {
	for _, age := range []int{106_752, 999_999, math.MaxInt32} {
		dir := t.TempDir()
		conf := netconf.Log{File: filepath.Join(dir, "cni.log"), MaxSize: 1, MaxAge: age}
		now := time.Now()
		for i := range 3 {
			log, shut, err := NewLogger(conf, io.Discard, io.Discard, now.Add(time.Duration(i)*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			log.Info(strings.Repeat("x", 1<<20))
			shut()
		}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 3 {
			t.Errorf("%d days: %v, %v: want two rotated files beside the log", age, files, err)
		}
	}
}

// TestLogRotationByALink uses a log on another disk, reached by a symbolic link.
func TestLogRotationByALink(t *testing.T) {
	dir, disk := t.TempDir(), t.TempDir()
	conf := netconf.Log{File: filepath.Join(dir, "cni.log"), MaxSize: 1, MaxCount: 1}
	if err := os.Symlink(filepath.Join(disk, "calico.log"), conf.File); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 4 {
		log, shut, err := NewLogger(conf, io.Discard, io.Discard, now.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		log.Info(strings.Repeat(fmt.Sprint(i), 1<<20))
		shut()
	}
	for in, want := range map[string][]string{dir: {"cni.log"}, disk: {"calico-20260101T000003.000000000.log", "calico.log"}} {
		entries, err := os.ReadDir(in)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("files %v, want %v", got, want)
		}
	}
}

// TestLogToStdout keeps the log out of stdout, which is for the result.
func TestLogToStdout(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	conf := netconf.Log{File: fmt.Sprintf("/proc/self/fd/%d", w.Fd()), MaxSize: 1}
	log, shut, err := NewLogger(conf, w, io.Discard, time.Now())
	log.Info("something")
	shut()
	if err == nil || !strings.Contains(err.Error(), "is stdout") {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(r); len(out) > 0 || err != nil {
		t.Errorf("stdout has %q, %v", out, err)
	}
}
