// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/pods"
)

// wired is a pod with a veth to the host.
type wired struct {
	ns       *pod.Namespace
	endpoint Endpoint
}

// wire creates pod n with these addresses, or else with one of each family.
func wire(tb testing.TB, n int, addrs ...netip.Addr) wired {
	tb.Helper()
	p := pods.Wire(tb, n, addrs...)
	return wired{p.Namespace, Endpoint{Interface: p.Interface, MAC: p.MAC, Addrs: p.Addrs, Active: true}}
}

// newHostPath returns a Path in the current namespace, with its log in the test's.
func newHostPath(tb testing.TB) *Path {
	tb.Helper()
	h, err := New(Config{Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(h.Close)
	return h
}

// errorsOf returns the part of a report that a test compares: interface: error text.
func errorsOf(r Report) map[string]string {
	m := make(map[string]string)
	for _, s := range r.Endpoints {
		m[s.Interface] = ""
		if s.Err != nil {
			m[s.Interface] = s.Err.Error()
		}
	}
	return m
}

// mustApply applies and expects everything to be programmed.
func mustApply(tb testing.TB, h *Path, desired ...Endpoint) Report {
	tb.Helper()
	r, err := h.Apply(context.Background(), desired)
	if err != nil {
		tb.Fatal(err)
	}
	mustBeProgrammed(tb, r)
	return r
}

func mustBeProgrammed(tb testing.TB, r Report) {
	tb.Helper()
	for _, s := range r.Endpoints {
		if s.Err != nil {
			tb.Errorf("%s: %v", s.Interface, s.Err)
		}
	}
	for _, p := range r.Problems {
		tb.Error(p)
	}
}

func mac(s string) model.MAC {
	m, err := model.ParseMAC(s)
	if err != nil {
		panic(err) // a test's own literal
	}
	return m
}
