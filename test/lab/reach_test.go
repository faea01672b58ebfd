// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"

	"github.com/calico-go/calico/test/eventually"
)

// silent is how long a ping goes on that is to get no answer.
const silent = 300 * time.Millisecond

// answers says whether the target answers within a time. That it does not is
// for those that it must not reach: a busy machine may take longer.
func answers(t *testing.T, from *Host, to Target, within time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return from.Ping(ctx, to) == nil
}

func reaches(t *testing.T, from *Host, to Target) bool {
	t.Helper()
	return answers(t, from, to, silent)
}

// eventually waits for what pings must show, some of them by getting no answer:
// they go on longer each time, until those that get one have had the time.
func eventuallySeen(t *testing.T, what string, look func(within time.Duration) error) error {
	t.Helper()
	within := silent
	return eventually.Wait(soon(t), what, func() error {
		err := look(within)
		within = min(2*within, 10*time.Second)
		return err
	})
}

// reachable are the ordered pairs of hosts, and of hosts with etcd, that have
// an answer within a time, each family by itself.
func reachable(t *testing.T, l *Lab, within time.Duration) []string {
	t.Helper()
	type result struct {
		name string
		ok   bool
	}
	results := make(chan result)
	n := 0
	try := func(name string, from *Host, to netip.Addr) {
		n++
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			_, err := from.Namespace().Ping(ctx, to)
			results <- result{name, err == nil}
		}()
	}
	for _, from := range l.Hosts() {
		for _, to := range l.Hosts() {
			if from != to {
				try(from.Name()+to.Name()+"4", from, to.IPv4())
				try(from.Name()+to.Name()+"6", from, to.IPv6())
			}
		}
		try(from.Name()+" etcd", from, memberAddr(false, 1).Addr())
	}
	var ok []string
	for range n {
		if r := <-results; r.ok {
			ok = append(ok, r.name)
		}
	}
	slices.Sort(ok)
	return ok
}

// pairs are those among the hosts of each group, and each host's with etcd.
func pairs(groups ...string) []string {
	var names []string
	for _, g := range groups {
		for _, a := range g {
			names = append(names, string(a)+" etcd")
			for _, b := range g {
				if a != b {
					names = append(names, fmt.Sprintf("%c%c4", a, b), fmt.Sprintf("%c%c6", a, b))
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// answered counts the answers of a host to that many requests of another, each
// sent once. It waits until it has looked in vain so many times in a row, or all have
// come: what is lost never comes, and what is late is not lost.
func answered(t *testing.T, from, to *Host, n, inVain int) int {
	t.Helper()
	var conn *icmp.PacketConn
	err := from.Do(func() (err error) {
		conn, err = icmp.ListenPacket("ip6:ipv6-icmp", "::")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const id = 0x1055
	for seq := range n {
		request := icmp.Message{Type: ipv6.ICMPTypeEchoRequest, Body: &icmp.Echo{ID: id, Seq: seq}}
		packet, err := request.Marshal(nil)
		if err == nil {
			_, err = conn.WriteTo(packet, &net.IPAddr{IP: to.IPv6().AsSlice()})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := map[int]bool{}
	buffer := make([]byte, 1500)
	// Not by the clock: a busy machine may keep this from looking for longer than any silence.
	for misses := 0; len(seen) < n && misses < inVain; {
		if err := conn.SetReadDeadline(time.Now().Add(silent)); err != nil {
			t.Fatal(err)
		}
		k, _, err := conn.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			misses++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if m, err := icmp.ParseMessage(58, buffer[:k]); err == nil && m.Type == ipv6.ICMPTypeEchoReply {
			if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id && !seen[e.Seq] {
				seen[e.Seq], misses = true, 0
			}
		}
	}
	return len(seen)
}
