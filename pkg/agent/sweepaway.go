// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
)

// Of pods that leave while no agent runs nobody tells. The firewall's table has stayed, and with
// it the addresses of the endpoints that the last agent knew.

// loseFormer notes the addresses that led to endpoints of a former run and now don't lead there,
// as lostAddrs does of those that leave in this one.
func (l *loop) loseFormer() {
	var lost []netip.Addr
	for _, s := range l.former {
		t := l.desired.interfaces[s.Interface]
		if t == nil || !t.want.Active || !slices.Contains(t.want.Addrs, s.Addr) {
			lost = append(lost, s.Addr)
		}
	}
	l.lose(l.state.notOwn(lost))
	l.former = nil
}
