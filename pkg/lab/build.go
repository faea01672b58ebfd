// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// binaries returns the names of the programs that a lab runs.
func binaries() []string {
	return []string{"calico", "calico-ipam", "calico-node", "calico-install", "calico-lab", "calico-nsm", "calico-classic", "nsmctl", "calicoctl"}
}

// BuildOptions say how a test's binaries differ from those of users.
type BuildOptions struct {
	Tags string // additional build tags, comma separated
	Race bool
}

const module = "github.com/calico-go/calico"

// Build returns a directory with the binaries, built from the same source as the test. Without options, it uses the
// directory in the environment variable CALICO_BIN_DIR if set. The directory is the same for every process with this
// source and these options, so Go builds only what has changed.
func Build(t testing.TB, opts BuildOptions) string {
	t.Helper()
	dir, err := build(opts)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func build(opts BuildOptions) (string, error) {
	if dir := os.Getenv("CALICO_BIN_DIR"); dir != "" && opts == (BuildOptions{}) {
		return filepath.Abs(dir)
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	sum := sha256.Sum256(fmt.Appendf(root, "%+v", opts))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("calico-lab-bin-%x", sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", dir, err)
	}
	return dir, buildInto(dir, strings.TrimSpace(string(root)), opts)
}

func buildInto(dir, root string, opts BuildOptions) error {
	shipped, err := exec.Command(filepath.Join(root, "scripts", "tags.sh"), "shipped").Output()
	if err != nil {
		return fmt.Errorf("scripts/tags.sh shipped: %w", err)
	}
	tags := strings.TrimSpace(string(shipped))
	if opts.Tags != "" {
		tags += "," + opts.Tags
	}
	// Git reports no version for a checkout that belongs to another user.
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
