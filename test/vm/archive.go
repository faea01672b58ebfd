// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// An archive is a cpio archive of the form that the kernel unpacks
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w     *bufio.Writer
	size  int64
	inode int
	made  map[string]bool
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), made: map[string]bool{".": true}}
}

// entry writes one file's header and name; size bytes and padding must follow.
func (a *archive) entry(name string, mode uint32, size int64) error {
	a.inode++
	n, err := fmt.Fprintf(a.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	a.size += int64(n)
	return errors.Join(err, a.pad())
}

// pad fills up to a multiple of four.
func (a *archive) pad() error {
	for a.size%4 != 0 {
		if err := a.w.WriteByte(0); err != nil {
			return err
		}
		a.size++
	}
	return nil
}

// dir makes a directory and those above it.
func (a *archive) dir(name string) error {
	if a.made[name] {
		return nil
	}
	if err := a.dir(path.Dir(name)); err != nil {
		return err
	}
	a.made[name] = true
	return a.entry(name, unix.S_IFDIR|0o755, 0)
}

// bytes makes a file that may be run.
func (a *archive) bytes(name string, data []byte) error {
	if err := errors.Join(a.dir(path.Dir(name)), a.entry(name, unix.S_IFREG|0o755, int64(len(data)))); err != nil {
		return err
	}
	n, err := a.w.Write(data)
	a.size += int64(n)
	return errors.Join(err, a.pad())
}

// file makes a copy of a file that may be run.
func (a *archive) file(name, source string) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	return a.bytes(name, data)
}

// tree makes copies of all files below a directory.
func (a *archive) tree(name, source string) error {
	return filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(source, p)
		if err != nil {
			return err
		}
		return a.file(path.Join(name, filepath.ToSlash(rel)), p)
	})
}

// close ends the archive.
func (a *archive) close() error {
	return errors.Join(a.entry("TRAILER!!!", 0, 0), a.w.Flush())
}
