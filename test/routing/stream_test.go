// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/inflight"
)

// streamPace is the time between two echo requests of a stream.
const streamPace = 5 * time.Millisecond

// stream is a ping that never rests, and that counts what is lost on the way, not
// what is late.
type stream struct {
	to     netip.Addr
	conn   *net.IPConn
	ending chan struct{}
	ended  sync.WaitGroup

	mu       sync.Mutex
	sent     int
	answered map[int]struct{}
}

// stream starts a ping from one pod to an address.
func (r *trio) stream(from *lab.Pod, to netip.Addr) *stream {
	r.Helper()
	s := &stream{to: to, ending: make(chan struct{}), answered: map[int]struct{}{}}
	network, local := "ip4:icmp", "0.0.0.0"
	if to.Is6() {
		network, local = "ip6:ipv6-icmp", "::"
	}
	err := from.Do(func() (err error) {
		s.conn, err = net.ListenIP(network, &net.IPAddr{IP: net.ParseIP(local)})
		return err
	})
	if err == nil {
		err = lab.GiveRoom(s.conn)
	}
	if err != nil {
		r.Fatal(err)
	}
	s.ended.Go(s.send)
	s.ended.Go(s.receive)
	r.Cleanup(s.end)
	r.until("the stream to "+to.String()+" flows", func() bool { return s.answers() > 0 })
	return s
}

func (s *stream) send() {
	tick := time.NewTicker(streamPace)
	defer tick.Stop()
	for seq := 1; seq < 1<<16; seq++ {
		select {
		case <-s.ending:
			return
		case <-tick.C:
		}
		m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: seq}}
		if s.to.Is6() {
			m.Type = ipv6.ICMPTypeEchoRequest
		}
		packet, err := m.Marshal(nil)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.sent = seq
		s.mu.Unlock()
		_, _ = s.conn.WriteTo(packet, &net.IPAddr{IP: s.to.AsSlice()}) // it counts as lost
	}
}

func (s *stream) receive() {
	protocol, reply := 1, icmp.Type(ipv4.ICMPTypeEchoReply)
	if s.to.Is6() {
		protocol, reply = 58, ipv6.ICMPTypeEchoReply
	}
	buffer := make([]byte, 1500)
	for {
		n, _, err := s.conn.ReadFrom(buffer)
		if err != nil {
			return // it has been closed
		}
		m, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil || m.Type != reply {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == os.Getpid()&0xffff {
			s.mu.Lock()
			s.answered[e.Seq] = struct{}{}
			s.mu.Unlock()
		}
	}
}

func (s *stream) answers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.answered)
}

func (s *stream) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// requests are those of streams.
func requests(streams []*stream) (all []int) {
	for _, s := range streams {
		all = append(all, s.requests())
	}
	return all
}

func (s *stream) end() {
	select {
	case <-s.ending:
	default:
		close(s.ending)
		_ = s.conn.Close()
	}
	s.ended.Wait()
}

// lost is how many of the requests sent until now were lost.
func (r *trio) lost(s *stream) (lost int) {
	r.Helper()
	lost, _ = r.settled(s)
	return lost
}

// settled waits until the stream flows again, and says which requests of those sent
// until now were lost, and how many followed each other.
func (r *trio) settled(s *stream) (lost, longest int) {
	r.Helper()
	last := s.requests()
	if err := inflight.Wait(); err != nil {
		r.Fatal(err)
	}
	// All answers to them have come. That to a later one is read after them.
	from := s.requests()
	r.until("the stream to "+s.to.String()+" flows again", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for seq := range s.answered {
			if seq > from {
				return true
			}
		}
		return false
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	run := 0
	for seq := 1; seq < last; seq++ {
		if _, ok := s.answered[seq]; ok {
			run = 0
			continue
		}
		lost++
		run++
		longest = max(longest, run)
	}
	return lost, longest
}
