// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSession bounds what is read. A session has etcd's certificates, and its ticket ours.
const maxSession = 64 << 10

// A file begins with the digest of all that follows: what its content belongs to, when that was
// made (seconds since 1970), and the content. That of a session is the length of the ticket, the
// ticket, and the session as crypto/tls writes it. Numbers are big-endian.
const (
	sessionMadeAt   = 2 * sha256.Size
	sessionAt       = sessionMadeAt + 8
	sessionTicketAt = sessionAt + 4
)

func seal(content []byte, belongs [sha256.Size]byte, now time.Time) []byte {
	data := append(make([]byte, sha256.Size), belongs[:]...)
	data = binary.BigEndian.AppendUint64(data, uint64(now.Unix()))
	data = append(data, content...)
	sum := sha256.Sum256(data[sha256.Size:])
	copy(data, sum[:])
	return data
}

// unseal fails for what is not whole, belongs to something else or is too old. A single wrong bit
// of a session would have etcd refuse the handshake, hence the digest.
func unseal(data []byte, belongs [sha256.Size]byte, now time.Time) ([]byte, error) {
	if len(data) <= sessionAt {
		return nil, errors.New("it is too short")
	}
	if sum := sha256.Sum256(data[sha256.Size:]); !bytes.Equal(sum[:], data[:sha256.Size]) {
		return nil, errors.New("it is damaged")
	}
	if !bytes.Equal(data[sha256.Size:sessionMadeAt], belongs[:]) {
		return nil, errors.New("it is of other settings or files")
	}
	made := time.Unix(int64(binary.BigEndian.Uint64(data[sessionMadeAt:])), 0)
	if age := now.Sub(made); age < 0 || age >= sessionLife {
		return nil, fmt.Errorf("it is of %v", made)
	}
	return data[sessionAt:], nil
}

func formatSession(state *tls.ClientSessionState, belongs [sha256.Size]byte, now time.Time) ([]byte, error) {
	ticket, session, err := state.ResumptionState()
	if err != nil {
		return nil, err
	}
	encoded, err := session.Bytes()
	if err != nil {
		return nil, err
	}
	content := binary.BigEndian.AppendUint32(nil, uint32(len(ticket)))
	content = append(append(content, ticket...), encoded...)
	return seal(content, belongs, now), nil
}

// parseSession fails for what unseal does, and for what is no session.
func parseSession(data []byte, belongs [sha256.Size]byte, now time.Time) (*tls.ClientSessionState, error) {
	content, err := unseal(data, belongs, now)
	if err != nil {
		return nil, err
	}
	if len(content) < 4 {
		return nil, errors.New("it is too short")
	}
	ticket, rest := content[4:], uint64(binary.BigEndian.Uint32(content))
	if rest > uint64(len(ticket)) {
		return nil, errors.New("it is too short for its ticket")
	}
	session, err := tls.ParseSessionState(ticket[rest:])
	if err != nil {
		return nil, err
	}
	return tls.NewResumptionState(ticket[:rest], session)
}

// sessionFile is a file in a directory that nobody else may enter, whose parent is trusted.
type sessionFile struct {
	dir, name string
	uid       int // whose both must be
}

func (f sessionFile) read() ([]byte, error) {
	if err := f.checkDir(); err != nil {
		return nil, err
	}
	// A pipe is not waited for.
	file, err := os.OpenFile(f.path(), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no file")
	case !f.isPrivate(info):
		return nil, errors.New("it is not this user's with mode 0600")
	case info.Size() > maxSession:
		return nil, fmt.Errorf("it has %d bytes", info.Size())
	}
	data := make([]byte, info.Size())
	_, err = io.ReadFull(file, data)
	return data, err
}

// write replaces the file in one step, and removes those that nobody has replaced since the time.
func (f sessionFile) write(data []byte, since time.Time) error {
	if err := f.makeDir(); err != nil {
		return err
	}
	file, err := os.CreateTemp(f.dir, "."+f.name+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), f.path())
	}
	if err != nil {
		_ = os.Remove(file.Name()) // the first error is the one to tell
		return err
	}
	entries, _ := os.ReadDir(f.dir) // the file is written; what is left over waits for the next
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(since) {
			_ = os.Remove(filepath.Join(f.dir, e.Name())) // of no use to anybody
		}
	}
	return nil
}

// lock waits until no other process has the directory locked, or ctx ends.
func (f sessionFile) lock(ctx context.Context) (unlock func(), err error) {
	if err := f.makeDir(); err != nil {
		return nil, err
	}
	dir, err := os.OpenFile(f.dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	// The kernel knows no timeout. A wait that is given up drops the lock as soon as it has it.
	locked := make(chan error, 1)
	go func() {
		err := error(syscall.EINTR)
		for errors.Is(err, syscall.EINTR) {
			err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX)
		}
		locked <- err
	}()
	select {
	case err := <-locked:
		if err != nil {
			_ = dir.Close()
			return nil, err
		}
		return func() { _ = dir.Close() }, nil
	case <-ctx.Done():
		go func() { <-locked; _ = dir.Close() }()
		return nil, fmt.Errorf("%s: locked by another call: %w", f.dir, ctx.Err())
	}
}

func (f sessionFile) remove() { _ = os.Remove(f.path()) }

func (f sessionFile) path() string { return filepath.Join(f.dir, f.name) }

func (f sessionFile) makeDir() error {
	if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return f.checkDir()
}

func (f sessionFile) checkDir() error {
	info, err := os.Lstat(f.dir)
	if err == nil && (!info.IsDir() || !f.isPrivate(info)) {
		err = fmt.Errorf("%s: not a directory of this user's with mode 0700", f.dir)
	}
	return err
}

// isPrivate: it is the user's, and nobody else may do anything with it.
func (f sessionFile) isPrivate(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == f.uid && info.Mode().Perm()&0o077 == 0
}
