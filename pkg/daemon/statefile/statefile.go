// SPDX-License-Identifier: Apache-2.0

// Package statefile writes the small files that programs of ours leave on a host.
package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Write replaces the file at the path atomically, readable by all: a reader sees the whole old or the whole new content. It leaves a file
// alone that is right already, and creates the directory if it is missing.
func Write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return Replace(path, content, 0o644)
}

// Replace is Write with the file's permissions, in a directory that must exist.
func Replace(path string, content []byte, perm os.FileMode) error {
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, content) {
		if info, err := os.Lstat(path); err == nil && info.Mode() == perm { // a regular file
			return nil
		}
	}
	if err := Sweep(path); err != nil {
		return fmt.Errorf("write %s: %w", path, bare(err))
	}
	return Put(path, content, perm)
}

// Put is Replace for a directory with many files, all of which Sweep would look at: it neither sweeps nor asks what is there. What it
// leaves where it is killed has a name that begins with a dot.
func Put(path string, content []byte, perm os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, bare(err))
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Chmod(perm)
	}
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // the first error is the one to report
		return fmt.Errorf("write %s: %w", path, bare(err))
	}
	return nil
}

// Sweep removes the temporary files that a killed Write or Replace of the path left beside it. No other may be under way.
func Sweep(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+filepath.Base(path)+".") {
			err = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// bare strips from an error the name of the temporary file, which differs with each try, so that a caller that retries logs one failure
// once.
func bare(err error) error {
	if on, ok := errors.AsType[*os.PathError](err); ok {
		return on.Err
	}
	if on, ok := errors.AsType[*os.LinkError](err); ok {
		return on.Err
	}
	return err
}
