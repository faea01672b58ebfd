// SPDX-License-Identifier: Apache-2.0

// The process lives for milliseconds: to read the limits of its cgroup, and to
// watch them, costs more than it gives.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command calico-ipam is the CNI IPAM plugin: it gives addresses from etcd to
// other plugins.
package main

import (
	"os"

	"github.com/calico-go/calico/pkg/cni"
	"github.com/calico-go/calico/pkg/cni/protocol"
)

// version is what the linker sets: see the Makefile.
var version = "0.1.0"

func main() { os.Exit(cni.Main(protocol.CalicoIPAM, version)) }
