// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/nsm"
)

// checkSocket rejects a socket that isn't below the manager's directory, or that is reached through a link: as root,
// the manager would otherwise talk to any program of the node whose socket is named.
func (m *Manager) checkSocket(path string) error {
	rel, err := filepath.Rel(m.cfg.Directory, path)
	if err != nil || !filepath.IsAbs(path) || !filepath.IsLocal(rel) || rel == "." || filepath.Clean(path) != path {
		return fmt.Errorf("%w: socket_location %.200q: want a path below %s, without .. in it", nsm.ErrInvalid, path, m.cfg.Directory)
	}
	root, err := os.OpenRoot(m.cfg.Directory)
	if err != nil {
		return fmt.Errorf("%w: socket_location: %w", nsm.ErrAborted, err)
	}
	defer func() { _ = root.Close() }() // it was only read
	for ; rel != "."; rel = filepath.Dir(rel) {
		info, err := root.Lstat(rel)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%w: socket_location %.200q: %s is a link: name where it leads, below %s", nsm.ErrInvalid, path, rel, m.cfg.Directory)
		}
	}
	return nil
}
