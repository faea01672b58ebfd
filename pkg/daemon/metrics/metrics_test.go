// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestPaced: a thousand requests at once cause a few gatherings, all are answered, and a second later the answer is a new one.
func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gathered := 0
		r := prometheus.NewRegistry()
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "gathered_total", Help: "Of the test."}, func() float64 { gathered++; return float64(gathered) }))
		h := Handler(r)
		ask := func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
			if w.Code != http.StatusOK || w.Body.Len() == 0 {
				t.Fatalf("/metrics: %d %q", w.Code, w.Body)
			}
		}
		for range 1000 {
			ask()
		}
		if gathered != gathersAtOnce {
			t.Errorf("gathered %d times, not %d", gathered, gathersAtOnce)
		}
		time.Sleep(time.Second)
		for range 1000 {
			ask()
		}
		if want := gathersAtOnce + gathersPerSecond; gathered != want {
			t.Errorf("a second later gathered %d times, not %d", gathered, want)
		}
	})
}
