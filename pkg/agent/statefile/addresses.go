// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Addresses is a folder with an empty file for each address on record. One more costs the same
// among thousands, and a process that is killed leaves each there or not.
type Addresses string

// Address is one that an endpoint has. Two holders of it one after the other are two on record.
type Address struct {
	Addr      netip.Addr
	Interface string
	Container string // "" = not known
}

// maxContainer bounds what a container's ID takes of a file's name, 255 bytes at most. No runtime's is longer.
const maxContainer = 128

// String is the name of its file: no interface has a blank or a slash in its name, nor an address.
// A container's ID is what somebody wrote to etcd; one that is too long counts as not known.
func (a Address) String() string {
	s := a.Addr.String() + " " + a.Interface
	if id := url.PathEscape(a.Container); id != "" && len(id) <= maxContainer {
		s += " " + id
	}
	return s
}

// ParseAddress reads what String writes.
func ParseAddress(s string) (Address, error) {
	addr, rest, _ := strings.Cut(s, " ")
	name, container, _ := strings.Cut(rest, " ")
	a, err := netip.ParseAddr(addr)
	id, bad := url.PathUnescape(container)
	if err == nil && (name == "" || bad != nil || len(url.PathEscape(id)) > maxContainer) {
		err = fmt.Errorf("%q: want an address, an interface and perhaps a container", s)
	}
	return Address{a, name, id}, err
}

// Read returns the addresses on record, and passes over other files.
func (dir Addresses) Read() ([]Address, error) {
	entries, err := os.ReadDir(string(dir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var all []Address
	for _, e := range entries {
		if a, err := ParseAddress(e.Name()); err == nil {
			all = append(all, a)
		}
	}
	return all, nil
}

// Add puts an address on record.
func (dir Addresses) Add(a Address) error {
	err := os.MkdirAll(string(dir), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(string(dir), a.String()), nil, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write to %s: %w", dir, bare(err))
	}
	return nil
}

// Remove takes an address off the record.
func (dir Addresses) Remove(a Address) error {
	if err := os.Remove(filepath.Join(string(dir), a.String())); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete from %s: %w", dir, bare(err))
	}
	return nil
}
