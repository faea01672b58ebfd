// SPDX-License-Identifier: Apache-2.0

// Command calico-classic runs the roles of the APIs of 2014: see package classicd.
package main

import (
	"os"

	"github.com/calico-go/calico/pkg/classicd"
)

// version is set by the linker: see the Makefile.
var version = "0.1.0"

func main() {
	hostname, _ := os.Hostname() // needed only without NODENAME; an empty one is rejected there
	os.Exit(classicd.Verbs(version, hostname, os.Environ()).Main(os.Args[1:]))
}
