// SPDX-License-Identifier: Apache-2.0

// Package logopen opens the logs of programs of ours.
package logopen

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links may lead to a file, as for the kernel.
const maxLinks = 40

// Append opens a log to append to, and makes it where it is missing; a pipe is not waited for. It follows symbolic links of this process's
// own user alone: who may write in the directory must not have root write elsewhere.
func Append(path string, perm os.FileMode) (*os.File, error) {
	at, flags := path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW
	for range maxLinks {
		if strings.HasPrefix(at, "/proc/") { // as of /dev/stderr: the kernel's links have no paths
			flags &^= unix.O_NOFOLLOW
		}
		f, err := os.OpenFile(at, flags, perm)
		if !errors.Is(err, unix.ELOOP) {
			return f, err
		}
		to, err := ownLink(at)
		if err != nil {
			return nil, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(at), to)
		}
		at = to
	}
	return nil, &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
}

// ownLink is where a link leads that this process's user has made.
func ownLink(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if int(info.Uid) != os.Geteuid() {
		return "", fmt.Errorf("open %s: it is a link that user %d has made: name the file itself, or make the link as user %d", path, info.Uid, os.Geteuid())
	}
	to := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", to)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: path, Err: err}
	}
	return string(to[:n]), nil
}
