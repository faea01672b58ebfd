// SPDX-License-Identifier: Apache-2.0

// Command calico-controllers copies Kubernetes objects into etcd: see package controllers.
package main

import (
	"os"

	"github.com/calico-go/calico/pkg/controllers"
)

// version is set by the linker: see the Makefile.
var version = "0.1.0"

func main() {
	os.Exit(controllers.Daemon(new(controllers.Config)).Main(version, os.Args[1:], os.Environ()))
}
