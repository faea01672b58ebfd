// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// daemon is Debian's containerd, run in a host's network namespace with directories of its own.
type daemon struct {
	t     *testing.T
	dir   string // everything that it has
	netns string // of the host that it runs on
	vars  string // where its agent leaves the MTU
	conf  string // CNI configuration directory
	bin   string // CNI plugin directory

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// configuration of containerd 1.6: `containerd config default` has all fields. The plugins that are off need kernel
// modules or programs, and say so at each start. oom_score: not every machine lets a process lower its own.
const configuration = `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.overlayfs", "io.containerd.internal.v1.opt",
]
[grpc]
  address = "%[1]s/containerd.sock"
[debug]
  level = "debug"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%[4]s"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "%[2]s"
    bin_dir = "%[3]s"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = false
`

// startContainerd starts containerd in a network namespace, imports the images, and stops it when the test ends. vars is
// where the node's agent leaves what plugins read.
func startContainerd(ctx context.Context, t *testing.T, netns, vars, conf, bin string) *daemon {
	t.Helper()
	// Short, for the names of sockets; and in memory.
	dir, err := os.MkdirTemp("/run", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, netns: netns, vars: vars, conf: conf, bin: bin}
	text := fmt.Sprintf(configuration, dir, conf, bin, pauseImage)
	if err := os.WriteFile(d.path("config.toml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.stop(syscall.SIGTERM)
		d.removeGroups()
		if t.Failed() {
			t.Logf("containerd's log:\n%s", d.complaints())
		}
		os.RemoveAll(dir)
	})
	d.start(ctx)
	d.load(ctx)
	return d
}

func (d *daemon) path(name string) string { return filepath.Join(d.dir, name) }

// log is what containerd has said since it was first started.
func (d *daemon) log() string {
	d.t.Helper()
	data, err := os.ReadFile(d.path("log"))
	if err != nil {
		d.t.Fatal(err)
	}
	return string(data)
}

// complaints are the warnings and errors in the log.
func (d *daemon) complaints() string {
	var lines []string
	for line := range strings.Lines(d.log()) {
		if low := strings.ToLower(line); !strings.Contains(low, "level=debug") && !strings.Contains(low, "level=info") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-40):], "")
}

// start starts the process and waits until it serves.
func (d *daemon) start(ctx context.Context) {
	d.t.Helper()
	log, err := os.OpenFile(d.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	// Not `ip netns exec`: it mounts a new /sys, without the control groups.
	d.cmd = exec.Command("nsenter", "--net="+d.netns, "containerd", "--config", d.path("config.toml"))
	d.cmd.Env = append(os.Environ(), "CALICO_VAR_DIR="+d.vars)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	done := make(chan struct{})
	d.done = done
	go func() {
		defer close(done)
		// How it ended is in its log.
		_ = d.cmd.Wait()
	}()
	eventually.Nil(d.t, "containerd to serve", func() error {
		select {
		case <-done:
			return fmt.Errorf("it ended: %v\n%s", d.cmd.ProcessState, d.complaints())
		default:
		}
		return exec.CommandContext(ctx, "ctr", "--address", d.path("containerd.sock"), "version").Run()
	})
}

// stop ends the process with a signal and waits for it; its containers live on.
func (d *daemon) stop(sig syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.t.Fatal(err)
	}
	eventually.Receive(d.t, "containerd's end by "+sig.String(), d.done)
}

// groups is the control group that pods are made in.
func (d *daemon) groups() string { return "/" + filepath.Base(d.dir) }

// removeGroups removes the pods' control groups, which are the machine's and outlive every namespace. One that runc had
// made when containerd was killed is left by both. A group with a process in it stays, and is an error.
func (d *daemon) removeGroups() {
	d.t.Helper()
	// Version 1 has a hierarchy for each controller, version 2 has one.
	tops, err := filepath.Glob("/sys/fs/cgroup/*" + d.groups())
	if err != nil {
		d.t.Fatal(err)
	}
	tops = append(tops, "/sys/fs/cgroup"+d.groups())
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit) // the test's own has ended
	defer cancel()
	// A process that was killed is in its group until it has ended.
	err = eventually.Wait(ctx, "control groups to be empty", func() error {
		var left []error
		for _, top := range tops {
			left = append(left, removeGroup(top))
		}
		return errors.Join(left...)
	})
	if err != nil {
		d.t.Error(err)
	}
}

// removeGroup removes a control group with all below it; others may do so at the same time.
func removeGroup(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	gone := func(err error) bool { return err == nil || errors.Is(err, fs.ErrNotExist) }
	if !gone(err) {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); !gone(err) {
			return err
		}
	}
	return nil
}

// load imports the images into the namespace that the runtime interface looks in.
func (d *daemon) load(ctx context.Context) {
	d.t.Helper()
	data, err := images()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(d.path("images.tar"), data, 0o644); err != nil {
		d.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "ctr", "--address", d.path("containerd.sock"), "--namespace", "k8s.io",
		"images", "import", "--snapshotter", "native", d.path("images.tar"))
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("import images: %v\n%s", err, out)
	}
}
