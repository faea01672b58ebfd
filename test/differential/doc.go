// SPDX-License-Identifier: Apache-2.0

// Package differential holds the kernel to policy.Evaluate: random packets are
// sent through a host whose firewall was programmed from random endpoints,
// policies and profiles, and each must fare as Evaluate says. A difference is
// told as the smallest case that can be found. For more than make test does:
//
//	go test ./test/differential -v -seed 0 -rulesets 1000 -packets 200000
package differential
