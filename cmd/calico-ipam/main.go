// SPDX-License-Identifier: Apache-2.0

// Command calico-ipam is the CNI IPAM plugin: it gives addresses from etcd to other plugins.
package main

import (
	"os"

	"github.com/calico-go/calico/pkg/cni"
)

// version is stamped in by the linker.
var version = "devel"

func main() { os.Exit(cni.Main(cni.CalicoIPAM, version)) }
