// SPDX-License-Identifier: Apache-2.0

// Package logfile copies the log to a file, and reopens it after a rotation.
package logfile

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/logopen"
)

// LevelNone is above every level in use.
const LevelNone = slog.Level(100)

// File is the file of LogFilePath, a second destination of the log. It has no file until Set names one. Its Handler must be one of the
// logger's handlers.
type File struct {
	level slog.LevelVar

	mu      sync.Mutex
	path    string
	file    *os.File // nil = none
	checked time.Time
}

// New returns a File that writes nowhere yet.
func New() *File {
	l := &File{}
	l.level.Set(LevelNone)
	return l
}

// Handler returns a handler that writes to the file what is at or above its level.
func (l *File) Handler() slog.Handler {
	return slog.NewTextHandler(l, &slog.HandlerOptions{Level: &l.level})
}

// Set switches to another file, "" = none, and level. After an error there is no file.
func (l *File) Set(path string, level slog.Level) error {
	if l == nil {
		return nil // this program logs elsewhere
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if path == "" {
		level = LevelNone
	}
	l.level.Set(level)
	if path == l.path {
		return nil
	}
	var file *os.File
	var err error
	if path != "" {
		file, err = openLog(path)
	}
	if err != nil {
		l.level.Set(LevelNone)
		path = ""
	}
	l.swap(file)
	l.path = path
	return err
}

func (l *File) swap(file *os.File) {
	if l.file != nil {
		_ = l.file.Close() // each line was written when it was logged
	}
	l.file = file
}

// rotationInterval is how often Write checks whether the file was renamed.
const rotationInterval = time.Second

// Write appends a line to the file, reopening it first if it was renamed.
func (l *File) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return len(line), nil
	}
	if now := time.Now(); now.Sub(l.checked) >= rotationInterval {
		l.checked = now
		l.reopen()
	}
	return l.file.Write(line)
}

// reopen opens the file again after a rotation. If that fails, the open one stays.
func (l *File) reopen() {
	there, err := os.Stat(l.path)
	mine, errMine := l.file.Stat()
	if err == nil && errMine == nil && os.SameFile(there, mine) {
		return
	}
	if file, err := openLog(l.path); err == nil {
		l.swap(file)
	}
}

// openLog opens a file for appending. It creates the file's directory, as /var/log/calico is missing at first, but none above: a missing
// parent means a mistyped path.
func openLog(path string) (*os.File, error) {
	if err := os.Mkdir(filepath.Dir(path), 0o755); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: only the last directory of the path is made: correct it, or make the others and set it again", err)
	} else if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	f, err := logopen.Append(path, 0o640) // refuses anything but a file
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a file")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, f.Close()))
	}
	return f, nil
}
