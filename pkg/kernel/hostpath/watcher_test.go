// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/calico-go/calico/test/netns"
	"golang.org/x/sys/unix"
)

// When the kernel drops events because nobody read them, everything may have
// changed, and events go on.
func TestEventsLost(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		w := &watcher{path: h, seen: make(map[int]sight), off: make(map[uint8]bool)}
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		raw, err := w.file.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = raw.Control(func(fd uintptr) {
			if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		wire(t, 1)
		wire(t, 2)
		for i := range 50 {
			netns.IP(t, "route", "add", fmt.Sprintf("10.9.0.%d", i), "dev", "cali1")
		}
		ctx, cancel := context.WithCancel(context.Background())
		events, done := make(chan Event), make(chan struct{})
		go func() {
			defer close(done)
			w.run(ctx, events)
		}()
		next := func() Event {
			select {
			case e := <-events:
				return e
			case <-time.After(netns.Patience):
				t.Fatal("no event")
			}
			return Event{}
		}
		for !next().All {
		}
		for n := 0; ; n++ { // where one is lost with others, that is said
			netns.IP(t, "route", "add", fmt.Sprintf("10.9.1.%d", n), "dev", "cali2")
			if slices.Contains(next().Interfaces, "cali2") {
				break
			}
		}
		cancel()
		go func() { // whatever is on its way
			for range events {
			}
		}()
		if err := w.file.Close(); err != nil {
			t.Error(err)
		}
		<-done
		close(events)
	})
}
