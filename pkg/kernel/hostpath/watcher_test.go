// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"fmt"
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
		w := &watcher{path: h, seen: make(map[int]sight)}
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
		for i := range 50 {
			netns.IP(t, "route", "add", fmt.Sprintf("10.9.0.%d", i), "dev", "cali1")
		}
		ctx, cancel := context.WithCancel(context.Background())
		events, done := make(chan Event), make(chan struct{})
		go func() {
			defer close(done)
			w.run(ctx, events)
		}()
		await := func(ok func(Event) bool) {
			for timeout := time.After(netns.Patience); ; {
				select {
				case e := <-events:
					if ok(e) {
						return
					}
				case <-timeout:
					t.Fatal("no such event")
				}
			}
		}
		await(func(e Event) bool { return e.All })
		netns.IP(t, "route", "add", "10.9.1.1", "dev", "cali1") // which was not heard of when it came
		await(func(e Event) bool { return len(e.Interfaces) > 0 && e.Interfaces[0] == "cali1" })
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
