// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"io"

	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// Plugin is one of the two plugins.
type Plugin string

const (
	// Calico is a main plugin: it makes interfaces.
	Calico Plugin = "calico"
	// CalicoIPAM is an IPAM plugin: it assigns addresses for a main plugin.
	CalicoIPAM Plugin = "calico-ipam"
)

// Answer handles a command-line argument, which only a person gives: a container runtime passes CNI_COMMAND instead.
func (p Plugin) Answer(arg, command, build string, stdout io.Writer) (code int, answered bool) {
	switch arg {
	case "-v", "-version", "--version":
		_, _ = fmt.Fprintln(stdout, p, build)
		return 0, true
	case "-h", "-help", "--help", "help":
		_, _ = fmt.Fprintf(stdout, usage, p, p.purpose())
		return 0, true
	}
	if command != "" {
		return 0, false
	}
	err := Failf(CodeEnvironment, fmt.Sprintf("%s takes none but --help and --version", p), "unknown argument %q", arg)
	_ = err.Print(stdout, types100.ImplementedSpecVersion)
	return 1, true
}

func (p Plugin) purpose() string {
	if p == CalicoIPAM {
		return "is a CNI IPAM plugin: it gives addresses from etcd to other plugins"
	}
	return "is a CNI plugin: it wires a container to this host"
}

const usage = `%[1]s %[2]s.
A container runtime runs it. By hand, as root:

    CNI_COMMAND=ADD CNI_CONTAINERID=web CNI_NETNS=/run/netns/web CNI_IFNAME=eth0 \
    CNI_PATH=/opt/cni/bin %[1]s <network-configuration.json

CNI_COMMAND      ADD, DEL, CHECK, GC, STATUS or VERSION
CNI_CONTAINERID  the container; with ADD, DEL and CHECK, as all below
CNI_NETNS        the path of its network namespace; a DEL does without
CNI_IFNAME       its interface
CNI_ARGS         more of it, such as IP=10.1.0.9;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web
CNI_PATH         the directories of other plugins

On stdin is the network configuration of one plugin, not a list of them:
docs/network-configuration.md. The result, or CNI's error object, is on stdout;
what was done is on stderr. docs/debugging.md has a session with every verb.

--version        prints the version
--help           prints this
`
