// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// build puts the program where any user may run it.
func build(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "isolate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "isolate")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// manyUsers says whether there is another user to become: a user namespace may have just one.
func manyUsers(t *testing.T) bool {
	t.Helper()
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(uidMap))
	return len(fields) > 3 || fields[2] != "1"
}

func TestIsolate(t *testing.T) {
	bin := build(t)
	link, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]*syscall.Credential{"caller": nil}
	if os.Geteuid() == 0 && manyUsers(t) {
		users["nobody"] = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	for name, credential := range users {
		t.Run(name, func(t *testing.T) {
			script := `readlink /proc/self/ns/net; id -u; ls /run; cat /proc/net/dev | grep -c :; cat /sys/class/net/lo/ifindex >/dev/null; echo $` + markEnv + `; [ -r /proc/$$/stat ] && echo proc; exit 7`
			cmd := exec.Command(bin, "sh", "-c", script)
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
			out, err := cmd.Output()
			exit := (*exec.ExitError)(nil)
			if !errors.As(err, &exit) || exit.ExitCode() != 7 {
				t.Fatalf("exit: got %v, want status 7\n%s", err, out)
			}
			ns, rest, _ := strings.Cut(string(out), "\n")
			if ns == link || ns == "" {
				t.Errorf("network namespace %q, the caller's is %q: want another", ns, link)
			}
			if want := "0\nlock\n1\n1\nproc\n"; rest != want {
				t.Errorf("inside: got %q, want %q", rest, want)
			}
		})
	}
}

// TestLoopback runs this very test inside, where the machine's loopback isn't the one it finds.
func TestLoopback(t *testing.T) {
	const inner = "CALICO_ISOLATE_TEST_INNER"
	if os.Getenv(inner) != "" {
		for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			l.Close()
		}
		return
	}
	cmd := exec.Command(build(t), os.Args[0], "-test.run", "^TestLoopback$")
	cmd.Env = append(os.Environ(), inner+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("inside: %v\n%s", err, out)
	}
}

func TestUsage(t *testing.T) {
	bin := build(t)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":    {nil, usage},
		"no command": {[]string{"no-such-command"}, "no-such-command"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(bin, c.args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("got %v, %q: want an error that has %q", err, out, c.want)
			}
		})
	}
}
