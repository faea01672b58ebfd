// SPDX-License-Identifier: Apache-2.0

// Command calico-nsm is the manager of a node's network service connections: see package nsmanager.
package main

import (
	"os"
	"syscall"

	"github.com/calico-go/calico/pkg/nsmanager"
)

// version is set by the linker: see the Makefile.
var version = "0.1.0"

func main() {
	hostname, _ := os.Hostname() // without it, -node is required
	syscall.Umask(0o077)
	os.Exit(nsmanager.Daemon(new(nsmanager.Config), hostname).Main(version, os.Args[1:], os.Environ()))
}
