// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// ping sends one datagram to the pod's echo and waits for it to come back.
func (p *testPod) ping() error { return p.pingWithin(eventually.Limit) }

func (p *testPod) pingWithin(timeout time.Duration) error {
	conn, err := p.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return exchange(conn, "ping", timeout)
}

func (p *testPod) dial() (*net.UDPConn, error) {
	return net.DialUDP("udp", nil, &net.UDPAddr{IP: p.spec.IPv4Nets[0].Addr().AsSlice(), Port: 7})
}

func exchange(conn *net.UDPConn, text string, timeout time.Duration) error {
	if _, err := conn.Write([]byte(text)); err != nil {
		return err
	}
	buf := make([]byte, 100)
	for deadline := time.Now().Add(timeout); ; {
		if err := conn.SetReadDeadline(deadline); err != nil {
			return err
		}
		n, err := conn.Read(buf)
		if err != nil {
			return err
		}
		if string(buf[:n]) == text {
			return nil
		}
	}
}

// flood sends datagrams without a pause until stop is called. stop returns how many came back, and the first loss: a datagram that doesn't
// come back within the time.
func (p *testPod) flood(within time.Duration) (stop func() (int64, error)) {
	p.host.Helper()
	conn, err := p.dial()
	if err != nil {
		p.host.Fatal(err)
	}
	var ending atomic.Bool
	var n atomic.Int64
	lost := make(chan error, 1)
	go func() {
		defer func() { _ = conn.Close() }()
		for !ending.Load() {
			if err := exchange(conn, fmt.Sprint(n.Load()), within); err != nil {
				lost <- fmt.Errorf("datagram %d: %w", n.Load(), err)
				return
			}
			n.Add(1)
			time.Sleep(500 * time.Microsecond)
		}
		lost <- nil
	}()
	return func() (int64, error) {
		ending.Store(true)
		return n.Load(), <-lost
	}
}
