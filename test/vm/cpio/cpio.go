// SPDX-License-Identifier: Apache-2.0

// Package cpio writes archives of the form that the kernel unpacks as its initial file system
// (Documentation/driver-api/early-userspace/buffer-format.rst).
package cpio

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

// Writer writes an archive, with the directories that its files are in.
type Writer struct {
	w     *bufio.Writer
	size  int64
	inode int
	made  map[string]bool // names
}

// NewWriter begins an archive.
func NewWriter(to io.Writer) *Writer {
	return &Writer{w: bufio.NewWriterSize(to, 1<<20), made: map[string]bool{".": true}}
}

// entry writes one file's header and name; size bytes and padding must follow.
func (w *Writer) entry(name string, mode uint32, size int64) error {
	w.inode++
	n, err := fmt.Fprintf(w.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		w.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	w.size += int64(n)
	return errors.Join(err, w.pad())
}

// pad fills up to a multiple of four.
func (w *Writer) pad() error {
	for w.size%4 != 0 {
		if err := w.w.WriteByte(0); err != nil {
			return err
		}
		w.size++
	}
	return nil
}

// Dir makes a directory and those above it.
func (w *Writer) Dir(name string) error {
	if w.made[name] {
		return nil
	}
	if err := w.Dir(path.Dir(name)); err != nil {
		return err
	}
	w.made[name] = true
	return w.entry(name, unix.S_IFDIR|0o755, 0)
}

// Bytes makes a file that may be run, unless there is one.
func (w *Writer) Bytes(name string, data []byte) error {
	if w.made[name] {
		return nil
	}
	w.made[name] = true
	if err := errors.Join(w.Dir(path.Dir(name)), w.entry(name, unix.S_IFREG|0o755, int64(len(data)))); err != nil {
		return err
	}
	n, err := w.w.Write(data)
	w.size += int64(n)
	return errors.Join(err, w.pad())
}

// File makes a copy of a file that may be run, unless there is one.
func (w *Writer) File(name, source string) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	return w.Bytes(name, data)
}

// Tree makes copies of all regular files below a directory.
func (w *Writer) Tree(name, source string) error {
	return filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(source, p)
		if err != nil {
			return err
		}
		return w.File(path.Join(name, filepath.ToSlash(rel)), p)
	})
}

// Size is how many bytes there are so far.
func (w *Writer) Size() int64 { return w.size }

// Close ends the archive.
func (w *Writer) Close() error {
	return errors.Join(w.entry("TRAILER!!!", 0, 0), w.w.Flush())
}
