// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// Call is one run of a plugin, as by a container runtime.
type Call struct {
	Plugin      string // file name in Path; "" = calico
	Verb        string // CNI_COMMAND
	ContainerID string
	Netns       string // path; may be empty for DEL
	IfName      string // CNI_IFNAME
	Args        string // CNI_ARGS
	Path        []string
	Stdin       []byte
	Env         []string // added to the environment
}

// Reply is a plugin's answer.
type Reply struct {
	Stdout, Stderr []byte
	Took           time.Duration
	// State has the exit code and the CPU time and memory used.
	State *os.ProcessState
}

// CNI runs a plugin on the host. If the plugin reports a failure, the error is a *types.Error with the code and text
// that it wrote.
func (h *Host) CNI(ctx context.Context, c Call) (Reply, error) {
	if c.Plugin == "" {
		c.Plugin = "calico"
	}
	if c.Path == nil {
		c.Path = h.pluginPath()
	}
	path, err := findPlugin(c.Plugin, c.Path)
	if err != nil {
		return Reply{}, err
	}
	env := append(os.Environ(), h.Env()...)
	env = append(env,
		"CNI_COMMAND="+c.Verb, "CNI_CONTAINERID="+c.ContainerID, "CNI_NETNS="+c.Netns,
		"CNI_IFNAME="+c.IfName, "CNI_ARGS="+c.Args, "CNI_PATH="+strings.Join(c.Path, ":"))
	return h.runPlugin(ctx, c, path, append(env, c.Env...))
}

func (h *Host) pluginPath() []string {
	return append([]string{h.lab.state.BinDir}, h.lab.cfg.CNIPath...)
}

func findPlugin(name string, dirs []string) (string, error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("plugin %s is in none of %s: %w", name, strings.Join(dirs, ", "), os.ErrNotExist)
}

func (h *Host) runPlugin(ctx context.Context, c Call, path string, env []string) (Reply, error) {
	cmd := exec.CommandContext(ctx, path)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, bytes.NewReader(c.Stdin), &stdout, &stderr
	start := time.Now()
	err := h.ns.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	r := Reply{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Took: time.Since(start), State: cmd.ProcessState}
	if h.lab.cfg.Trace != nil {
		h.lab.cfg.Trace(c, r)
	}
	return r, pluginError(c, r, err)
}

// pluginError converts a plugin's failure to the error that it wrote.
func pluginError(c Call, r Reply, err error) error {
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) {
		return err
	}
	var said types.Error
	if json.Unmarshal(r.Stdout, &said) == nil && said.Code != 0 {
		return &said
	}
	return fmt.Errorf("%s %s: %w; stdout: %q; stderr: %q", c.Plugin, c.Verb, err, r.Stdout, r.Stderr)
}
