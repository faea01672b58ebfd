// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/test/long"
)

func touch(ctx context.Context, l *Lab) error {
	_, err := l.Etcd().Commit(ctx, model.Change{Puts: []model.Put{{Key: model.ReadyKey{}, Value: model.Ready(true)}}})
	return err
}

func TestEtcdLeaderKilled(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{EtcdMembers: 3, NoAgent: true})
	first, err := l.Members().Leader(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Members().Kill(first); err != nil {
		t.Fatal(err)
	}
	ctx := soon(t)
	if err := eventually.Wait(ctx, "a write without the old leader", func() error {
		// One attempt must not wait for the member that is gone until ctx ends.
		attempt, cancel := context.WithTimeout(ctx, eventually.Limit/2)
		defer cancel()
		return touch(attempt, l)
	}); err != nil {
		t.Fatal(err)
	}
	second, err := l.Members().Leader(soon(t))
	if err != nil || second == first {
		t.Fatalf("leader: got member %d, %v; member %d was killed", second, err, first)
	}
	if p, err := l.Members().Process(first); p != nil || err != nil {
		t.Errorf("the killed member: %v, %v", p, err)
	}
	if err := l.Members().Start(ctx, first); err != nil {
		t.Fatal(err)
	}
	// A busy cluster may be without a leader for a moment.
	if err := eventually.Wait(soon(t), "the member started again to know a leader", func() error {
		s, err := l.Members().Status(ctx, first)
		if err == nil && s.Leader == 0 {
			err = fmt.Errorf("%+v", s)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

func TestEtcdPaused(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{NoAgent: true})
	p, err := l.Members().Process(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Members().Pause(1); err != nil {
		t.Fatal(err)
	}
	if err := p.standsStill(); err != nil {
		t.Errorf("paused: %v", err)
	}
	if err := l.Members().Resume(1); err != nil {
		t.Fatal(err)
	}
	if err := touch(soon(t), l); err != nil {
		t.Error(err)
	}

	// The moment that it returns, no thread runs; not only most of the time.
	for range 50 {
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := p.standsStill(); err != nil {
			t.Errorf("paused: %v", err)
		}
		if err := p.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Members().Kill(1); err != nil {
		t.Fatal(err)
	}
	if err := p.Pause(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("pause what has ended: got %v, want %v", err, os.ErrProcessDone)
	}
}

func TestEtcdTLSAndAuth(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{EtcdMembers: 3, TLS: true, Auth: true, NoAgent: true})
	if err := touch(soon(t), l); err != nil {
		t.Fatal(err)
	}
	good := l.StoreConfig()
	for name, change := range map[string]func(*store.Config){
		"no certificate": func(c *store.Config) { c.CertFile, c.KeyFile = "", "" },
		"a stranger's certificate": func(c *store.Config) {
			c.CertFile, c.KeyFile = l.Members().PKI("other-client.crt"), l.Members().PKI("other-client.key")
		},
		"another authority":         func(c *store.Config) { c.CAFile = l.Members().PKI("other-ca.crt") },
		"the key for the password":  func(c *store.Config) { c.PasswordFile = l.Members().PKI("client.key") },
		"a user that doesn't exist": func(c *store.Config) { c.Username = "nobody" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			change(&cfg)
			c, err := store.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Read(soon(t), model.KeyRange(model.ReadyKey{})); !errors.Is(err, store.ErrAuth) {
				t.Errorf("got %v, want %v", err, store.ErrAuth)
			}
		})
	}
	t.Run("etcdctl", func(t *testing.T) { etcdctl(t, l) })
	// Authentication stays on when the member that switched it on comes back.
	if err := l.Members().Kill(1); err != nil {
		t.Fatal(err)
	}
	if err := l.Members().Start(soon(t), 1); err != nil {
		t.Fatal(err)
	}
	if err := touch(soon(t), l); err != nil {
		t.Error(err)
	}
}

// etcdctl runs the installed one as people are told to. That of 3.4 checks certificates for another name than later ones.
func etcdctl(t *testing.T, l *Lab) {
	if _, err := exec.LookPath("etcdctl"); err != nil {
		if os.Getenv("CI") != "" {
			t.Error("install etcd-client")
		}
		t.Log("no etcdctl here (Debian: etcd-client)")
		return
	}
	for _, socket := range l.Members().Sockets() {
		// By itself it gives up after two and five seconds: where tests take all processors, comparing its password takes that long.
		export := "export " + strings.Join(append(l.Members().EtcdctlEnv(), "ETCDCTL_ENDPOINTS="+socket, "ETCDCTL_DIAL_TIMEOUT=1m", "ETCDCTL_COMMAND_TIMEOUT=1m"), " ")
		out, err := exec.CommandContext(soon(t), "sh", "-c", export+"; etcdctl get --print-value-only "+model.ReadyKey{}.Path()).CombinedOutput()
		if err != nil || string(out) != "true\n" {
			t.Errorf("etcdctl get by %s: %v\n%s", socket, err, out)
		}
	}
}

// crashEnv makes this test binary a process that starts a lab and waits to be
// killed: its value is the kind of crash, and the directory of the binaries.
const crashEnv = "CALICO_LAB_TEST_CRASH"

func TestCrash(t *testing.T) {
	if kind, dir, ok := strings.Cut(os.Getenv(crashEnv), ":"); ok {
		crashing(kind, dir)
		return
	}
	for _, kind := range []string{
		"foreground", // its processes die with it
		"background", // while it is made: its processes live on, and are on record
	} {
		t.Run(kind, func(t *testing.T) {
			name := "crash-" + kind
			crash(t, kind)
			if len(traces(t, name)) == 0 {
				t.Error("the crash has left nothing: this test tests nothing")
			}
			s, err := readState(name)
			if err != nil {
				t.Fatal(err)
			}
			swept, err := Sweep()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(swept, name) {
				t.Errorf("swept %v, want %s among them", swept, name)
			}
			if found := traces(t, name); len(found) > 0 {
				t.Errorf("left behind:\n%s", strings.Join(found, "\n"))
			}
			if _, err := os.Stat(s.DataDir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("etcd's data, %s: %v", s.DataDir, err)
			}
		})
	}
}

// crash runs crashing in another process and kills it when its lab is there.
func crash(t *testing.T, kind string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^TestCrash$")
	cmd.Env = append(os.Environ(), crashEnv+"="+kind+":"+Build(t, BuildOptions{}))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if cmd.Wait() == nil {
		t.Fatal("it ended well")
	}
	if line != "up\n" {
		t.Fatalf("the process that is to crash says %q, %v", line, err)
	}
}

func crashing(kind, binDir string) {
	cfg := Config{Name: "crash-" + kind, Hosts: []string{"a"}, NoAgent: true, BinDir: binDir}
	if kind != "foreground" {
		cfg.Background = true
		// The line is written when etcd runs and the lab is not ready.
		cfg.Log = writerFunc(func(p []byte) (int, error) {
			if strings.HasPrefix(string(p), "host a") {
				os.Stdout.WriteString("up\n")
				select {}
			}
			return len(p), nil
		})
	}
	l, err := Start(context.Background(), cfg)
	if err == nil {
		_, err = l.Host("a").Start("sleeper", "sleep", "1000")
	}
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		return
	}
	os.Stdout.WriteString("up\n")
	select {}
}

// TestProcessIdentity shows that a record whose PID now belongs to something else does no harm.
func TestProcessIdentity(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	start, _, err := procStat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*Process{
		"another start": {PID: cmd.Process.Pid, Start: start + 1, Exe: path},
		"another file":  {PID: cmd.Process.Pid, Start: start, Exe: exe},
		"no process":    {PID: 1 << 22, Start: start, Exe: path},
	} {
		if err := p.Signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: got %v, want %v", name, err, os.ErrProcessDone)
		}
	}
	if _, zombie, err := procStat(cmd.Process.Pid); zombie || err != nil {
		t.Errorf("it was killed: %v", err)
	}
}
