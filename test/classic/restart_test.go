// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/inflight"
	"github.com/calico-go/calico/test/long"
)

// TestFelixRestarts: whichever side ends at whichever step of a resynchronisation, in the end what the plugin tells is there,
// and what it doesn't is not.
func TestFelixRestarts(t *testing.T) {
	long.Test(t)
	f := newFelix(t, "-connection-timeout=15s", "-heartbeat-interval=200ms", "-resync-retry-interval=50ms", "-acl-retry-interval=100ms")
	a, b := f.vm(iface(idA), macA, "10.65.0.2/32"), f.vm(iface(idB), macB, "10.65.0.3/32")
	all := aclUpdate("10.65.0.0/24", "10.65.0.0/24")
	both := map[string]message{idA: all, idB: all}
	first := func(id string) { f.tell(created(idA, "10.65.0.2").with(message{"resync_id": id}), "SUCCESS") }
	second := func(id string) {
		f.tell(created(idB, "10.65.0.3").with(message{"resync_id": id, "mac": macB}), "SUCCESS")
	}
	for name, until := range map[string]func(){
		"asked":          func() { f.plugin.next() },
		"answered":       func() { f.resync(2) },
		"told one":       func() { first(f.resync(2)) },
		"told both":      func() { id := f.resync(2); first(id); second(id) },
		"told the other": func() { second(f.resync(2)) },
	} {
		for _, felix := range []bool{true, false} {
			until()
			if felix {
				f.kill()
				f.start()
			} else {
				f.peers.Kill()
				f.peers = f.process()
				f.acls.mu.Lock()
				f.acls.of = map[string]message{}
				f.acls.mu.Unlock()
				f.bind()
				f.to = client{f.peers.Connect("REQ", "127.0.0.1:9902", nil), f}
			}
			id := f.resync(2)
			first(id)
			second(id)
			f.rule(both)
			f.reaches(a, "10.65.0.3", true)
			f.reaches(b, "10.65.0.2", true)
			if t.Failed() {
				t.Fatalf("%s, then Felix %t or its peers were started anew", name, felix)
			}
			// The next begins from nothing.
			f.kill()
			f.start()
			f.resync(0)
			f.reaches(a, "10.65.0.3", false)
			f.kill()
			f.start()
		}
	}
}

// flow is what one machine sends to another.
type flow struct {
	out, in        net.Conn
	sent, received int
}

func newFlow(t *testing.T, from, to lab.Namespace, addr string, port uint16) *flow {
	t.Helper()
	f, at := &flow{}, netip.AddrPortFrom(netip.MustParseAddr(addr), port)
	err := errors.Join(to.Do(func() (err error) { f.in, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); return err }),
		from.Do(func() (err error) { f.out, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at)); return err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = f.out.Close(), f.in.Close() })
	return f
}

// TestFelixKilled: while Felix is killed and started, with its peers and without, no packet of a flow that is allowed is lost, and
// none passes of one that isn't.
func TestFelixKilled(t *testing.T) {
	long.Test(t)
	f := newFelix(t, "-connection-timeout=1h", "-acl-retry-interval=100ms")
	a, b := f.vm(iface(idA), macA, "10.65.0.2/32"), f.vm(iface(idB), macB, "10.65.0.3/32")
	tell := func() {
		id := f.resync(2)
		f.tell(created(idA, "10.65.0.2").with(message{"resync_id": id}), "SUCCESS")
		f.tell(created(idB, "10.65.0.3").with(message{"resync_id": id, "mac": macB}), "SUCCESS")
	}
	tell()
	f.rule(map[string]message{idA: aclUpdate("", "10.65.0.0/24"), idB: aclUpdate("10.65.0.0/24", "10.65.0.0/24")})
	f.reaches(a, "10.65.0.3", true)
	f.reaches(b, "10.65.0.2", false)
	flows := map[bool]*flow{true: newFlow(t, a, b, "10.65.0.3", 5000), false: newFlow(t, b, a, "10.65.0.2", 5001)}
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, flow := range flows {
				if _, err := flow.out.Write([]byte{1}); err == nil {
					flow.sent++
				}
			}
			if err := a.Do(inflight.Wait); err != nil {
				t.Error(err)
				return
			}
			for _, flow := range flows {
				flow.received += waiting(t, flow.in)
			}
		}
	})
	for range 3 {
		f.kill()
		f.start()
		f.says(felixHealth, "/readiness", "200 ok")
		tell()
		f.says(felixHealth, "/debug/invalid", "every object and setting is in order")
	}
	close(stop)
	sending.Wait()
	if allowed, denied := flows[true], flows[false]; allowed.sent == 0 || allowed.received != allowed.sent || denied.received != 0 {
		t.Errorf("allowed: %d of %d arrived; denied: %d of %d", allowed.received, allowed.sent, denied.received, denied.sent)
	}
}

// waiting reads and counts what has come.
func waiting(t *testing.T, conn net.Conn) int {
	got, err := drained(conn.(*net.UDPConn))
	if err != nil {
		t.Error(err)
	}
	return len(got)
}
