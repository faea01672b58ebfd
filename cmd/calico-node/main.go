// SPDX-License-Identifier: Apache-2.0

// Command calico-node is the agent of a host: see package agent.
package main

import (
	"os"

	"github.com/calico-go/calico/pkg/agent"
)

// version is set by the linker: see the Makefile.
var version = "0.1.0"

func main() {
	hostname, _ := os.Hostname() // needed only without NODENAME; an empty one is rejected there
	os.Exit(agent.Daemon(new(agent.Config), hostname).Main(version, os.Args[1:], os.Environ()))
}
