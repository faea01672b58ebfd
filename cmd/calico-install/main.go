// SPDX-License-Identifier: Apache-2.0

// Command calico-install prepares a node for calico-node, as the init container of its pod or by hand, and removes
// Calico again: see package installer.
package main

import (
	"os"

	"github.com/calico-go/calico/pkg/installer"
)

// version is set by the linker: see the Makefile.
var version = "0.1.0"

func main() { os.Exit(installer.Verbs(version, os.Environ()).Main(os.Args[1:])) }
