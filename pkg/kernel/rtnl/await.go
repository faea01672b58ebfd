// SPDX-License-Identifier: Apache-2.0

package rtnl

import "time"

const (
	firstPause = 50 * time.Microsecond
	longPause  = 5 * time.Millisecond
	awaitTime  = 10 * time.Second
)

// Await waits, for ten seconds at most, until the kernel has done something in a work queue, such as creating the local route of an IPv6
// address that was just added (addrconf_dad_work). The queue needs the lock that every change of a link takes: on a host that creates
// namespaces by the dozen, that takes a second and more.
func Await(there func() bool) {
	pause := firstPause
	for end := time.Now().Add(awaitTime); !there() && time.Now().Before(end); {
		time.Sleep(pause)
		pause = min(pause+pause/8, longPause)
	}
}
