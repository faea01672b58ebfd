// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
)

// transfer is a TCP connection in which one side sends.
func (r *rig) transfer(from, at *place, to netip.AddrPort, up bool) *stream {
	r.Helper()
	s := r.stream(fmt.Sprintf("TCP from %s up to %s", from.name, to))
	if !up {
		s.name = fmt.Sprintf("TCP from %s down to %s", to, from.name)
	}
	l, err := listenTCP(at, to.Port())
	if err != nil {
		r.Fatal(err)
	}
	defer l.Close()
	client, err := connect(from, to)
	if err != nil {
		r.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		r.Fatal(err)
	}
	s.closers = []io.Closer{client, server}
	sender, receiver := client, server
	if !up {
		sender, receiver = server, client
	}
	buf := make([]byte, 64<<10)
	bytesOf := make([]byte, len(buf)+256) // those that are sent: each is one more than the last
	for i := range bytesOf {
		bytesOf[i] = byte(i)
	}
	next := 0
	s.receive(func() (int64, error) {
		n, err := receiver.Read(buf)
		if want := bytesOf[next : next+n]; !bytes.Equal(buf[:n], want) {
			r.Errorf("%s: not the bytes that should be:\n%x, want\n%x", s.name, buf[:n], want)
		}
		next = (next + n) % 256
		return int64(n), err
	})
	block := bytesOf[:4096] // a multiple of 256: each begins with 0
	s.send(func(int64) error {
		_, err := sender.Write(block)
		if err == nil {
			s.sent.Add(int64(len(block)) - 1)
		}
		return err
	})
	return s
}
