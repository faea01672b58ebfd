// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/retry"
)

// TestPause: some watches end at once, and one has lasted.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watcher{backoff: retry.Backoff{First: firstPause, Longest: longestPause}}
		began := time.Now()
		for range 20 {
			w.opened = time.Now()
			w.pause(t.Context())
		}
		if took := time.Since(began); took < 10*longestPause/2 {
			t.Errorf("20 watches that end at once begin within %v", took)
		}
		w.opened = time.Now()
		time.Sleep(2 * steady)
		began = time.Now()
		w.pause(t.Context())
		if took := time.Since(began); took > 2*firstPause {
			t.Errorf("a watch that has lasted begins again after %v", took)
		}
	})
}
