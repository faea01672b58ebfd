// SPDX-License-Identifier: Apache-2.0

// Command calico-classic has the roles of the APIs of 2014: see package classicd.
package main

import (
	"os"

	"github.com/calico-go/calico/pkg/classicd"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

func main() {
	hostname, _ := os.Hostname() // it matters only where NODENAME isn't set, and is refused there
	os.Exit(classicd.Verbs(version, hostname, os.Environ()).Main(os.Args[1:]))
}
