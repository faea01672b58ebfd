// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-go/calico/test/long"
)

// TestReturnsUnheard: a host loses its power and is back before its neighbours have noticed. They notice when it connects,
// and its routes stay. A host that connects although it still has a session keeps that.
func TestReturnsUnheard(t *testing.T) {
	long.Test(t)
	t.Parallel()
	f := newFabric(t)
	a, b := f.host(t, 1), f.host(t, 2)
	da, db := a.desired(), b.desired()
	a.meets(da, b)
	b.meets(db, a)
	a.has(da, "10.1.1.0/26")
	b.has(db, "10.1.2.0/26")
	for _, d := range []*Desired{&da, &db} { // nothing is sent, and the session doesn't end by itself
		d.Speaker.HoldTime, d.Speaker.KeepaliveTime, d.Speaker.RestartTime = 18*time.Hour, 6*time.Hour, time.Hour
	}
	sa, sb := a.start(t), b.start(t)
	sa.apply(da)
	sb.apply(db)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
	sb.mustLearn("10.1.1.0/26 via 10.0.0.1")
	before := sa.look().Status
	probes := counter(t, a.ns, "TcpExtTCPKeepAlive")
	for range 2 {
		knock(t, b, netip.AddrPortFrom(a.v4, 179))
	}
	becomes(t, "it is probed", true, func() bool { return counter(t, a.ns, "TcpExtTCPKeepAlive") > probes })
	a.has(da, "10.1.3.0/26") // which comes after what came of it
	sa.apply(da)
	sb.mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.3.0/26 via 10.0.0.1")
	sameSessions(t, before, sa.look().Status)

	ip(t, f.ns, "link del port2")
	sb.kill()
	again := f.host(t, 2).start(t)
	again.apply(db)
	becomes(t, "the session of "+again.name, []string{"10.0.0.1 established"}, func() []string {
		if got := sa.look().Learned; len(got) != 1 {
			t.Fatalf("the routes of the host didn't stay: %v", got)
		}
		return again.states()
	})
	again.mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.3.0/26 via 10.0.0.1")
}

// knock connects and waits for the other side to close.
func knock(t *testing.T, from *host, to netip.AddrPort) {
	t.Helper()
	in(t, from.ns, func() error {
		conn, err := net.Dial("tcp", to.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = io.Copy(io.Discard, conn)
		return err
	})
}
