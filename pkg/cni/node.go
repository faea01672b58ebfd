// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/attach"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/gate"
)

// nodeName is this node's name, and how errors describe its source.
type nodeName struct {
	name, from, hint string
	guessed          bool // because the file with the name can't be used
}

const correctName = "correct it in the network configuration: one name, as the agent's"

// findNodeName finds this node's name. A missing file is an error if it is configured and not marked optional, or if it
// is the default file and marked as required: the agent will write it, and a name guessed meanwhile would stay in etcd.
// Only DEL goes on without it, since what the ADD left behind names the node.
func findNodeName(n netconf.Nodename, isDEL bool, log *slog.Logger) (nodeName, error) {
	if n.Name != "" {
		return nodeName{name: n.Name, from: "nodename", hint: correctName}, nil
	}
	data, err := os.ReadFile(n.File)
	name := strings.TrimSpace(string(data))
	switch {
	case err == nil && name != "":
		return nodeName{name: name, from: "nodename_file " + n.File, hint: "have calico-node write it, or write this node's name there and nothing else"}, nil
	case err == nil:
		err = fmt.Errorf("%s is empty", n.File)
	}
	if n.Hostname != "" {
		return nodeName{name: n.Hostname, from: "hostname", hint: correctName}, nil
	}
	required := n.FileRequired || n.FileSet && !n.FileOptional
	if required && !isDEL {
		return nodeName{}, protocol.Failf(protocol.CodeTryAgain, "start calico-node, which writes it, or set nodename in the network configuration", "this node's name: %w", err)
	}
	if required || !errors.Is(err, os.ErrNotExist) {
		log.Warn("nodename file can't be used; going on by the system's host name", "error", err)
	}
	const hint = "set nodename in the network configuration"
	name, err = os.Hostname()
	if err != nil || name == "" {
		return nodeName{}, protocol.Failf(protocol.CodeConfig, hint, "this node's name: the operating system has none: %w", err)
	}
	return nodeName{name: strings.ToLower(name), from: "the operating system's host name", hint: hint, guessed: required}, nil
}

// checkName refuses to remove this node's data from etcd if the agent says that the name is, or may be, another host's,
// as after copying a disk. An agent that isn't running doesn't prevent anything.
func (c *call) checkName(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	says := gate.Ping(ctx, c.conf.Agent.Socket, c.node.name)
	rejected, refused := errors.AsType[*gate.RejectedError](says)
	switch {
	case refused && !rejected.Retry:
		return protocol.Failf(protocol.CodeRejected, correctNodename, "node %s isn't this one: %w", c.node.name, says)
	case refused && rejected.Name == gate.NameInDoubt:
		return protocol.Failf(protocol.CodeTryAgain, "see calico-node's log and /debug/invalid on this host; then try again", "whether node %s is this one isn't known: %w", c.node.name, says)
	}
	return nil
}

// correctNodename is the hint if the agent runs under another node's name.
const correctNodename = "correct nodename in the network configuration, or the agent's"

const defaultMTU = 1500

// mtuFile is the file in which the agent stores the MTU.
func (c *call) mtuFile() string { return filepath.Join(c.env.VarDir, "mtu") }

// checkMTU returns an error until the agent, if there is one, has determined the MTU: too large an MTU loses packets.
func (c *call) checkMTU() error {
	if c.conf.MTU != 0 || c.conf.Agent.Timeout == 0 || attach.AgentNeverRan(c.conf) {
		return nil
	}
	if _, err := os.Stat(c.mtuFile()); errors.Is(err, os.ErrNotExist) {
		return protocol.Failf(protocol.CodeTryAgain, "see calico-node's log, or set mtu in the network configuration", "calico-node has not found out the MTU of pods yet: %w", err)
	}
	return nil
}

// mtu returns the MTU for the pod's interface.
func (c *call) mtu() int {
	if c.conf.MTU != 0 {
		return c.conf.MTU
	}
	file := c.mtuFile()
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return defaultMTU
	}
	mtu, parseErr := strconv.Atoi(strings.TrimSpace(string(data)))
	if err == nil {
		err = parseErr
	}
	if err != nil || mtu < 68 || mtu > 65535 {
		c.log.Warn("mtu file can't be used", "file", file, "content", string(data), "error", err, "mtu", defaultMTU)
		return defaultMTU
	}
	return mtu
}
