// SPDX-License-Identifier: Apache-2.0

// Package firewall tests policy as users meet it: the built binaries in a lab,
// objects as JSON in etcd, and real packets between pods, their host and a
// namespace outside.
package firewall
