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
)

// process returns the running process of that role, whoever started it;
// os.ErrProcessDone where none runs.
func (l *Lab) process(role string) (*Process, error) {
	l.mu.Lock()
	p := l.procs[role]
	l.mu.Unlock()
	if p == nil {
		var err error
		p, err = readProcess(filepath.Join(l.dir, "proc", role+".json"))
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

// ownProcesses are the children of this process, by role.
func (l *Lab) ownProcesses() map[string]*Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.procs)
}

// readProcess reads a record; the process may be gone.
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

// procStat returns the start time of a process and whether it is a zombie, which
// is so for all of it when no other thread is left (proc_pid_stat(5), fields 22,
// 3 and 20).
func procStat(pid int) (start uint64, zombie bool, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false, err
	}
	// The second field is the name in brackets, which may hold anything.
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
