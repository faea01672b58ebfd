// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
)

// pace is the pause between two datagrams of a Traffic.
const pace = time.Millisecond

// Traffic are datagrams from one pod to another and back, which are counted.
type Traffic struct {
	tb             testing.TB
	name           string
	client, server *net.UDPConn
	sent, answered atomic.Int64
	first          chan int64 // the number of the first that was answered
	enough         chan struct{}
	sending        sync.WaitGroup
	receiving      sync.WaitGroup
	end            sync.Once
}

// StartTraffic sends datagrams until Stop; one has been answered when it returns.
func StartTraffic(tb testing.TB, from, to *lab.Pod, v6 bool) *Traffic {
	tb.Helper()
	var target netip.Addr
	for _, a := range to.Addrs() {
		if a.Is6() == v6 {
			target = a
		}
	}
	t := &Traffic{tb: tb, name: from.Name() + " to " + target.String(), first: make(chan int64, 1), enough: make(chan struct{})}
	err := to.Do(func() (err error) {
		t.server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(target, 0)))
		return err
	})
	if err == nil {
		err = from.Do(func() (err error) {
			t.client, err = net.DialUDP("udp", nil, t.server.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	if err == nil {
		err = lab.GiveRoom(t.server, t.client)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(t.close)
	t.receiving.Go(t.echo)
	t.receiving.Go(t.count)
	t.sending.Go(t.send)
	t.first <- eventually.Receive(tb, t.name+": an answer", t.first)
	return t
}

// echo answers.
func (t *Traffic) echo() {
	for b := make([]byte, 64); ; {
		n, peer, err := t.server.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		_, _ = t.server.WriteToUDPAddrPort(b[:n], peer) // what is lost is seen
	}
}

// count counts the answers that come back, each once.
func (t *Traffic) count() {
	seen := map[uint64]bool{}
	for b := make([]byte, 64); ; {
		n, err := t.client.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != 8 {
			continue // an ICMP error, which is a loss
		}
		number := binary.BigEndian.Uint64(b)
		if seen[number] {
			continue
		}
		seen[number] = true
		if t.answered.Add(1) == 1 {
			t.first <- int64(number)
		}
	}
}

func (t *Traffic) send() {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		select {
		case <-t.enough:
			return
		case <-tick.C:
		}
		t.sent.Store(int64(n))
		_, _ = t.client.Write(binary.BigEndian.AppendUint64(nil, n)) // what is lost is seen
	}
}

// close ends it, when all that will be answered has been.
func (t *Traffic) close() {
	t.end.Do(func() {
		close(t.enough)
		t.sending.Wait()
		first := int64(0)
		select {
		case first = <-t.first:
			t.first <- first
		default: // nothing was answered
		}
		ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit) // the test's own may have ended
		defer cancel()
		_ = eventually.Wait(ctx, t.name, eventually.Holds(func() bool { return t.answered.Load() >= t.sent.Load()-first+1 })) // Stop counts
		_ = t.client.Close()
		_ = t.server.Close()
		t.receiving.Wait()
	})
}

// Stop ends it and returns how many were sent, from the first that was answered,
// and how many of them never were.
func (t *Traffic) Stop() (sent, lost int64) {
	t.tb.Helper()
	t.close()
	sent = t.sent.Load() - <-t.first + 1
	return sent, sent - t.answered.Load()
}

// StopWhole ends it, and none may have been lost.
func (t *Traffic) StopWhole() {
	t.tb.Helper()
	if sent, lost := t.Stop(); lost > 0 {
		t.tb.Errorf("%s: %d of %d datagrams were lost", t.name, lost, sent)
	}
}
