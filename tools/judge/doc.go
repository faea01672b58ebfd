// SPDX-License-Identifier: Apache-2.0

// Package judge holds what Kubernetes' policies become here to kube-network-policies, Kubernetes' own implementation, which evaluates the
// objects themselves for each packet: in random clusters, both let the same flows through. A difference is told as the smallest cluster that
// can be found. It is a module of its own, so that its requirements choose the versions of nothing that is shipped. For more than make test
// does:
//
//	go test -C tools/judge -seed 0 -worlds 100000
package judge
