// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"strings"

	"github.com/calico-go/calico/netconf"
	"github.com/containernetworking/cni/pkg/utils"
)

// Default directories of the agent. CALICO_RUN_DIR and CALICO_VAR_DIR override them, so that several virtual hosts fit
// on one machine.
const (
	defaultRunDir = "/run/calico"
	defaultVarDir = "/var/lib/calico"
)

// Environ is what the runtime passes in environment variables.
type Environ struct {
	Command     string
	ContainerID string
	Netns       string
	IfName      string
	Path        string
	RawArgs     string
	Args        netconf.Args
	ArgsErr     error  // set for a DEL only: which arguments are invalid
	RunDir      string // has the agent's socket and our locks
	VarDir      string // has the nodename and mtu files
}

// verbs lists the variables that each command requires.
var verbs = map[string][]string{
	"ADD":     {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"},
	"DEL":     {"CNI_CONTAINERID", "CNI_IFNAME"},
	"CHECK":   {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"},
	"GC":      nil,
	"STATUS":  nil,
	"VERSION": nil,
}

// ParseEnviron reads the environment, and rejects values that no call can work with.
func ParseEnviron(getenv func(string) string) (Environ, error) {
	e := Environ{
		Command:     getenv("CNI_COMMAND"),
		ContainerID: getenv("CNI_CONTAINERID"),
		Netns:       getenv("CNI_NETNS"),
		IfName:      getenv("CNI_IFNAME"),
		Path:        getenv("CNI_PATH"),
		RawArgs:     getenv("CNI_ARGS"),
		RunDir:      defaultRunDir,
		VarDir:      defaultVarDir,
	}
	if dir := getenv("CALICO_RUN_DIR"); dir != "" {
		e.RunDir = dir
	}
	if dir := getenv("CALICO_VAR_DIR"); dir != "" {
		e.VarDir = dir
	}
	needed, ok := verbs[e.Command]
	switch {
	case e.Command == "":
		return e, Failf(CodeEnvironment, "this is a CNI plugin: a container runtime runs it; by hand, see docs/debugging.md and --help",
			"CNI_COMMAND is not set")
	case !ok:
		return e, Failf(CodeEnvironment, "set it to ADD, DEL, CHECK, GC, STATUS or VERSION", "unknown CNI_COMMAND %q", e.Command)
	}
	var missing []string
	for _, name := range needed {
		if getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return e, Failf(CodeEnvironment, "the container runtime must set them", "CNI_COMMAND %s needs %s", e.Command, strings.Join(missing, ", "))
	}
	if len(needed) == 0 {
		return e, nil
	}
	if err := utils.ValidateContainerID(e.ContainerID); err != nil {
		return e, Failf(CodeEnvironment, "letters, digits, '_', '.' and '-' are allowed", "CNI_CONTAINERID %q: invalid characters", e.ContainerID)
	}
	if err := utils.ValidateInterfaceName(e.IfName); err != nil {
		return e, Failf(CodeEnvironment, "give an interface name of at most 15 characters, without /, : and white space", "CNI_IFNAME %q: %s", e.IfName, err.Msg)
	}
	if e.Command != "DEL" && (strings.Contains(e.IfName, "%") || e.IfName == "all" || e.IfName == "default") {
		return e, Failf(CodeEnvironment, "give another name, without %", "CNI_IFNAME %q: the kernel has no interface of that name", e.IfName)
	}
	e.Args, e.ArgsErr = netconf.ParseArgs(e.RawArgs)
	// It must be possible to delete a pod whose ADD failed because of its arguments or its name.
	if e.ArgsErr != nil && e.Command != "DEL" {
		return e, Fail(CodeEnvironment, e.ArgsErr, "the container runtime must set it")
	}
	return e, nil
}

// OfOneContainer reports whether the command is about a single container.
func (e Environ) OfOneContainer() bool { return len(verbs[e.Command]) > 0 }
