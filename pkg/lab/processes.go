// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// processes are the processes of a lab.
type processes struct {
	lab, dir   string // the lab's name and directory
	background bool   // the processes outlive this one
	keeper     *keeper

	mu  sync.Mutex
	own map[string]*Process // children of this process, by role
}

// find returns the running process with the role, even if another process started it; the error is os.ErrProcessDone if
// there is none.
func (ps *processes) find(role string) (*Process, error) {
	ps.mu.Lock()
	p := ps.own[role]
	ps.mu.Unlock()
	if p == nil {
		var err error
		p, err = readProcess(filepath.Join(ps.dir, "proc", role+".json"))
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", role, os.ErrProcessDone)
		}
		if err != nil {
			return nil, err
		}
	}
	if !p.Alive() {
		return nil, fmt.Errorf("%s, PID %d: %w", role, p.PID, os.ErrProcessDone)
	}
	return p, nil
}

// children returns the children of this process, by role.
func (ps *processes) children() map[string]*Process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return maps.Clone(ps.own)
}

// endIn kills the recorded processes that run in one of the namespaces.
func (ps *processes) endIn(gone []Namespace) error {
	inodes := map[uint64]bool{}
	for _, ns := range gone {
		if ino := ns.inode(); ino != 0 {
			inodes[ino] = true
		}
	}
	var errs []error
	own := ps.children()
	for _, p := range recorded(ps.lab) {
		var st unix.Stat_t
		if unix.Stat(filepath.Join("/proc", strconv.Itoa(p.PID), "ns/net"), &st) != nil || !inodes[st.Ino] || !p.matches() {
			continue
		}
		if mine := own[p.Role]; mine != nil && mine.PID == p.PID {
			p = mine
		}
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}

// recorded reads the records of a lab's processes.
func recorded(lab string) []*Process {
	files, _ := filepath.Glob(filepath.Join(Root, lab, "proc", "*.json"))
	var procs []*Process
	for _, f := range files {
		if p, err := readProcess(f); err == nil {
			procs = append(procs, p)
		}
	}
	return procs
}

// readProcess reads a record. The process itself may be gone.
func readProcess(record string) (*Process, error) {
	data, err := os.ReadFile(record)
	if err != nil {
		return nil, err
	}
	p := &Process{record: record}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("process record %s: %w", record, err)
	}
	return p, nil
}

// procStat returns the start time of a process and whether it is a zombie, which applies to the process as a whole if
// no other thread is left (proc_pid_stat(5), fields 22, 3 and 20).
func procStat(pid int) (start uint64, zombie bool, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false, err
	}
	// The second field is the name in brackets, which may contain anything.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return 0, false, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	ended := fields[0][0] == 'Z' || fields[0][0] == 'X'
	others := string(fields[17]) != "0" && string(fields[17]) != "1"
	return start, ended && !others, err
}

// Tail returns the last n lines of a file, for an error message.
func Tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
