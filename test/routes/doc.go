// SPDX-License-Identifier: Apache-2.0

// Package routes has pods of several hosts talk through the built binaries: over
// BGP, through tunnels, while agents, hosts and etcd come and go.
package routes
