// SPDX-License-Identifier: Apache-2.0

// Package kernel is the Linux network stack: links, addresses, routes,
// neighbours, sysctls, namespaces and connection tracking.
//
// The first half serves the CNI plugin, which makes one veth and leaves: few
// round trips, several rtnetlink messages in each. The second half serves the
// agent, which keeps the whole desired state of the workload interfaces of a
// host: it reads what there is, writes the difference and reads it back.
//
// Functions work in the network namespace of the calling thread. A Namespace
// and a HostPath belong to the namespace they were opened in, whatever thread
// uses them later, and no thread is left in another namespace.
package kernel
