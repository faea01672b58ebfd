// SPDX-License-Identifier: Apache-2.0

package classicd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// saved is the directory in which Felix keeps what it knows for the next run: a file for each endpoint. The files are not synced to disk:
// they survive a kill, may be lost with the host, and the plugin sends everything again.
type saved string

// unfinished begins the name of a file that is being written.
const unfinished = ".new-"

func (s saved) read() (map[string][]byte, error) {
	if err := os.MkdirAll(string(s), 0o700); err != nil {
		return nil, fmt.Errorf("directory of endpoints (CALICO_VAR_DIR): %w", err)
	}
	entries, err := os.ReadDir(string(s))
	if err != nil {
		return nil, fmt.Errorf("directory of endpoints (CALICO_VAR_DIR): %w", err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), unfinished) {
			continue
		}
		if out[e.Name()], err = os.ReadFile(filepath.Join(string(s), e.Name())); err != nil {
			return nil, fmt.Errorf("what a former run left of an endpoint: %w", err)
		}
	}
	return out, nil
}

// write saves data, or removes the file if data is nil. If saving fails, the file is removed: the next run has to wait for the plugin.
func (s saved) write(name string, data []byte) error {
	path, temp := filepath.Join(string(s), name), filepath.Join(string(s), unfinished+name)
	if data != nil {
		err := os.WriteFile(temp, data, 0o600)
		if err == nil {
			err = os.Rename(temp, path)
		}
		if err == nil {
			return nil
		}
		return fmt.Errorf("the next run waits for the plugin: %w", errors.Join(err, os.RemoveAll(path)))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the next run knows what is gone: %w", err)
	}
	return nil
}
