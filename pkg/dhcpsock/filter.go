// SPDX-License-Identifier: Apache-2.0

package dhcpsock

import "golang.org/x/net/bpf"

// Offsets in a frame.
const (
	etherType = 12
	ip4       = 14 // start of the packet
	fragment  = ip4 + 6
	protocol4 = ip4 + 9
	ip6       = 14
	next6     = ip6 + 6
	payload6  = ip6 + 40
)

// questions is a filter that accepts requests to DHCPv4, DHCPv6 and routers, and drops the machine's other packets.
var questions = []bpf.Instruction{
	bpf.LoadAbsolute{Off: etherType, Size: 2},                            // 0
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x86dd, SkipTrue: 8},            // 1, to 10
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0x0800, SkipTrue: 15},        // 2, to 18
	bpf.LoadAbsolute{Off: protocol4, Size: 1},                            // 3
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 17, SkipTrue: 13},            // 4, to 18
	bpf.LoadAbsolute{Off: fragment, Size: 2},                             // 5
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 11},         // 6, to 18
	bpf.LoadMemShift{Off: ip4},                                           // 7: X = the header's length
	bpf.LoadIndirect{Off: ip4 + 2, Size: 2},                              // 8: UDP's destination port
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: 67, SkipTrue: 7, SkipFalse: 8},  // 9, to 17 or 18
	bpf.LoadAbsolute{Off: next6, Size: 1},                                // 10
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: 58, SkipTrue: 3},                // 11, to 15
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 17, SkipTrue: 5},             // 12, to 18
	bpf.LoadAbsolute{Off: payload6 + 2, Size: 2},                         // 13
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: 547, SkipTrue: 2, SkipFalse: 3}, // 14, to 17 or 18
	bpf.LoadAbsolute{Off: payload6, Size: 1},                             // 15
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 133, SkipTrue: 1},            // 16, to 18
	bpf.RetConstant{Val: 1 << 16},                                        // 17
	bpf.RetConstant{Val: 0},                                              // 18
}
