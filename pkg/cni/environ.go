// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"strings"

	"github.com/calico-go/calico/netconf"
	"github.com/containernetworking/cni/pkg/utils"
)

// Where the agent keeps its things, unless the environment says otherwise:
// CALICO_RUN_DIR and CALICO_VAR_DIR, so that several virtual hosts fit on one
// machine.
const (
	defaultRunDir = "/run/calico"
	defaultVarDir = "/var/lib/calico"
)

// environ is what the runtime passes in environment variables.
type environ struct {
	command     string
	containerID string
	netns       string
	ifName      string
	path        string
	rawArgs     string
	args        netconf.Args
	argsErr     error  // of a DEL: what of the arguments makes no sense
	runDir      string // has the agent's socket and our locks
	varDir      string // has the nodename and mtu files
	delegated   string // the ipam.type of the call of calico that led to this one
}

// delegatedVar tells a plugin that calico asks for addresses so, and all that are
// asked by it.
const delegatedVar = "CALICO_DELEGATED"

// verbs names the variables that each command needs.
var verbs = map[string][]string{
	"ADD":     {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"},
	"DEL":     {"CNI_CONTAINERID", "CNI_IFNAME"},
	"CHECK":   {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"},
	"GC":      nil,
	"STATUS":  nil,
	"VERSION": nil,
}

func parseEnviron(getenv func(string) string) (environ, error) {
	e := environ{
		command:     getenv("CNI_COMMAND"),
		containerID: getenv("CNI_CONTAINERID"),
		netns:       getenv("CNI_NETNS"),
		ifName:      getenv("CNI_IFNAME"),
		path:        getenv("CNI_PATH"),
		rawArgs:     getenv("CNI_ARGS"),
		runDir:      defaultRunDir,
		varDir:      defaultVarDir,
		delegated:   getenv(delegatedVar),
	}
	if dir := getenv("CALICO_RUN_DIR"); dir != "" {
		e.runDir = dir
	}
	if dir := getenv("CALICO_VAR_DIR"); dir != "" {
		e.varDir = dir
	}
	needed, ok := verbs[e.command]
	switch {
	case e.command == "":
		return e, failf(CodeEnvironment, "this is a CNI plugin: a container runtime runs it; by hand, see docs/debugging.md and --help",
			"CNI_COMMAND is not set")
	case !ok:
		return e, failf(CodeEnvironment, "set it to ADD, DEL, CHECK, GC, STATUS or VERSION", "unknown CNI_COMMAND %q", e.command)
	}
	var missing []string
	for _, name := range needed {
		if getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return e, failf(CodeEnvironment, "the container runtime must set them", "CNI_COMMAND %s needs %s", e.command, strings.Join(missing, ", "))
	}
	if len(needed) == 0 {
		return e, nil
	}
	if err := utils.ValidateContainerID(e.containerID); err != nil {
		return e, failf(CodeEnvironment, "letters, digits, '_', '.' and '-' are allowed", "CNI_CONTAINERID %q: invalid characters", e.containerID)
	}
	if err := utils.ValidateInterfaceName(e.ifName); err != nil {
		return e, failf(CodeEnvironment, "give an interface name of at most 15 characters, without /, : and white space", "CNI_IFNAME %q: %s", e.ifName, err.Msg)
	}
	if e.command != "DEL" && (strings.Contains(e.ifName, "%") || e.ifName == "all" || e.ifName == "default") {
		return e, failf(CodeEnvironment, "give another name, without %", "CNI_IFNAME %q: the kernel has no interface of that name", e.ifName)
	}
	e.args, e.argsErr = netconf.ParseArgs(e.rawArgs)
	// A pod that no ADD was done for because of its arguments, or of such a name, must be deletable.
	if e.argsErr != nil && e.command != "DEL" {
		return e, fail(CodeEnvironment, e.argsErr, "the container runtime must set it")
	}
	return e, nil
}
