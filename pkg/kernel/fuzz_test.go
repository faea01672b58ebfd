// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzMessages: whatever comes through a socket, nothing panics.
func FuzzMessages(f *testing.F) {
	mac := HostMAC()
	for _, m := range []*message{
		getLink(0, "cali1"),
		setConf4(3, settings4()),
		setNeigh(3, netip.MustParseAddr("10.0.0.1"), mac),
		addAddr(3, netip.MustParsePrefix("fd00::1/128")),
		addRoute(endpointRoute(80, 3, netip.MustParseAddr("fd00::1")), 0),
		setDelay(delayKey{3, unix.AF_INET}, 0),
	} {
		s := socket{}
		s.stamp(m, 0)
		f.Add([]byte(*m))
	}
	for _, code := range []byte{0, 200} { // a tracked query of ICMPv6
		proto := []byte{5, 0, 1, 0, 58, 0, 0, 0, 5, 0, 8, 0, 128, 0, 0, 0, 5, 0, 9, 0, code, 0, 0, 0}
		tuple := append([]byte{byte(4 + len(proto)), 0, 2, 0x80}, proto...)
		body := append([]byte{unix.AF_INET6, 0, 0, 0, byte(4 + len(tuple)), 0, 1, 0x80}, tuple...)
		f.Add(append([]byte{byte(16 + len(body)), 15: 0}, body...))
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		messages(b, func(h header, body []byte) {
			_ = parseError(h, body)
			if l, ok := parseLink(body); ok {
				l.conf4.at(25)
				l.conf6.at(22)
			}
			if r, ok := parseRoute(body); ok {
				parseHops(r, body)
			}
			parseNeigh(body)
			parseAddr(body)
			parseTracked(body)
			w := watcher{path: &HostPath{port: func() uint32 { return 1 }, reader: reader{cfg: HostPathConfig{Prefixes: []string{"cali"}}}}, seen: map[int]sight{}}
			var e Event
			w.note(&e, h, body)
		})
	})
}
