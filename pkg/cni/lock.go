// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// locks is the host's lock file. One file holds every lock: byte 0 is for
// address management, one byte further on for each interface. The kernel
// drops the locks of a process that dies. They are open file description
// locks, see fcntl(2): they belong to the open file, not to the process.
type locks struct{ path string }

const ipamLock = int64(0)

// interfaceLock is the byte of a host interface.
func interfaceLock(hostIf string) int64 {
	sum := sha1.Sum([]byte(hostIf))
	return 1 + int64(binary.BigEndian.Uint64(sum[:8])>>8)
}

func newLocks(runDir string) locks { return locks{filepath.Join(runDir, "cni.lock")} }

// take waits for the lock at offset until ctx ends. waited tells whether
// another holder was there first.
func (l locks) take(ctx context.Context, offset int64) (release func(), waited bool, err error) {
	f, waited, err := l.takeFile(ctx, offset)
	return func() { _ = f.Close() }, waited, err
}

// takeFile is take that returns the open file which holds the lock: until drop, or until it
// is closed here and in every process that was given it.
func (l locks) takeFile(ctx context.Context, offset int64) (held *os.File, waited bool, err error) {
	f, err := l.open()
	if err != nil {
		return nil, false, err
	}
	err = lockFile(f, unix.F_OFD_SETLK, offset)
	if err == nil {
		return f, false, nil
	}
	if err != unix.EAGAIN && err != unix.EACCES {
		_ = f.Close()
		return nil, false, fmt.Errorf("lock %s: %w", l.path, err)
	}
	// The kernel queues those that wait, so that nobody starves; but it knows
	// no timeout. A wait that is given up ends with the process, or else drops
	// the lock as soon as it has it.
	locked := make(chan error, 1)
	go func() { locked <- lockFile(f, unix.F_OFD_SETLKW, offset) }()
	select {
	case err := <-locked:
		if err != nil {
			_ = f.Close()
			return nil, true, fmt.Errorf("lock %s: %w", l.path, err)
		}
		return f, true, nil
	case <-ctx.Done():
		go func() { <-locked; _ = f.Close() }() // closing drops the lock
		return nil, true, fmt.Errorf("lock %s: held by another call: %w", l.path, ctx.Err())
	}
}

func (l locks) open() (*os.File, error) {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if os.IsNotExist(err) {
		if err = os.MkdirAll(filepath.Dir(l.path), 0o755); err == nil {
			f, err = os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	return f, nil
}

// drop drops the lock of an open file, also where other processes were given that.
func drop(f *os.File, offset int64) {
	lock := unix.Flock_t{Type: unix.F_UNLCK, Start: offset, Len: 1}
	_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock) // fails for no lock that was taken
	_ = f.Close()
}

// try takes the lock only if nobody holds it, and never waits for it.
func (l locks) try(offset int64) (release func(), err error) {
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

// hints are the blocks that calls of this host took addresses from lately. The
// lock file keeps them: that a call reads them together with what it must see
// in any case saves it a round trip. They may be wrong, and then help nobody.
func (l locks) hints() []netip.Prefix {
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

// remember makes blocks the first hints.
func (l locks) remember(blocks []netip.Prefix) {
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
	f, err := os.OpenFile(l.path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	// One write of the whole, so that a reader never sees a part. Closing
	// drops no lock: they belong to other open files.
	_, _ = f.WriteAt(append(text, bytes.Repeat([]byte{' '}, hintBytes-len(text))...), 0)
	_ = f.Close()
}

// commitAt is where the lock file has the revision of the last commit, in
// commitBytes digits.
const (
	commitAt    = hintBytes
	commitBytes = 20
)

// committed notes the revision of a commit made under the lock, so that the next
// holder knows whether it read etcd before or after. A note that is missing or
// wrong costs a round trip: the compares of the next commit fail, or it reads
// again for nothing.
func (l locks) committed(revision int64) {
	f, err := os.OpenFile(l.path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(io.NewOffsetWriter(f, commitAt), "%0*d", commitBytes, revision)
	_ = f.Close()
}

// lastCommit is the revision that was noted last, or 0.
func (l locks) lastCommit() int64 {
	f, err := os.Open(l.path)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // read only
	digits := make([]byte, commitBytes)
	if _, err := f.ReadAt(digits, commitAt); err != nil {
		return 0
	}
	revision, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0
	}
	return revision
}
