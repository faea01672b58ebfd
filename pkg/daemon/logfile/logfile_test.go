// SPDX-License-Identifier: Apache-2.0

package logfile

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/daemon/problems"
)

func TestLogFile(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "deep", "a.log"), filepath.Join(dir, "b.log")
	l := New()
	log := slog.New(l.Handler())
	set := func(path string, level slog.Level, want string) {
		t.Helper()
		if err := l.Set(path, level); (want == "") != (err == nil) || !strings.Contains(problems.Reason(err), want) {
			t.Fatalf("%s: %v, want %q", path, err, want)
		}
	}
	holds := func(path string, want ...string) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(string(b)) {
			_, message, _ := strings.Cut(strings.TrimSpace(line), "msg=")
			got = append(got, message)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s holds %v, want %v", path, got, want)
		}
	}
	log.Error("nowhere")
	set(path, slog.LevelInfo, "")
	log.Info("1")
	log.Debug("no")
	set(path, slog.LevelDebug, "")
	log.Debug("2")
	holds(path, "1", "2")

	// rotated: by the next look, what is logged is in a new file
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.checked = time.Time{}
	log.Info("3")
	holds(path+".1", "1", "2")
	holds(path, "3")

	set(other, slog.LevelInfo, "")
	log.Info("4")
	holds(other, "4")
	set("", slog.LevelInfo, "")
	log.Info("no")
	holds(other, "4")
	set(other, slog.LevelInfo, "")
	log.Info("5")
	holds(other, "4", "5")

	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	set(dir, slog.LevelInfo, "is a directory")
	log.Info("no")
	set(pipe, slog.LevelInfo, "no such device")
	set(other+"/x", slog.LevelInfo, "not a directory")
	far := filepath.Join(dir, "mistyped", "log")
	set(far+"/a.log", slog.LevelInfo, "only the last directory of the path is made")
	if _, err := os.Stat(filepath.Dir(far)); !os.IsNotExist(err) {
		t.Errorf("it made %s: %v", filepath.Dir(far), err)
	}
	set("/dev/null", slog.LevelInfo, "not a file")
	holds(other, "4", "5")

	var none *File
	if err := none.Set(path, slog.LevelInfo); err != nil {
		t.Error(err)
	}
	set("", slog.LevelInfo, "")
}
