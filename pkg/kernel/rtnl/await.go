// SPDX-License-Identifier: Apache-2.0

package rtnl

import "time"

const (
	settlePause = 50 * time.Microsecond
	settleTime  = time.Second
)

// Await waits until what the kernel makes in a work queue is there, such as the local
// route of an IPv6 address that was just added (addrconf_dad_work); not for longer than
// a second.
func Await(there func() bool) {
	for end := time.Now().Add(settleTime); !there() && time.Now().Before(end); {
		time.Sleep(settlePause)
	}
}
