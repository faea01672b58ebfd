// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/calico-go/calico/netconf"
)

// nameSource is where a name is from: what an error calls that, and what to do there.
type nameSource struct{ what, hint string }

const correctName = "correct it in the network configuration: one name, as the agent's"

// nodename finds this node's name, and where it is from. A file that is configured and not there yet
// is an error, unless it is optional, and so is the default one where the configuration
// says that it isn't: the agent will write it, and a name that is guessed meanwhile would
// stay in etcd.
func nodename(n netconf.Nodename, log *slog.Logger) (name string, from nameSource, err error) {
	if n.Name != "" {
		return n.Name, nameSource{"nodename", correctName}, nil
	}
	data, err := os.ReadFile(n.File)
	name = strings.TrimSpace(string(data))
	switch {
	case err == nil && name != "":
		return name, nameSource{"nodename_file " + n.File, "have calico-node write it, or write this node's name there and nothing else"}, nil
	case err == nil:
		err = fmt.Errorf("%s is empty", n.File)
	}
	if n.Hostname != "" {
		return n.Hostname, nameSource{"hostname", correctName}, nil
	}
	if n.FileRequired || n.FileSet && !n.FileOptional {
		return "", from, failf(CodeTryAgain, "start calico-node, which writes it, or set nodename in the network configuration", "this node's name: %w", err)
	}
	if !errors.Is(err, os.ErrNotExist) {
		log.Warn("nodename file can't be used", "error", err)
	}
	name, err = os.Hostname()
	if err != nil || name == "" {
		return "", from, failf(CodeConfig, "set nodename in the network configuration", "this node's name: the operating system has none: %w", err)
	}
	return strings.ToLower(name), nameSource{"the operating system's host name", "set nodename in the network configuration"}, nil
}

const defaultMTU = 1500

// mtu of the pod's interface.
func (s *session) mtu() int {
	if s.conf.MTU != 0 {
		return s.conf.MTU
	}
	file := filepath.Join(s.env.varDir, "mtu")
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return defaultMTU
	}
	mtu, parseErr := strconv.Atoi(strings.TrimSpace(string(data)))
	if err == nil {
		err = parseErr
	}
	if err != nil || mtu < 68 || mtu > 65535 {
		s.log.Warn("mtu file can't be used", "file", file, "content", string(data), "error", err, "mtu", defaultMTU)
		return defaultMTU
	}
	return mtu
}
