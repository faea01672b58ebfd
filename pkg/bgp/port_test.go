// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net"
	"strings"
	"testing"
)

// TestPortInUse: a port that another program has ends no session; once free it is taken.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	a, b, da, db := twoHosts(t)
	a.has(da, "10.1.1.0/26")
	b.has(db, "10.1.2.0/26")
	sa, sb := a.start(t), b.start(t)
	sa.apply(da)
	sb.apply(db)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2")
	before := sa.look().Status
	var busy net.Listener
	in(t, a.ns, func() (err error) {
		busy, err = net.Listen("tcp4", "127.0.0.1:9091")
		return err
	})
	da.Speaker.ListenPort = 9091
	b.has(db, "10.1.2.64/26")
	if got := sa.ask(order{Do: "apply", Desired: da}); !strings.Contains(got.Err, "BGP stays at its former port") || !strings.Contains(got.Err, "9091") {
		t.Errorf("a port in use: %q", got.Err)
	}
	sb.apply(db)
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2", "10.1.2.64/26 via 10.0.0.2")
	sameSessions(t, before, sa.look().Status)
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	sa.applied(da)
	in(t, a.ns, func() error {
		conn, err := net.Dial("tcp4", "127.0.0.1:9091")
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
