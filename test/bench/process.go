// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf is the user and system time that a process has used, of all its threads.
func cpuOf(pid int) (time.Duration, error) {
	// Each process has such a clock: clock_getcpuclockid(3), and
	// MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED in linux/posix-timers.h. It
	// counts nanoseconds, /proc/PID/stat hundredths of a second.
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// wakeups is how often the threads of a process have gone to sleep.
func wakeups(pid int) (int64, error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var all int64
	for _, t := range threads {
		n, err := statusField(fmt.Sprintf("/proc/%d/task/%s/status", pid, t.Name()), "voluntary_ctxt_switches")
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

// peakMemory is the largest resident set of a process so far, in bytes.
func peakMemory(pid int) (int64, error) {
	kib, err := statusField(fmt.Sprintf("/proc/%d/status", pid), "VmHWM")
	return kib << 10, err
}

// statusField reads a number from a status file of proc(5).
func statusField(path, name string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", path, name)
}

// machine is what all processors together have done.
type machine struct {
	busy, ours time.Duration
	at         time.Time
}

// lookAtMachine reads it: all, and this process with the children it has waited for.
func lookAtMachine() (machine, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machine{}, err
	}
	m := machine{at: time.Now()}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	for i, f := range strings.Fields(string(line))[1:] {
		if i == 3 || i == 4 || i > 7 { // idle, iowait; guests are in user
			continue
		}
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return machine{}, fmt.Errorf("/proc/stat: %w", err)
		}
		m.busy += time.Duration(ticks) * (time.Second / 100) // USER_HZ
	}
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var usage unix.Rusage
		if err := unix.Getrusage(who, &usage); err != nil {
			return machine{}, os.NewSyscallError("getrusage", err)
		}
		m.ours += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return m, nil
}

// others is how many processors the rest of the machine kept busy between two
// looks.
func (m machine) others(later machine) float64 {
	return max(0, float64((later.busy-m.busy)-(later.ours-m.ours))/float64(later.at.Sub(m.at)))
}
