// SPDX-License-Identifier: Apache-2.0

package params

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultFile is the default configuration file.
const DefaultFile = "/etc/calico/felix.cfg"

// maxFile is far more than all parameters take.
const maxFile = 1 << 20

// ReadFile reads the parameters in a file, by name in the file's spelling. A missing file has none. The error says which lines are not
// understood; the others are used.
func ReadFile(path string) (map[string]string, error) {
	// Don't block on a pipe; anything but a regular file is refused below.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || path == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%d bytes: at most %d", info.Size(), maxFile)
	}
	return parseFile(io.LimitReader(f, maxFile))
}

// parseFile reads lines `Name = value`. Section names are ignored; lines that begin with # or ; are comments.
func parseFile(r io.Reader) (map[string]string, error) {
	settings := map[string]string{}
	at := map[string]int{} // the line of each
	var errs []error
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxFile)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
			continue
		case line[0] == '[' && line[len(line)-1] == ']':
			continue
		}
		name, value, found := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !found || name == "" || line[0] == '[' {
			errs = append(errs, fmt.Errorf("line %d: %.64q: want [section], Name = value or # comment", n, line))
			continue
		}
		value = strings.TrimSpace(value)
		if was, twice := settings[name]; twice && was != value {
			errs = append(errs, fmt.Errorf("line %d: %.64q: line %d says it again, and counts", at[name], name+" = "+was, n))
		}
		settings[name], at[name] = value, n
	}
	return settings, errors.Join(append(errs, lines.Err())...)
}
