// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// binaries are what a lab runs.
func binaries() []string { return []string{"calico", "calico-ipam", "calico-node", "calico-lab"} }

// BuildOptions are the ways in which the binaries of a test can differ from
// those that users get.
type BuildOptions struct {
	Tags string // more than what users get has, comma separated
	Race bool
}

const (
	buildPrefix = "calico-lab-bin-"
	lockName    = ".lock"
	module      = "github.com/calico-go/calico"
)

// Build returns a directory with the binaries, built once per process from the
// source that the test was built from. Without options, and where the
// environment has CALICO_BIN_DIR, they are taken from there.
func Build(t testing.TB, opts BuildOptions) string {
	t.Helper()
	dir, err := buildOnce(opts)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func buildOnce(opts BuildOptions) (_ string, err error) {
	if dir := os.Getenv("CALICO_BIN_DIR"); dir != "" && opts == (BuildOptions{}) {
		return filepath.Abs(dir)
	}
	start, _, err := procStat(os.Getpid())
	if err != nil {
		return "", err
	}
	// Nothing runs at the end of a test process: the directory's name says
	// whose it is, for the next process that builds to remove.
	name := fmt.Sprintf("%s%d-%d-%s-%t", buildPrefix, os.Getpid(), start, opts.Tags, opts.Race)
	dir := filepath.Join(os.TempDir(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// The lock is let go of by the end of this process only: it says that the
	// directory is in use, also to processes that see other PIDs.
	lock, err := unix.Open(filepath.Join(dir, lockName), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			unix.Close(lock) // or the next try in this process would wait for this one
		}
	}()
	done := filepath.Join(dir, ".done")
	for _, how := range []int{unix.LOCK_SH, unix.LOCK_EX} {
		if err := unix.Flock(lock, how); err != nil {
			return "", fmt.Errorf("lock %s: %w", dir, err)
		}
		if _, err := os.Stat(done); err == nil {
			return dir, unix.Flock(lock, unix.LOCK_SH)
		}
	}
	removeOldBuilds()
	if err := buildInto(dir, opts); err != nil {
		return "", err
	}
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		return "", err
	}
	return dir, unix.Flock(lock, unix.LOCK_SH)
}

func buildInto(dir string, opts BuildOptions) error {
	tags, err := shippedTags()
	if err != nil {
		return err
	}
	if opts.Tags != "" {
		tags += "," + opts.Tags
	}
	// Git gives no version of a checkout that is another user's.
	args := []string{"build", "-buildvcs=false", "-o", dir, "-tags", tags}
	cgo := "CGO_ENABLED=0"
	if opts.Race {
		args = append(args, "-race")
		cgo = "CGO_ENABLED=1"
	}
	for _, name := range binaries() {
		args = append(args, module+"/cmd/"+name)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// shippedTags are the build tags of what users get.
func shippedTags() (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	script := filepath.Join(strings.TrimSpace(string(root)), "scripts", "tags.sh")
	tags, err := exec.Command(script, "shipped").Output()
	if err != nil {
		return "", fmt.Errorf("%s shipped: %w", script, err)
	}
	return strings.TrimSpace(string(tags)), nil
}

// removeOldBuilds removes what test processes that are gone have built.
func removeOldBuilds() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), buildPrefix+"*"))
	for _, dir := range dirs {
		lock, err := unix.Open(filepath.Join(dir, lockName), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // being made
		}
		if unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.RemoveAll(dir)
		}
		unix.Close(lock)
	}
}
