// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// FuzzMessages: whatever comes through a socket, nothing panics.
func FuzzMessages(f *testing.F) {
	a := netip.MustParseAddr("fd00::1")
	for _, m := range []*Message{
		SetNeigh(3, netip.MustParseAddr("10.0.0.1"), model.MAC{0xee}),
		AddAddr(3, HostPrefix(a)),
		AddRoute(Route{Dst: HostPrefix(a), Index: 3, Protocol: 80, Metric: DefaultMetric6}, 0),
	} {
		s := Socket{}
		s.stamp(m, 0)
		f.Add([]byte(*m))
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		Messages(b, func(h Header, body []byte) {
			_ = parseError(h, body)
			if r, ok := ParseRoute(body); ok {
				ParseHops(r, body)
			}
			ParseNeigh(body)
			ParseAddr(body)
		})
	})
}
