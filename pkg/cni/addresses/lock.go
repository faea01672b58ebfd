// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Locks is the host's lock file. One file holds every lock: byte 0 is the lock of address management, and each
// interface has a byte further on. They are open file description locks (see fcntl(2)), which belong to the open file
// rather than to the process; the kernel drops them when the process dies.
type Locks struct{ path string }

const ipamLock = int64(0)

// InterfaceLock returns the offset of a host interface's lock.
func InterfaceLock(hostIf string) int64 {
	sum := sha1.Sum([]byte(hostIf))
	return 1 + int64(binary.BigEndian.Uint64(sum[:8])>>8)
}

// NewLocks returns the locks below runDir.
func NewLocks(runDir string) Locks { return Locks{filepath.Join(runDir, "cni.lock")} }

// take waits for the lock at offset until ctx ends.
func (l Locks) take(ctx context.Context, offset int64) (release func(), err error) {
	f, err := l.takeFile(ctx, offset)
	return func() { _ = f.Close() }, err
}

// Interface takes the lock of a host interface until release is called. After inheritable is called, child processes
// hold the lock too: if this process is killed, the next call for the interface waits until they have ended.
func (l Locks) Interface(ctx context.Context, hostIf string) (release func(), inheritable func(), err error) {
	f, err := l.takeFile(ctx, InterfaceLock(hostIf))
	if err != nil {
		return nil, nil, err
	}
	release = func() {
		lock := unix.Flock_t{Type: unix.F_UNLCK, Start: InterfaceLock(hostIf), Len: 1}
		_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock) // can't fail for a lock that is held
		_ = f.Close()
	}
	return release, func() { _, _ = unix.FcntlInt(f.Fd(), unix.F_SETFD, 0) }, nil
}

func (l Locks) takeFile(ctx context.Context, offset int64) (*os.File, error) {
	f, err := l.open()
	if err != nil {
		return nil, err
	}
	err = lockFile(f, unix.F_OFD_SETLK, offset)
	if err == nil {
		return f, nil
	}
	if err != unix.EAGAIN && err != unix.EACCES {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", l.path, err)
	}
	// The kernel queues waiters, so none starves, but it has no timeout. A wait that is given up ends with the process,
	// or drops the lock as soon as it gets it.
	locked := make(chan error, 1)
	go func() { locked <- lockFile(f, unix.F_OFD_SETLKW, offset) }()
	select {
	case err := <-locked:
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", l.path, err)
		}
		return f, nil
	case <-ctx.Done():
		go func() { <-locked; _ = f.Close() }() // closing drops the lock
		return nil, fmt.Errorf("lock %s: held by another call: %w", l.path, ctx.Err())
	}
}

func (l Locks) open() (*os.File, error) {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if os.IsNotExist(err) {
		if err = os.MkdirAll(filepath.Dir(l.path), 0o755); err == nil {
			f, err = os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	return f, nil
}

// Try takes the lock only if it is free; it never waits.
func (l Locks) Try(offset int64) (release func(), err error) {
	f, err := l.open()
	if err != nil {
		return nil, err
	}
	if err := lockFile(f, unix.F_OFD_SETLK, offset); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: held by another call: %w", l.path, err)
	}
	return func() { _ = f.Close() }, nil
}

func lockFile(f *os.File, command int, offset int64) error {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: offset, Len: 1}
	for {
		if err := unix.FcntlFlock(f.Fd(), command, &lock); err != unix.EINTR {
			return err
		}
	}
}

const (
	maxHints  = 4
	hintBytes = 256
)

// hints returns the blocks that calls on this host recently took addresses from. They are kept in the lock file.
// Reading them along with what a call must read anyway saves a round trip; hints that are wrong merely save nothing.
func (l Locks) hints() []netip.Prefix {
	f, err := os.Open(l.path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // read only
	buf := make([]byte, hintBytes)
	n, _ := f.ReadAt(buf, 0)
	var out []netip.Prefix
	for _, word := range strings.Fields(string(buf[:n])) {
		if p, err := netip.ParsePrefix(word); err == nil && p == p.Masked() && len(out) < maxHints {
			out = append(out, p)
		}
	}
	return out
}

// remember puts blocks first among the hints.
func (l Locks) remember(blocks []netip.Prefix) {
	old := l.hints()
	if !slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return !slices.Contains(old, b) }) {
		return
	}
	var text []byte
	for i, p := range append(slices.Clone(blocks), old...) {
		if len(text)+len(p.String())+1 <= hintBytes && (i < len(blocks) || !slices.Contains(blocks, p)) {
			text = append(append(text, p.String()...), '\n')
		}
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	// Write everything at once, so that a reader never sees a part. Closing drops no lock: the locks belong to other
	// open files.
	_, _ = f.WriteAt(append(text, bytes.Repeat([]byte{' '}, hintBytes-len(text))...), 0)
	_ = f.Close()
}
