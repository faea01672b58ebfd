// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/lab"
)

// TestMain isolates the machine from tests that mount file systems and clear the network.
func TestMain(m *testing.M) {
	if os.Getenv("CALICO_ISOLATED") == "" {
		fmt.Fprintln(os.Stderr, "these tests clear a host's network: run them by bin/tools/isolate")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const template = `{
  "name": "k8s-pod-network",
  "cniVersion": "1.0.0",
  "plugins": [
    {
      "type": "calico",
      "etcd_endpoints": "__ETCD_ENDPOINTS__",
      "etcd_ca_cert_file": "__ETCD_CA_CERT_FILE__",
      "etcd_cert_file": "__ETCD_CERT_FILE__",
      "etcd_key_file": "__ETCD_KEY_FILE__",
      "nodename": "__KUBERNETES_NODE_NAME__",
      "log_file_path": "__LOG_FILE_PATH__",
      "mtu": __CNI_MTU__,
      "ipam": {"type": "calico-ipam"}
    }
  ]
}
`

// node returns a node's directories, and an installer for it.
func node(t *testing.T, environ ...string) Config {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"bin", "net.d"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c, err := ParseConfig(append([]string{
		"CNI_NETWORK_CONFIG=" + template, "CNI_BIN_DIR=" + dir + "/bin", "CNI_CONF_DIR=" + dir + "/net.d",
		"CALICO_VAR_DIR=" + dir + "/var", "CALICO_RUN_DIR=" + dir + "/run",
		"KUBERNETES_NODE_NAME=node-1", "ETCD_ENDPOINTS=https://10.0.0.1:2379",
	}, environ...), lab.Build(t, lab.BuildOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	c.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	return c
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func stat(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestInstall(t *testing.T) {
	c := node(t)
	stranger := filepath.Join(c.BinDir, "bridge")
	if err := os.WriteFile(stranger, []byte("another's"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(c.BinDir, "calico-ipam"), "-version").Output()
	if err != nil || !strings.HasPrefix(string(out), "calico-ipam ") {
		t.Errorf("%q, %v", out, err)
	}
	staged := filepath.Join(c.VarDir, netconf.StagedName)
	text, err := os.ReadFile(staged)
	want := strings.NewReplacer("__ETCD_ENDPOINTS__", "https://10.0.0.1:2379", "__ETCD_CA_CERT_FILE__", "", "__ETCD_CERT_FILE__", "", "__ETCD_KEY_FILE__", "",
		"__KUBERNETES_NODE_NAME__", "node-1", "__LOG_FILE_PATH__", "/var/log/calico/cni/cni.log", "__CNI_MTU__", "0").Replace(template)
	if diff := cmp.Diff(want, string(text)); diff != "" || err != nil || stat(t, staged).Mode() != 0o600 {
		t.Errorf("staged %v, %v (-want +got):\n%s", stat(t, staged).Mode(), err, diff)
	}
	left, err := os.ReadDir(c.ConfDir)
	if len(left) != 0 || err != nil {
		t.Errorf("in the runtime's directory before the agent serves: %v, %v", left, err)
	}

	// A second run changes nothing.
	path := filepath.Join(c.BinDir, "calico")
	before := stat(t, path)
	if err := Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if after := stat(t, path); !os.SameFile(before, after) || after.Mode() != 0o755 || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("a plugin that was up to date: %v", after)
	}

	// What runs goes on while another build takes its place.
	older, err := os.ReadFile(filepath.Join(c.From, "calico-lab")) // ours, and something else
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, older, 0o755); err != nil {
		t.Fatal(err)
	}
	running := exec.Command(path, "keep")
	running.Args = []string{"calico-lab", "--help"}
	stdout, err := running.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.BinDir, ".calico.new"), nil, 0o600); err != nil { // of one that was killed
		t.Fatal(err)
	}
	if err := Install(t.Context(), c); err != nil {
		t.Error(err)
	}
	if said, err := io.ReadAll(stdout); err != nil || len(said) == 0 {
		t.Errorf("what ran said %q, %v", said, err)
	}
	if err := running.Wait(); err != nil {
		t.Error(err)
	}
	names, err := filepath.Glob(filepath.Join(c.BinDir, "*"))
	if diff := cmp.Diff([]string{stranger, path, path + "-ipam"}, names); diff != "" || err != nil {
		t.Errorf("in the directory of plugins, %v (-want +got):\n%s", err, diff)
	}
	if hidden, err := filepath.Glob(filepath.Join(c.BinDir, ".*")); len(hidden) != 0 || err != nil {
		t.Errorf("left: %v, %v", hidden, err)
	}
}

// TestTLS: if the host has certificates, the configuration names the copies that the agent keeps.
func TestTLS(t *testing.T) {
	c := node(t, "ETCD_CA_CERT_FILE=/secrets/ca", "CNI_ETCD_CERT_FILE=/secrets/cni/cert", "CNI_ETCD_KEY_FILE=/secrets/cni/key", "CNI_MTU=1440", `LOG_FILE_PATH=/var/"log`)
	list, err := c.render()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"etcd_ca_cert_file": "` + c.ConfDir + `/calico-tls/etcd-ca"`, `"etcd_cert_file": "` + c.ConfDir + `/calico-tls/etcd-cert"`,
		`"etcd_key_file": "` + c.ConfDir + `/calico-tls/etcd-key"`, `"mtu": 1440`, `"log_file_path": "/var/\"log"`,
	} {
		if !strings.Contains(string(list.Text()), want) {
			t.Errorf("%s is missing in\n%s", want, list.Text())
		}
	}
}

// TestRefused: invalid settings are refused before anything is written, and the message says what to do.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no configuration", func(c *Config) { c.Template = " " }, "CNI_NETWORK_CONFIG is not set: put the list of plugins in it, as docs/install.md shows"},
		{"unknown placeholder", func(c *Config) { c.Template = `{"name": "__ETCD_USER__"}` }, "__ETCD_USER__ is not a placeholder: use one of __KUBERNETES_NODE_NAME__, __ETCD_ENDPOINTS__, "},
		{"no endpoints", func(c *Config) { delete(c.environ, "ETCD_ENDPOINTS") }, "CNI_NETWORK_CONFIG: __ETCD_ENDPOINTS__ needs ETCD_ENDPOINTS, which is not set: set it in the environment of calico-install"},
		{"no node", func(c *Config) { c.Node = "" }, "__KUBERNETES_NODE_NAME__ needs KUBERNETES_NODE_NAME: set it to the pod's spec.nodeName"},
		{"bad MTU", func(c *Config) { c.environ["CNI_MTU"] = "fifteen" }, "CNI_NETWORK_CONFIG, with its placeholders filled in: network configuration: invalid character"},
		{"bad field", func(c *Config) { c.environ["CNI_MTU"] = "7" }, "plugins[0].mtu: want 0 or 68 to 65535 bytes, got 7"},
		{"missing plugins", func(c *Config) {
			c.Template = `{"name": "n", "plugins": [{"type": "calico"}, {"type": "portmap"}, {"type": "bandwidth"}]}`
		}, " (CNI_BIN_DIR) does not have: install the CNI project's plugins on the node (package containernetworking-plugins or kubernetes-cni), or take what isn't needed out of CNI_NETWORK_CONFIG"},
		{"no directory of plugins", func(c *Config) { c.BinDir += "/none" }, "no such file or directory: it isn't there: in a pod, mount the node's directory (hostPath) at that path, or at the same below /host; else make it"},
		{"no directory of configurations", func(c *Config) { c.ConfDir += "/none" }, "no such file or directory: it isn't there: in a pod, mount the node's directory (hostPath) at that path, or at the same below /host; else make it"},
		{"no source", func(c *Config) { c.From += "/none" }, ": run calico-install where the plugins lie beside it, as in the image"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := node(t)
			tt.change(&c)
			if err := Install(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			for _, dir := range []string{c.BinDir, c.ConfDir, c.VarDir} {
				if left, err := os.ReadDir(dir); len(left) != 0 {
					t.Errorf("written to %s: %v, %v", dir, left, err)
				}
			}
		})
	}
	for variable, want := range map[string]string{
		"CNI_BIN_DIR=bin":          `CNI_BIN_DIR: "bin": want an absolute path`,
		"CNI_EXCLUSIVE=yes":        `CNI_EXCLUSIVE: "yes": want true or false`,
		"KUBERNETES_NODE_NAME=a/b": "KUBERNETES_NODE_NAME, or NODENAME: ",
	} {
		if _, err := ParseConfig([]string{variable}, "/"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", variable, err, want)
		}
	}
}

// TestInTheWay: another program's file with the name of our plugin stays, unless Exclusive is set.
func TestInTheWay(t *testing.T) {
	c := node(t)
	path := filepath.Join(c.BinDir, "calico")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := path + " is in the way, and stays: it isn't this Calico's. Remove it from the node, or set CNI_EXCLUSIVE=true to have it renamed"
	if err := Install(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if text, err := os.ReadFile(path); string(text) != "#!/bin/sh\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	// One whose build says nothing of where it came from, as of a single file.
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", path, source)
	build.Dir = filepath.Dir(source)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := Install(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.Exclusive = true
	if err := Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path + netconf.BackupSuffix); string(text) != "#!/bin/sh\n" || err != nil {
		t.Errorf("renamed: %q, %v", text, err)
	}
}

// TestReadOnly: existing plugins on a disk that can't be written are left as they are, whoever installed them, and an immutable one is
// named as such.
func TestReadOnly(t *testing.T) {
	c := node(t)
	if err := unix.Mount("tmpfs", c.BinDir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(c.BinDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.BinDir, "calico")
	for _, mode := range []os.FileMode{0o555, 0o755} {
		for _, name := range plugins() {
			if err := os.Chmod(filepath.Join(c.BinDir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Mount("", c.BinDir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		if err := Install(t.Context(), c); err != nil {
			t.Errorf("%v: %v", mode, err)
		}
		if err := unix.Mount("", c.BinDir, "", unix.MS_REMOUNT, ""); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	c.Exclusive = true
	immutable := func(flags int) {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	immutable(unix.STATX_ATTR_IMMUTABLE) // the same bit
	const want = "is immutable (lsattr shows an i or an a: chattr -i -a)"
	if err := Install(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	immutable(0)
}

// TestDisks: whatever the node's file systems refuse, the former plugin stays whole, and nothing else is left behind.
func TestDisks(t *testing.T) {
	for _, tt := range []struct {
		name, data string
		flags      uintptr
		dir        func(Config) string
		want       string
	}{
		{"directory of plugins full", "size=1m", 0, func(c Config) string { return c.BinDir },
			"no space left on device: the disk is full: free space on the node; it is tried again"},
		{"directory of plugins read-only", "", unix.MS_RDONLY, func(c Config) string { return c.BinDir },
			"read-only file system: it is on a read-only file system: mount it without readOnly, or choose a directory that is writable on the node"},
		{"directory of plugins not to run from", "", unix.MS_NOEXEC, func(c Config) string { return c.BinDir }, "permission denied: is the file system mounted noexec? Mount it without, or choose another directory"},
		{"directory of configurations read-only", "", unix.MS_RDONLY, func(c Config) string { return c.ConfDir },
			"read-only file system: it is on a read-only file system: mount it without readOnly, or choose a directory that is writable on the node"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := node(t)
			dir := tt.dir(c)
			if err := unix.Mount("tmpfs", dir, "tmpfs", tt.flags, tt.data); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			of := map[string]string{c.BinDir: "directory of plugins (CNI_BIN_DIR): ", c.ConfDir: "directory of network configurations (CNI_CONF_DIR): "}[dir]
			err := Install(t.Context(), c)
			if err == nil || !strings.HasPrefix(err.Error(), of) || !strings.HasSuffix(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want %s… %s, of %s", err, of, tt.want, dir)
			}
			if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// TestCommand: the last line of the log says what is wrong.
func TestCommand(t *testing.T) {
	c := node(t)
	cmd := exec.Command(filepath.Join(c.From, "calico-install"))
	cmd.Env = []string{"CNI_BIN_DIR=" + c.BinDir, "CNI_CONF_DIR=" + c.ConfDir, "CALICO_VAR_DIR=" + c.VarDir, "ETCD_ENDPOINTS=http://127.0.0.1:2379",
		`CNI_NETWORK_CONFIG={"name": "n", "plugins": [{"type": "calico", "etcd_endpoints": "__ETCD_ENDPOINTS__"}]}`}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd = exec.Command(filepath.Join(c.From, "calico-install"))
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if want := "calico-install: CNI_NETWORK_CONFIG is not set: put the list of plugins in it, as docs/install.md shows"; err == nil || lines[len(lines)-1] != want {
		t.Errorf("%v, %q, want %q", err, lines, want)
	}
}
