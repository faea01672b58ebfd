// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"
)

// Runtime returns the host's side of CNI as in container runtimes: libcni, which chains the plugins of a list and
// caches their results. It runs them in the host's network namespace.
func (h *Host) Runtime() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(h.pluginPath(), filepath.Join(h.dir(), "cni"), &hostExec{host: h})
}

// hostExec runs plugins for libcni.
type hostExec struct {
	host *Host
	version.PluginDecoder
}

// ExecPlugin runs one plugin with the environment prepared by libcni.
func (e *hostExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	c := Call{Plugin: filepath.Base(path), Stdin: stdin}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "CNI_COMMAND":
			c.Verb = value
		case "CNI_CONTAINERID":
			c.ContainerID = value
		case "CNI_NETNS":
			c.Netns = value
		case "CNI_IFNAME":
			c.IfName = value
		case "CNI_ARGS":
			c.Args = value
		case "CNI_PATH":
			c.Path = filepath.SplitList(value)
		}
	}
	// libcni's own variables come last and take precedence.
	r, err := e.host.runPlugin(ctx, c, path, append(e.host.Env(), env...))
	return r.Stdout, err
}

// FindInPath finds a plugin.
func (e *hostExec) FindInPath(plugin string, paths []string) (string, error) {
	return findPlugin(plugin, paths)
}
