// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/daemon/statefile"
)

// ourModule is the module path that Go records in each of our programs (runtime/debug.BuildInfo).
const ourModule = "github.com/calico-go/calico"

// plugins returns the programs to install.
func plugins() []string { return []string{"calico", "calico-ipam"} }

// verifyTimeout bounds how long a plugin may take to print its version.
const verifyTimeout = 30 * time.Second

// installBinary puts a plugin in the directory atomically: a running one goes on with the former file, and a new process gets the whole
// former or the whole new one.
func (c Config) installBinary(ctx context.Context, dir, name string) error {
	from, to := filepath.Join(c.From, name), filepath.Join(dir, name)
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read what is to be installed: %w: run calico-install where the plugins lie beside it, as in the image", err)
	}
	sum := sha256.Sum256(content)
	there, err := os.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return statefile.Advise(err)
	case isFile(to, sum) && there.Mode().Perm()&0o577 == 0o555: // the owner may write, others can't
		if err := verify(ctx, to, name); err != nil {
			return err
		}
		c.Logger.Info("plugin is up to date", "file", to)
		return nil
	default:
		if err := c.makeWay(to); err != nil {
			return err
		}
	}
	temporary := filepath.Join(dir, "."+name+".new")
	err = writeProgram(temporary, content)
	if err == nil && !isFile(temporary, sum) {
		err = fmt.Errorf("%s reads back as something else than what was written: the node's disk is broken", temporary)
	}
	if err == nil {
		err = verify(ctx, temporary, name)
	}
	if err == nil {
		err = os.Rename(temporary, to)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		_ = os.Remove(temporary) // the first error is the one to report
		return fmt.Errorf("install %s: %w", to, statefile.Advise(err))
	}
	c.Logger.Info("plugin is installed", "file", to, "sha256", fmt.Sprintf("%x", sum[:8]))
	return nil
}

// makeWay makes sure that a plugin's path holds nothing of others, if Exclusive by renaming it. Without Exclusive such a file is an error.
func (c Config) makeWay(path string) error {
	if ours, err := isOurs(path); err != nil || ours {
		return statefile.Advise(err)
	}
	whose := "it isn't this Calico's"
	if info, err := buildinfo.ReadFile(path); err == nil && info.Main.Path != "" {
		whose += ", but built from " + info.Main.Path
	}
	if !c.Exclusive {
		return fmt.Errorf("%s is in the way, and stays: %s. Remove it from the node, or set CNI_EXCLUSIVE=true to have it renamed", path, whose)
	}
	if err := os.Rename(path, path+netconf.BackupSuffix); err != nil {
		return statefile.Advise(err)
	}
	c.Logger.Warn("a file in the place of a plugin was renamed, as CNI_EXCLUSIVE is true", "file", path, "reason", whose, "to", path+netconf.BackupSuffix)
	return nil
}

// isOurs reports whether the path is one of our programs.
func isOurs(path string) (bool, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Main.Path == ourModule, nil
}

// isFile reports whether the path is a regular file with the content of this sum.
func isFile(path string, sum [sha256.Size]byte) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	content, err := os.ReadFile(path)
	return err == nil && sha256.Sum256(content) == sum
}

// writeProgram writes a file and closes it: the kernel runs no file that is open for writing.
func writeProgram(path string, content []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by an installer that was killed
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Chmod(0o755)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// syncDir makes a rename in the directory durable across a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// verify runs a plugin on the node, which must print its name.
func verify(ctx context.Context, path, name string) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "-version")
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{}, &out, &stderr
	err := cmd.Run()
	switch {
	case errors.Is(err, fs.ErrPermission):
		// Not %w: Advise would add advice about files that can't be written, which is of no use here.
		return fmt.Errorf("run %s -version: %v: is the file system mounted noexec? Mount it without, or choose another directory", path, err)
	case err != nil:
		return fmt.Errorf("run %s -version: %w %s: is the image of this machine's architecture?", path, err, strings.TrimSpace(stderr.String()))
	case !strings.HasPrefix(out.String(), name+" "):
		return fmt.Errorf("%s -version says %q: want %s and its version", path, strings.TrimSpace(out.String()), name)
	}
	return nil
}
