// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// delegations remember for whom another plugin was asked for addresses, from
// before the question until after they were given back. A call may be killed
// before it has written an endpoint, or after that is deleted: then nothing else
// says that the other plugin keeps addresses, and most have no GC of their own.
//
// Each is a symbolic link: it is made in one step, and where it points says all.
type delegations struct{ dir string }

// delegation is one container interface.
type delegation struct{ network, cid, ifName, hostIf string }

func newDelegations(varDir string) delegations {
	return delegations{filepath.Join(varDir, "delegated")}
}

func delegationOf(id identity) delegation {
	return delegation{network: id.network, cid: id.cid, ifName: id.ifName, hostIf: id.hostIf}
}

// path is the same however long the names are, which have no spaces.
func (d delegations) path(x delegation) string {
	sum := sha1.Sum([]byte(handleID(x.network, x.cid, x.ifName)))
	return filepath.Join(d.dir, hex.EncodeToString(sum[:]))
}

// note remembers one; former says that it was known before.
func (d delegations) note(x delegation) (former bool, err error) {
	text := strings.Join([]string{x.network, x.cid, x.ifName, x.hostIf}, " ")
	err = os.Symlink(text, d.path(x))
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(d.dir, 0o755); err == nil {
			err = os.Symlink(text, d.path(x))
		}
	}
	if errors.Is(err, os.ErrExist) {
		return true, nil
	}
	return false, err
}

func (d delegations) forget(x delegation) error {
	if err := os.Remove(d.path(x)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// of lists those of one network.
func (d delegations) of(network string) ([]delegation, error) {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var out []delegation
	for _, e := range entries {
		text, err := os.Readlink(filepath.Join(d.dir, e.Name()))
		if err != nil {
			continue // forgotten meanwhile, or nothing of ours
		}
		if w := strings.Split(text, " "); len(w) == 4 && w[0] == network {
			out = append(out, delegation{w[0], w[1], w[2], w[3]})
		}
	}
	return out, err
}
