// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package controllers_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/ports"
)

// program is calico-controllers as a process.
type program struct {
	testing.TB
	cmd     *exec.Cmd
	began   time.Time
	health  string
	stopped bool
}

func startProgram(tb testing.TB, w *world, kubeconfig string) *program {
	tb.Helper()
	if w.program == "" {
		w.program = filepath.Join(tb.TempDir(), "calico-controllers")
		if out, err := exec.Command("go", "build", "-o", w.program, "github.com/calico-go/calico/cmd/calico-controllers").CombinedOutput(); err != nil {
			tb.Fatalf("build: %v\n%s", err, out)
		}
	}
	p := &program{TB: tb, health: ports.Free(tb, 1)[0]}
	p.cmd = exec.Command(w.program, "-etcd-endpoints", w.Addr(), "-kubeconfig", kubeconfig, "-health", p.health, "-metrics", "0")
	if testing.Verbose() {
		p.cmd.Stderr = os.Stderr
	}
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.stop)
	return p
}

// await waits until the program is ready and done returns true. It returns the time since the program's start.
func (p *program) await(done func() bool) time.Duration {
	p.Helper()
	eventually.True(p, "the program is ready", func() bool {
		reply, err := http.Get("http://" + p.health + "/readyz")
		if err != nil {
			return false
		}
		_ = reply.Body.Close()
		return reply.StatusCode == http.StatusOK && done()
	})
	return time.Since(p.began)
}

func (p *program) stop() {
	if !p.stopped {
		p.stopped = true
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Wait()
	}
}

// memory returns a field of the process's status, in KiB.
func (p *program) memory(field string) int {
	p.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	p.Fatalf("no %s", field)
	return 0
}

// cpu returns the CPU time of the process, in milliseconds.
func (p *program) cpu() int {
	p.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return (user + system) * 10
}

// kill kills it.
func (p *program) kill() {
	p.stopped = true
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
