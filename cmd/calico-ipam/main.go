// SPDX-License-Identifier: Apache-2.0

// The process lives for milliseconds: reading and watching the limits of its cgroup would cost more than it gains.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command calico-ipam is the CNI IPAM plugin: it assigns addresses from etcd for other plugins.
package main

import (
	"os"

	"github.com/calico-go/calico/pkg/cni"
	"github.com/calico-go/calico/pkg/cni/protocol"
)

// version is set by the linker: see the Makefile.
var version = "0.1.0"

func main() { os.Exit(cni.Main(protocol.CalicoIPAM, version)) }
