// SPDX-License-Identifier: Apache-2.0

// The process lives for milliseconds: reading and watching the limits of its cgroup would cost more than it gains.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command calico is the CNI main plugin: it wires a container to this host.
package main

import (
	"os"

	"github.com/calico-go/calico/pkg/cni"
	"github.com/calico-go/calico/pkg/cni/protocol"
)

// version is set by the linker: see the Makefile.
var version = "0.1.0"

func main() { os.Exit(cni.Main(protocol.Calico, version)) }
