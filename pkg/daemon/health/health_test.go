// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadinessPage: the page shows what is wrong, and remarks, which leave the daemon ready.
func TestReadinessPage(t *testing.T) {
	h := New("calico-test")
	page := func() string { return readiness(h) }
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "503 calico-test is starting\n"},
		{func() { h.SetUnready("") }, "200 ok\n"},
		{func() { h.Remark("b", "b is odd") }, "200 ok\nb is odd\n"},
		{func() { h.Remark("a", "a is odd") }, "200 ok\na is odd\nb is odd\n"},
		{func() { h.SetDegraded("c", "c is slow") }, "503 c is slow\na is odd\nb is odd\n"},
		{func() { h.Set("b", "b fails"); h.Remark("b", "") }, "503 b fails; c is slow\na is odd\n"},
		{func() { h.Set("b", ""); h.SetDegraded("c", ""); h.Remark("a", "") }, "200 ok\n"},
	} {
		if step.do(); page() != step.want {
			t.Errorf("got %q, want %q", page(), step.want)
		}
	}
}

// TestDisconnected: etcd refuses the watch while it accepts every report.
func TestDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var since time.Time
		var trouble error
		h := New("calico-test")
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

		h.SetUnready("etcd" + unread)
		h.Away, trouble = func() string { return "watch: refused" }, errors.New("watch: refused")
		want(time.Second, why, "etcd"+unread+": watch: refused")
	})
}

// TestOfHost: faults of etcd make the daemon unready, but on the page of a host they are remarks.
func TestOfHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ofHost := range []bool{false, true} {
			h := New("calico-test")
			h.OfHost = ofHost
			var trouble error
			since := time.Now()
			h.Interrupted = func() (time.Time, error) { return since, trouble }
			want := func(code int, page, unready string) {
				t.Helper()
				h.Turn()
				if got := readiness(h); got != fmt.Sprint(code, " ", page) || h.Unready() != unready {
					t.Errorf("of a host %t: %q, unready %q, want %d %q, %q", ofHost, got, h.Unready(), code, page, unready)
				}
			}
			h.SetUnready("")
			h.SetEtcd("status", "reports to etcd fail")
			trouble = errors.New("refused")
			time.Sleep(disconnectedAfter)
			away := "no change in etcd is heard of since " + since.UTC().Format(time.RFC3339) + ": refused"
			if all := "reports to etcd fail; " + away; ofHost {
				want(200, "ok\nreports to etcd fail\n"+away+"\n", all)
			} else {
				want(503, all+"\n", all)
			}
			h.Set("a", "a fails")
			h.SetEtcd("status", "")
			if all := "a fails; " + away; ofHost {
				want(503, "a fails\n"+away+"\n", all)
			} else {
				want(503, all+"\n", all)
			}
			h.Set("a", "")
			trouble = nil
			want(200, "ok\n", "")
		}
	})
}

// readiness returns the page after its status.
func readiness(h *Monitor) string {
	w := httptest.NewRecorder()
	h.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readiness", nil))
	return fmt.Sprint(w.Code, " ", w.Body)
}
