// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// FuzzMessages: whatever comes through a socket, nothing panics.
func FuzzMessages(f *testing.F) {
	a := netip.MustParseAddr("fd00::1")
	for _, m := range []*message{
		setNeigh(3, netip.MustParseAddr("10.0.0.1"), model.MAC{0xee}),
		addAddr(3, hostPrefix(a)),
		addRoute(route{dst: hostPrefix(a), index: 3, protocol: 80, metric: defaultMetric6}, 0),
	} {
		s := socket{}
		s.stamp(m, 0)
		f.Add([]byte(*m))
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		messages(b, func(h header, body []byte) {
			_ = parseError(h, body)
			if r, ok := parseRoute(body); ok {
				parseHops(r, body)
			}
			parseNeigh(body)
			parseAddr(body)
		})
	})
}
