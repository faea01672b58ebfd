// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/test/netns"
)

// patienceOfTests is how long the kernel may take on a busy machine.
const patienceOfTests = time.Minute

// TestOverrun has the kernel drop what it tells, as in a flood of changes: whoever read before all that
// was queued has been heard is not told that nothing has happened since.
func TestOverrun(t *testing.T) {
	netns.Host(t, func() {
		c := open(t)
		nft(t, "add table inet calico; add chain inet calico x")
		if err := unix.SetsockoptInt(c.events.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil { // the least there is
			t.Fatal(err)
		}
		if err := c.Join(); err != nil {
			t.Fatal(err)
		}
		other := func() { nft(t, "add table inet other; add chain inet other x; delete chain inet other x") }
		for range 20 {
			other()
		}
		told, goOn := make(chan struct{}, 1), make(chan struct{})
		go c.Listen(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)), func() {
			select {
			case told <- struct{}{}:
			default:
			}
			<-goOn
		})
		select {
		case <-told: // and nothing else has been read
		case <-time.After(patienceOfTests):
			t.Fatal("the loss was never told")
		}
		before := c.Mark()
		if c.Quiet(before, c.events.heard) {
			t.Error("quiet before what was queued has been read")
		}
		if table, err := c.ReadTable(); err != nil || len(table.Chains) != 1 {
			t.Errorf("%d chains, %v: want the one", len(table.Chains), err)
		}
		nft(t, "add rule inet calico x accept") // nobody is told
		close(goOn)
		calm, generation := false, uint32(0)
		for deadline := time.Now().Add(patienceOfTests); !calm; generation, calm = c.sock.calm(c.Mark()) {
			if time.Now().After(deadline) {
				t.Fatal("it is never calm again")
			}
			other()
		}
		if c.Quiet(before, generation) {
			t.Error("quiet, and a rule was added")
		}
	})
}
