// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"
)

// tokenFile is where processes leave each other the token of one user of one etcd; nil where they
// leave none. What goes wrong with it costs a request to authenticate.
type tokenFile struct {
	file    sessionFile
	belongs [sha256.Size]byte
	log     *slog.Logger
}

func newTokenFile(cfg Config, files *tlsFiles, log *slog.Logger) *tokenFile {
	if cfg.SessionDir == "" || cfg.Username == "" {
		return nil
	}
	etcd := cfg.DiscoverySRV + "," + strings.Join(cfg.Endpoints, ",")
	name := digest([]byte("token"), []byte(etcd), []byte(cfg.Username), []byte(cfg.PasswordFile))
	var sum [sha256.Size]byte
	if files != nil {
		sum = files.sum
	}
	return &tokenFile{
		file:    sessionFile{cfg.SessionDir, hex.EncodeToString(name[:16]), os.Geteuid()},
		belongs: digest(name[:], sum[:]),
		log:     log,
	}
}

// of is for a version of the password file.
func (t *tokenFile) of(version string) *tokenFile {
	if t == nil {
		return nil
	}
	if version == "" {
		t.log.Debug("the token is not left for later calls", "reason", "the password file was changed just now, or is no regular file")
		return nil
	}
	return &tokenFile{t.file, digest(t.belongs[:], []byte(version)), t.log}
}

// read returns the token, "" where there is none that is of use.
func (t *tokenFile) read() string {
	data, err := t.file.read()
	if err == nil {
		data, err = unseal(data, t.belongs, time.Now())
	}
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			t.log.Debug("no token of an earlier call", "file", t.file.path(), "reason", err)
		}
		return ""
	}
	return string(data)
}

// leave replaces the token in the file.
func (t *tokenFile) leave(text string) {
	if t == nil {
		return
	}
	now := time.Now()
	if err := t.file.write(seal([]byte(text), t.belongs, now), now.Add(-sessionLife)); err != nil {
		t.log.Debug("the token is not left for later calls", "file", t.file.path(), "reason", err)
	}
}

// turn waits for another process that is about to leave a token, until ctx ends. It is a courtesy
// to etcd: who can't have it goes on without.
func (t *tokenFile) turn(ctx context.Context) (release func()) {
	if t == nil {
		return func() {}
	}
	release, err := t.file.lock(ctx)
	if err != nil {
		t.log.Debug("going on without waiting for the token of another call", "reason", err)
		return func() {}
	}
	return release
}

func (t *tokenFile) remove() {
	if t != nil && t.file.checkDir() == nil {
		t.file.remove()
	}
}

// settled is after how long a change of a file shows in its times for certain: kernels before
// 6.13 count these by their ticks, and some file systems by seconds.
const settled = time.Second

// maxPassword bounds what is read: a wrong name may be that of a device without an end. No password is so long.
const maxPassword = 4 << 10

// readPassword reads the file, without the white space around it. version is another where the file
// is another, "" where that wouldn't show. It says nothing of the password: what could be compared with
// the password itself would let who finds it guess.
func readPassword(path string) (password, version string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", "", passwordError(err)
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()            // before it is read: a change meanwhile makes it another version
	if err != nil {
		return "", "", passwordError(err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return "", "", passwordError(err)
	}
	if len(b) > maxPassword {
		return "", "", fmt.Errorf("etcd password file %s has more than %d bytes: name a file that has the password alone", path, maxPassword)
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return "", "", fmt.Errorf("etcd password file %s is empty: write the password into it", path)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return string(b), "", nil
	}
	if age := time.Since(time.Unix(stat.Ctim.Unix())); age >= 0 && age < settled {
		return string(b), "", nil
	}
	return string(b), fmt.Sprint(stat.Dev, stat.Ino, stat.Size, stat.Mtim, stat.Ctim), nil
}

func passwordError(err error) error {
	return fmt.Errorf("etcd password file: %w: name a file that this process may read", err)
}
