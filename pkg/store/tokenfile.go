// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// tokenFile is the path of the file through which processes share the token of one user of one etcd, "" for none. Any
// problem with it merely costs an extra request to authenticate. The name identifies what the token belongs to,
// including the version of the password file, so that a changed password is actually used.
type tokenFile string

func newTokenFile(cfg Config) tokenFile {
	info, err := os.Stat(cfg.PasswordFile)
	if cfg.TokenDir == "" || err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	owner := fmt.Sprintf("%q %q %q %q %v", cfg.DiscoverySRV, cfg.Endpoints, cfg.Username, cfg.PasswordFile, []any{stat.Dev, stat.Ino, stat.Size, stat.Ctim})
	sum := sha256.Sum256([]byte(owner))
	return tokenFile(filepath.Join(cfg.TokenDir, hex.EncodeToString(sum[:16])))
}

// read returns the token, or "" if there is no usable one.
func (f tokenFile) read(log *slog.Logger) string {
	if f == "" {
		return ""
	}
	text, err := f.readPrivate()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Debug("no token of an earlier call", "file", string(f), "reason", err)
	}
	return text
}

// readPrivate reads the file after checking that only this user can have written it.
func (f tokenFile) readPrivate() (string, error) {
	if err := private(filepath.Dir(string(f))); err != nil {
		return "", err
	}
	data, err := os.ReadFile(string(f))
	text := string(data)
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("it is no token")
	}
	return text, err
}

// write replaces the token.
func (f tokenFile) write(text string, log *slog.Logger) {
	if f == "" {
		return
	}
	if err := f.replace(text); err != nil {
		log.Debug("the token is not left for later calls", "file", string(f), "reason", err)
	}
}

func (f tokenFile) replace(text string) error {
	dir := filepath.Dir(string(f))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := private(dir); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".token-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), string(f))
	}
	if err != nil {
		_ = os.Remove(file.Name()) // report the first error
	}
	return err
}

// private checks that no other user may do anything in the directory.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s: not a directory of this user's with mode 0700", dir)
	}
	return nil
}
