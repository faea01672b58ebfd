// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
)

// forbidden sends datagrams that must not pass, and counts those that do.
func (r *rig) forbidden(from, at *place, to netip.AddrPort) *stream {
	r.Helper()
	s := r.stream(fmt.Sprintf("forbidden UDP from %s to %s", from.name, to))
	sink, err := listenUDP(at, to.Port())
	if err != nil {
		r.Fatal(err)
	}
	conn, err := dialUDP(from, to)
	if err != nil {
		r.Fatal(err)
	}
	r.roomy(sink)
	s.closers = []io.Closer{sink, conn}
	buf := make([]byte, 64)
	s.receive(func() (int64, error) {
		n, _, err := sink.ReadFromUDPAddrPort(buf)
		if err != nil || n != 8 {
			return 0, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.passed = append(s.passed, int64(binary.BigEndian.Uint64(buf)))
		return 1, nil
	})
	s.send(func(n int64) error {
		_, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
		return err
	})
	return s
}

// begin has only what a stream sends from now on count as passed: what is under
// way is not of this time, however late it is read.
func (s *stream) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = s.sent.Load()
}

// leaked is how much of what must not arrive did.
func (s *stream) leaked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, number := range s.passed {
		if number > s.since {
			n++
		}
	}
	return n
}
