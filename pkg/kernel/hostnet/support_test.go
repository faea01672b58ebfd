// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"log/slog"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/plan"
)

func newHostPath(tb testing.TB) *hostpath.Path {
	tb.Helper()
	h, err := hostpath.New(hostpath.Config{Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(h.Close)
	return h
}

func newFabric(tb testing.TB) *fabric.Fabric {
	tb.Helper()
	f, err := fabric.New(fabric.Config{Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.Close)
	return f
}

// mustHold applies and expects the kernel to hold it all.
func mustHold(tb testing.TB, f *fabric.Fabric, st plan.State) fabric.Report {
	tb.Helper()
	r, err := f.Apply(context.Background(), st)
	if err != nil {
		tb.Fatal(err)
	}
	for _, p := range r.Problems {
		tb.Errorf("%s: %v", p.Subject, p.Err)
	}
	return r
}
