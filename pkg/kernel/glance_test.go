// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"testing"
	"time"
)

func mustBeUnchanged(tb testing.TB, h *HostPath, want bool, after string) {
	tb.Helper()
	switch got, err := h.Unchanged(context.Background()); {
	case err != nil:
		tb.Errorf("after %s: %v", after, err)
	case got != want:
		tb.Errorf("after %s: unchanged is %t", after, got)
	}
}

func TestUnchanged(t *testing.T) {
	inHost(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		mustBeUnchanged(t, h, false, "nothing was applied")
		all := []Endpoint{a.endpoint, b.endpoint}
		mustApply(t, h, all...)
		mustBeUnchanged(t, h, false, "an Apply that wrote")
		mustApply(t, h, all...)
		mustBeUnchanged(t, h, true, "an Apply that found nothing to do")
		for _, broken := range append(breakages(),
			breakage{"other end down", func(tb testing.TB) {
				err := a.ns.enter(func() error { ip(tb, "link", "set", "eth0", "down"); return nil })
				if err != nil {
					tb.Fatal(err)
				}
				// The host's end is told a moment later (linkwatch).
				for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
					same, err := h.Unchanged(context.Background())
					if err != nil || !same || time.Now().After(deadline) {
						return
					}
				}
			}},
			breakage{"link deleted", func(tb testing.TB) { ip(tb, "link", "del", "cali2") }},
		) {
			broken.breakIt(t)
			mustBeUnchanged(t, h, false, broken.name)
			for range 2 {
				if _, err := h.Apply(context.Background(), all); err != nil {
					t.Fatal(err)
				}
			}
			mustBeUnchanged(t, h, true, broken.name+" and repair")
		}
	})
}

func TestUnchangedByOthers(t *testing.T) {
	inHost(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		for range 2 {
			mustApply(t, h, a.endpoint)
		}
		ip(t, "route", "add", "10.9.9.9", "dev", "cali1")
		ip(t, "neigh", "add", "10.9.9.9", "dev", "cali1", "lladdr", "02:00:00:00:00:09", "nud", "stale")
		mustBeUnchanged(t, h, true, "a route and a neighbour that are not ours")
		some := func(e Endpoint) {
			if _, err := h.ApplySome(context.Background(), []Endpoint{e}, nil); err != nil {
				t.Fatal(err)
			}
		}
		some(a.endpoint)
		mustBeUnchanged(t, h, true, "an ApplySome that found nothing to do")
		some(b.endpoint)
		mustBeUnchanged(t, h, false, "an ApplySome that wrote")
	})
}
