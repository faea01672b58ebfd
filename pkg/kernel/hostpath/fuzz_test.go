// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// FuzzNotices: whatever the kernel tells of, nothing panics.
func FuzzNotices(f *testing.F) {
	for _, m := range []*rtnl.Message{
		link.GetMessage(0, "cali1"),
		setConf4(3, settings4()),
		rtnl.SetNeigh(3, netip.MustParseAddr("10.0.0.1"), link.HostMAC()),
		rtnl.AddAddr(3, netip.MustParsePrefix("fd00::1/128")),
		rtnl.AddRoute(endpointRoute(80, 3, netip.MustParseAddr("fd00::1")), 0),
		setDelay(delayKey{3, unix.AF_INET}, 0),
		rtnl.NewMessage(unix.RTM_NEWNETCONF, 0, (*getConf(unix.AF_INET, allLinks))[unix.SizeofNlMsghdr:]),
	} {
		b := []byte(*m)
		b[0] = byte(len(b)) // a socket stamps it
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		rtnl.Messages(b, func(h rtnl.Header, body []byte) {
			if l, ok := link.Parse(body); ok {
				l.Conf4.At(25)
				l.Conf6.At(22)
			}
			parseDelay(body)
			w := watcher{path: &Path{port: func() uint32 { return 1 }, reader: reader{cfg: Config{Prefixes: []string{"cali"}}}}, seen: map[int]sight{}, off: map[uint8]bool{}}
			w.path.indexes.learn(w.seen) // as when it subscribes
			var e Event
			w.note(&e, h, body)
		})
	})
}
