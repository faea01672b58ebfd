// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/calico-go/calico/pkg/nsm"
)

// TestSockets: an endpoint's socket lies below the manager's directory, and no link leads to it.
func TestSockets(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	m := &Manager{cfg: Config{Directory: dir}}
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "sub"), 0o700),
		os.Symlink(other, filepath.Join(dir, "out")), os.Symlink("sub", filepath.Join(dir, "in")), os.Symlink("/run/docker.sock", filepath.Join(dir, "link.sock")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{
		dir + "/a.sock": true, dir + "/sub/a.sock": true, dir + "/..a": true,
		dir: false, dir + "/": false, "": false, "a.sock": false, "/run/docker.sock": false, dir + "2/a.sock": false,
		dir + "/../a.sock": false, dir + "/sub/../a.sock": false, dir + "//a.sock": false,
		dir + "/link.sock": false, dir + "/out/a.sock": false, dir + "/in/a.sock": false, "@abstract": false,
	} {
		err := m.checkSocket(path)
		if (err == nil) != want || err != nil && !errors.Is(err, nsm.ErrInvalid) {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
}
