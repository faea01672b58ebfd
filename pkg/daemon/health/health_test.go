// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestDisconnected has a watch that etcd refuses while it takes every report.
func TestDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var since time.Time
		var trouble error
		h := New()
		h.Interrupted = func() (time.Time, error) { return since, trouble }
		h.SetUnready("")
		want := func(least time.Duration, disconnected, unready string) {
			t.Helper()
			h.Turn()
			if got := h.Disconnected(least); got != disconnected {
				t.Errorf("disconnected: %q, want %q", got, disconnected)
			}
			if got := h.Unready(); got != unready {
				t.Errorf("unready: %q, want %q", got, unready)
			}
		}
		want(0, "", "")
		since, trouble = time.Now(), errors.New("watch: refused")
		const why = "no change in etcd is heard of since 2000-01-01T00:00:00Z: watch: refused"
		want(0, why, "")
		want(time.Second, "", "")
		time.Sleep(disconnectedAfter)
		want(time.Second, why, why)
		trouble = nil
		want(0, "", "")

		h.SetUnready(etcdUnread)
		h.Away, trouble = func() string { return "watch: refused" }, errors.New("watch: refused")
		want(time.Second, why, etcdUnread+": watch: refused")
	})
}
