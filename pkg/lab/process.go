// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// Process is a long-running child of the lab: an etcd member, an agent, or something that a test runs in a pod. It is
// recorded on disk, so that another process can end it, and only it: a PID counts only together with its start time and
// executable.
type Process struct {
	// Role is unique in the lab: "etcd1", "agent-a".
	Role string `json:"role"`
	PID  int    `json:"pid"`
	// Start is the start time in clock ticks since boot, from /proc/PID/stat.
	Start uint64 `json:"start"`
	Exe   string `json:"exe"`
	// Log is the file for its stdout and stderr.
	Log string `json:"log"`

	record string        // file of this record
	done   chan struct{} // closed after it has been waited for; nil if not our child
	state  *os.ProcessState
}

// spec says what to start.
type spec struct {
	role string
	ns   Namespace
	path string
	args []string
	env  []string // the complete environment
	dir  string
}

// start starts a process and records it.
func (ps *processes) start(s spec) (*Process, error) {
	p := &Process{
		Role:   s.role,
		Log:    filepath.Join(ps.dir, "log", s.role+".log"),
		record: filepath.Join(ps.dir, "proc", s.role+".json"),
		done:   make(chan struct{}),
	}
	if old, err := readProcess(p.record); err == nil && old.Alive() {
		return nil, fmt.Errorf("start %s: it runs already, PID %d", s.role, old.PID)
	}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(s.path, s.args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.env, s.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !ps.background {
		// However the lab's process ends, its children must end too.
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	err = ps.keeper.do(s.ns, cmd.Start)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.role, err)
	}
	p.PID = cmd.Process.Pid
	p.Start, _, err = procStat(p.PID) // before it is waited for: until then even an ended process has an entry
	go func() {
		cmd.Wait()
		p.state = cmd.ProcessState
		close(p.done)
	}()
	if err == nil {
		p.Exe, err = filepath.EvalSymlinks(s.path)
	}
	if err == nil {
		p.awaitProgram()
	}
	if err == nil {
		err = writeJSON(p.record, p)
	}
	if err != nil {
		cmd.Process.Kill()
		<-p.done
		return nil, fmt.Errorf("start %s: %w (its log: %s)", s.role, err, Tail(p.Log, 3))
	}
	ps.mu.Lock()
	ps.own[s.role] = p
	ps.mu.Unlock()
	return p, nil
}

// awaitProgram waits until the process runs the started program, or has ended: on Linux 6.1 a new child has been seen
// to be still a copy of this process, which doesn't match the record.
func (p *Process) awaitProgram() {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit)
	defer cancel()
	_ = eventually.Wait(ctx, "the program", eventually.Holds(func() bool {
		select {
		case <-p.done:
			return true
		default:
			return p.matches()
		}
	}))
}

// Alive reports whether the process is still running.
func (p *Process) Alive() bool {
	if p.done != nil {
		select {
		case <-p.done:
			return false
		default:
		}
	}
	return p.matches()
}

// matches reports whether PID is still the recorded process.
func (p *Process) matches() bool {
	start, zombie, err := procStat(p.PID)
	if err != nil || zombie || start != p.Start {
		return false
	}
	exe, err := os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/exe")
	return err == nil && strings.TrimSuffix(exe, " (deleted)") == p.Exe
}

// Signal sends sig. The error is os.ErrProcessDone if the process is gone.
func (p *Process) Signal(sig syscall.Signal) error {
	// The descriptor identifies one process for good. Since the process is checked after opening it, the signal can't
	// hit another one with the same number.
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return fmt.Errorf("%s, PID %d: %w", p.Role, p.PID, os.ErrProcessDone)
	}
	defer unix.Close(fd)
	if !p.matches() {
		return fmt.Errorf("%s, PID %d: %w", p.Role, p.PID, os.ErrProcessDone)
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%s, PID %d: %w", p.Role, p.PID, os.ErrProcessDone)
	} else if err != nil {
		return fmt.Errorf("signal %s, PID %d: %w", p.Role, p.PID, err)
	}
	return nil
}

// Wait waits until the process has ended.
func (p *Process) Wait(ctx context.Context) error {
	if p.done != nil {
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", p.Role, ctx.Err())
		}
	}
	return eventually.Wait(ctx, p.Role+" to end", func() error {
		if p.gone() {
			return nil
		}
		return fmt.Errorf("PID %d runs", p.PID)
	})
}

// await waits for a condition of the process, but no longer than the process lives.
func (p *Process) await(ctx context.Context, what string, condition func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return eventually.Wait(ctx, what, func() error {
		if p.Alive() {
			return condition()
		}
		cancel()
		return fmt.Errorf("%s ended (%w); its log, %s, says: %s", p.Role, os.ErrProcessDone, p.Log, Tail(p.Log, 5))
	})
}

// gone reports whether nothing of the process is left. matches returns false earlier: a dying process has no executable
// while it is still closing its files.
func (p *Process) gone() bool {
	start, zombie, err := procStat(p.PID)
	return err != nil || zombie || start != p.Start
}

// endPatience is how long a process may take to end, or to stop, on a busy machine. On an idle one, none takes a
// second.
const endPatience = 60 * time.Second

// Kill kills the process and waits for its end.
func (p *Process) Kill() error { return p.stop(syscall.SIGKILL, endPatience) }

// Stop asks the process to end, and kills it if it hasn't within grace.
func (p *Process) Stop(grace time.Duration) error {
	err := p.stop(syscall.SIGTERM, grace)
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.Join(fmt.Errorf("%s did not stop within %v of SIGTERM and was killed", p.Role, grace), p.Kill())
	}
	return err
}

func (p *Process) stop(sig syscall.Signal, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	// A paused process gets the signal when it continues.
	for _, s := range []syscall.Signal{sig, syscall.SIGCONT} {
		if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	if err := p.Wait(ctx); err != nil {
		return err
	}
	if err := os.Remove(p.record); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
