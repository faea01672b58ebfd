// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// state is what another process must know to use or remove the lab: the file Root/<name>/state.json. Processes, hosts
// and pods have separate files, so that making many concurrently needs no common lock.
type state struct {
	Name        string   `json:"name"`
	Ready       bool     `json:"ready"`      // false: being made, or its making was interrupted
	Background  bool     `json:"background"` // outlives the process that made it
	BinDir      string   `json:"bin_dir"`
	DataDir     string   `json:"data_dir"`
	EtcdMembers int      `json:"etcd_members"`
	Racks       int      `json:"racks,omitempty"`
	TLS         bool     `json:"tls,omitempty"`
	Auth        bool     `json:"auth,omitempty"`
	NoFsync     bool     `json:"no_fsync,omitempty"`
	EtcdQuota   int64    `json:"etcd_quota,omitempty"`
	NoAgent     bool     `json:"no_agent,omitempty"`
	Classic     bool     `json:"classic,omitempty"`
	Hostile     bool     `json:"hostile,omitempty"`
	AgentEnv    []string `json:"agent_env,omitempty"`
	CNIPath     []string `json:"cni_path,omitempty"`
}

// dataMark is a file in a data directory that names its lab. No other directory is ever removed.
const dataMark = ".calico-lab"

func (l *Lab) makeDataDir() error {
	dir := l.cfg.DataDir
	var err error
	if dir == "" {
		dir, err = os.MkdirTemp("", "calico-lab-"+l.name+"-")
	} else {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return err
	}
	l.state = state{
		Name: l.name, Background: l.cfg.Background, BinDir: l.cfg.BinDir, DataDir: dir,
		EtcdMembers: l.cfg.EtcdMembers, Racks: len(l.cfg.Racks), TLS: l.cfg.TLS, Auth: l.cfg.Auth, NoFsync: l.cfg.NoFsync,
		EtcdQuota: l.cfg.EtcdQuota, NoAgent: l.cfg.NoAgent, Classic: l.cfg.Classic, Hostile: l.cfg.Hostile, AgentEnv: l.cfg.AgentEnv, CNIPath: l.cfg.CNIPath,
	}
	return os.WriteFile(filepath.Join(dir, dataMark), []byte(l.name+"\n"), 0o600)
}

func (l *Lab) saveState() error { return writeJSON(filepath.Join(l.dir, "state.json"), l.state) }

func readState(name string) (state, error) {
	var s state
	err := readJSON(filepath.Join(Root, name, "state.json"), &s)
	return s, err
}

// writeJSON replaces the file atomically: a reader sees the old content or the new.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(data, '\n'))
}

func writeFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// lockFile is held by the process that owns a lab for as long as it lives. The kernel releases it when the process dies
// for any reason.
type lockFile struct {
	path string
	file *os.File
}

// errOwned is the error of takeLock if a living process holds the lock.
var errOwned = errors.New("belongs to a process that is running")

// lockPatience is how long to wait for a lock that another process's Sweep may be holding just to check.
const lockPatience = time.Second

func waitLock(name string) (*lockFile, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	var lock *lockFile
	var last error
	eventually.Wait(ctx, "the lock", func() error {
		if lock, last = takeLock(name); errors.Is(last, errOwned) {
			return last
		}
		return nil
	})
	return lock, last
}

func takeLock(name string) (*lockFile, error) {
	if err := os.MkdirAll(Root, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(Root, name+".lock")
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			// The last lab removed the directory.
			if err := os.MkdirAll(Root, 0o755); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			file.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("lab %s %w", name, errOwned)
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// The last owner may have removed the file between open and lock.
		held, err1 := file.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, there) {
			return &lockFile{path, file}, nil
		}
		file.Close()
	}
}

func (f *lockFile) release() {
	os.Remove(f.path)
	os.Remove(Root) // fails unless this was the last lab
	f.file.Close()
}
