// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/logopen"
	"golang.org/x/sys/unix"
)

// NewLogger returns a logger to stderr and to the configured file, and a function that closes the file. If the file
// can't be used the logger still works; the error is for a warning.
func NewLogger(conf netconf.Log, stdout, stderr io.Writer, now time.Time) (*slog.Logger, func(), error) {
	out, shut := stderr, func() {}
	f, err := openLog(conf, now)
	if f != nil && sameFile(f, stdout) {
		_ = f.Close() // nothing was written to it
		f, err = nil, fmt.Errorf("log file %s is stdout, which is for the result: name another, or none", conf.File)
	}
	if f != nil {
		out, shut = both{stderr, f}, func() { _ = f.Close() }
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: conf.Level})), shut, err
}

func sameFile(f *os.File, w io.Writer) bool {
	other, ok := w.(*os.File)
	if !ok {
		return false
	}
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := other.Stat()
	return err == nil && os.SameFile(a, b)
}

// both writes to both writers and never fails: a full disk must not stop a pod.
type both [2]io.Writer

// Write always takes all of p.
func (b both) Write(p []byte) (int, error) {
	for _, w := range b {
		_, _ = w.Write(p) // see the type
	}
	return len(p), nil
}

// openLog opens the log file for appending. Many processes write to it concurrently, one record per write; the first
// one that finds it too large renames it. The result may be nil, with a nil error if no file is configured.
func openLog(conf netconf.Log, now time.Time) (*os.File, error) {
	if conf.File == "" {
		return nil, nil
	}
	f, err := logopen.Append(conf.File, logPerm)
	if os.IsNotExist(err) {
		if err = os.MkdirAll(filepath.Dir(conf.File), 0o755); err == nil {
			f, err = logopen.Append(conf.File, logPerm)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	if !tooLarge(f, conf.MaxSize) {
		return f, nil
	}
	if err := rotate(f, conf, now); err != nil {
		return f, fmt.Errorf("rotate the log file: %w", err)
	}
	_ = f.Close() // it has been moved away
	if f, err = logopen.Append(conf.File, logPerm); err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	return f, nil
}

// logPerm is the mode of the plugins' log file.
const logPerm = 0o600

func tooLarge(f *os.File, maxMB int) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular() && info.Size() >= int64(maxMB)<<20
}

// rotate renames the file f, and removes rotated files that are too old or too many. The lock on f, which dies with its
// holder, makes sure that only one process does it.
func rotate(f *os.File, conf netconf.Log, now time.Time) error {
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // another process is at it
	}
	ours, err := f.Stat()
	if err != nil {
		return err
	}
	current, err := os.Stat(conf.File)
	if err != nil || !os.SameFile(ours, current) {
		return nil // another process did it
	}
	// A symbolic link stays: it points to the disk for the log.
	path, err := filepath.EvalSymlinks(conf.File)
	if err != nil {
		return err
	}
	ext := filepath.Ext(path)
	base := strings.TrimSuffix(path, ext)
	moved := base + "-" + now.UTC().Format("20060102T150405.000000000") + ext
	if err := os.Rename(path, moved); err != nil {
		return err
	}
	old, err := filepath.Glob(base + "-[0-9]*T*" + ext)
	if err != nil {
		return nil // the path has brackets: remove nothing
	}
	slices.Sort(old)
	slices.Reverse(old) // newest first
	for i, path := range old {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		// Compute by the calendar: a time.Duration can't hold a large number of days.
		aged := conf.MaxAge > 0 && info.ModTime().Before(now.AddDate(0, 0, -conf.MaxAge))
		if aged || conf.MaxCount > 0 && i >= conf.MaxCount {
			_ = os.Remove(path) // another process may have
		}
	}
	return nil
}
