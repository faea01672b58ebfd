// SPDX-License-Identifier: Apache-2.0

// Package statefile writes and reads the small files that the agent leaves on its host.
package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write puts content at the path in one step: a reader sees the old or the
// new, whole. What is right already is not written.
func Write(path string, content []byte) error {
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, bare(err))
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Chmod(0o644)
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
		_ = os.Remove(file.Name()) // the first error is the one to tell
		return fmt.Errorf("write %s: %w", path, bare(err))
	}
	return nil
}

// bare is an error without the name of the file beside the path, which is another with each
// try: who tries again says once what fails.
func bare(err error) error {
	if on, ok := errors.AsType[*os.PathError](err); ok {
		return on.Err
	}
	if on, ok := errors.AsType[*os.LinkError](err); ok {
		return on.Err
	}
	return err
}
