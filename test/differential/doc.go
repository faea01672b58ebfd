// SPDX-License-Identifier: Apache-2.0

// Package differential holds the kernel to policy.Evaluate: random packets are
// sent through a host whose firewall was programmed from random endpoints,
// policies and profiles, and each must fare as Evaluate says.
package differential
