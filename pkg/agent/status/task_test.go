// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/store"
)

// TestTell: a host whose reports etcd refuses is unready; one whose etcd is away is not.
func TestTell(t *testing.T) {
	m := health.New("calico-test")
	m.OfHost = true
	m.SetUnready("")
	page := m.Handler(http.NotFoundHandler())
	tell := func(err error, want int, body string) {
		t.Helper()
		w := httptest.NewRecorder()
		task := task{log: slog.New(slog.DiscardHandler), err: err}
		task.tell(m, "status")
		page.ServeHTTP(w, httptest.NewRequest("GET", "/readiness", nil))
		if w.Code != want || w.Body.String() != body {
			t.Errorf("%v: %d %q, want %d %q", err, w.Code, w.Body, want, body)
		}
	}
	tell(fmt.Errorf("write: %w", store.ErrDenied), 503, "reports to etcd fail: write: etcd access refused: permission denied\n")
	tell(fmt.Errorf("write: %w", store.ErrUnavailable), 200, "ok\nreports to etcd fail: write: etcd is unavailable\n")
	tell(fmt.Errorf("write: %w", store.ErrReadOnly), 200, "ok\nreports to etcd fail: write: etcd is read-only\n")
	tell(nil, 200, "ok\n")
}
