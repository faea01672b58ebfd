// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Names lists the labs on this machine, including those left by a crash.
func Names() ([]string, error) {
	entries, err := os.ReadDir(Root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && nameForm.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Sweep removes the labs whose owner died without closing them, and returns their names. A background lab is removed
// only if its making was interrupted or none of its processes is alive any more.
func Sweep() ([]string, error) {
	names, err := Names()
	if err != nil {
		return nil, err
	}
	var swept []string
	var errs []error
	for _, name := range names {
		lock, err := takeLock(name)
		if errors.Is(err, errOwned) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if s, err := readState(name); err != nil || !s.Background || !s.Ready || !anyAlive(recorded(name)) {
			errs = append(errs, remove(name, nil))
			swept = append(swept, name)
		}
		lock.release()
	}
	return swept, errors.Join(errs...)
}

// Remove ends and removes the lab with the name, whichever process made it. It returns an error for a lab that belongs
// to a running process (a test).
func Remove(name string) error {
	if err := errors.Join(checkName("lab", name), needRoot()); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(Root, name)); err != nil {
		return fmt.Errorf("lab %s is not up: %w", name, err)
	}
	lock, err := waitLock(name)
	if err != nil {
		return err
	}
	defer lock.release()
	return remove(name, nil)
}

// remove ends and removes everything recorded for a lab. own has the records of this process's children. It continues
// after errors.
func remove(name string, own map[string]*Process) error {
	dir := filepath.Join(Root, name)
	s, err := readState(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove lab %s: %w (remove %s by hand when nothing of it runs)", name, err, dir)
	}
	var errs []error
	procs := recorded(name)
	for i, p := range procs {
		if mine := own[p.Role]; mine != nil && mine.PID == p.PID {
			procs[i] = mine
		}
	}
	errs = append(errs, endAll(procs))

	mounts, _ := os.ReadDir(filepath.Join(dir, "ns"))
	errs = append(errs, endInside(filepath.Join(dir, "ns"), mounts))
	for _, m := range mounts {
		errs = append(errs, Namespace{filepath.Join(dir, "ns", m.Name())}.Remove())
	}
	if s.DataDir != "" {
		errs = append(errs, removeDataDir(s.DataDir, name))
	}
	if err := errors.Join(errs...); err != nil {
		// The record stays for the next try.
		return fmt.Errorf("remove lab %s: %w", name, err)
	}
	return os.RemoveAll(dir)
}

// endInside kills what still runs in namespaces mounted in a directory: what calico-lab exec started there.
func endInside(dir string, mounts []os.DirEntry) error {
	type file struct{ dev, inode uint64 }
	inside := map[file]bool{}
	var st unix.Stat_t
	for _, m := range mounts {
		if unix.Stat(filepath.Join(dir, m.Name()), &st) == nil {
			inside[file{st.Dev, st.Ino}] = true
		}
	}
	processes, err := os.ReadDir("/proc")
	for _, p := range processes {
		pid, other := strconv.Atoi(p.Name())
		if other == nil && pid != os.Getpid() && unix.Stat(filepath.Join("/proc", p.Name(), "ns/net"), &st) == nil && inside[file{st.Dev, st.Ino}] {
			if e := unix.Kill(pid, unix.SIGKILL); e != nil && !errors.Is(e, unix.ESRCH) {
				err = errors.Join(err, fmt.Errorf("end process %d, which is in the lab: %w", pid, e))
			}
		}
	}
	return err
}

func removeDataDir(dir, name string) error {
	mark, err := os.ReadFile(filepath.Join(dir, dataMark))
	if errors.Is(err, os.ErrNotExist) {
		return nil // not made yet, or gone already
	}
	if err != nil || strings.TrimSpace(string(mark)) != name {
		return errors.Join(err, fmt.Errorf("data directory %s is not marked as that of lab %s: left alone", dir, name))
	}
	return os.RemoveAll(dir)
}

// endAll stops all agents, then everything else, concurrently within each step: an agent may still need to tell etcd
// that it ends.
func endAll(procs []*Process) error {
	var errs []error
	for _, agents := range []bool{true, false} {
		results := make(chan error)
		n := 0
		for _, p := range procs {
			if strings.HasPrefix(p.Role, agentRole) != agents {
				continue
			}
			n++
			go func() {
				if agents {
					results <- p.Stop(endPatience)
				} else {
					results <- p.Kill()
				}
			}()
		}
		for range n {
			errs = append(errs, <-results)
		}
	}
	return errors.Join(errs...)
}

func anyAlive(procs []*Process) bool {
	return slices.ContainsFunc(procs, (*Process).Alive)
}
