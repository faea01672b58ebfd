// SPDX-License-Identifier: Apache-2.0

package rtnl

import "time"

const (
	settlePause = 50 * time.Microsecond // at first
	longPause   = 5 * time.Millisecond
	settleTime  = 10 * time.Second
)

// Await waits until what the kernel makes in a work queue is there, such as the local
// route of an IPv6 address that was just added (addrconf_dad_work). The queue needs the
// lock that whatever changes a link has: where namespaces come and go by the dozen that
// takes a second and more. It is not waited for longer than ten.
func Await(there func() bool) {
	pause := settlePause
	for end := time.Now().Add(settleTime); !there() && time.Now().Before(end); {
		time.Sleep(pause)
		pause = min(pause+pause/8, longPause)
	}
}
