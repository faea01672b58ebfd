// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/test/netns"
)

// TestLost: the report lists the addresses whose connections are over, and none whose endpoint was connected by a former run and still is.
func TestLost(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		expect := func(name string, r Report, want ...netip.Addr) {
			t.Helper()
			slices.SortFunc(r.Lost, netip.Addr.Compare)
			slices.SortFunc(want, netip.Addr.Compare)
			if diff := cmp.Diff(want, r.Lost, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		expect("one that came while nobody looked", mustApply(t, h, a.endpoint), a.endpoint.Addrs...)
		expect("one that comes", mustApply(t, h, a.endpoint, b.endpoint))
		expect("nothing is new", mustApply(t, newHostPath(t), a.endpoint, b.endpoint))
		netns.IP(t, "link", "del", "cali2")
		b = wire(t, 2)
		expect("one that was made again while nobody looked", mustApply(t, newHostPath(t), a.endpoint, b.endpoint), b.endpoint.Addrs...)
		netns.IP(t, "route", "del", "10.65.0.1")
		netns.IP(t, "route", "add", "10.65.0.1", "dev", "cali1", "proto", "80", "scope", "global")
		netns.IP(t, "-6", "route", "del", "fd00::1")
		netns.IP(t, "-6", "route", "add", "fd00::1", "dev", "cali1", "proto", "80", "metric", "77")
		expect("one whose routes are of another kind", mustApply(t, newHostPath(t), a.endpoint, b.endpoint))
		expect("one that went, and left its link", mustApply(t, newHostPath(t), b.endpoint), a.endpoint.Addrs...)
	})
}

// TestRenamed renames an endpoint's link. No policy is enforced there, and the kernel keeps the routes.
func TestRenamed(t *testing.T) {
	for what, apply := range map[string]func(*Path, wired, wired) (Report, error){
		"some": func(h *Path, a, _ wired) (Report, error) {
			return h.ApplySome(t.Context(), []Endpoint{a.endpoint}, nil)
		},
		"whole": func(h *Path, a, b wired) (Report, error) {
			return h.Apply(t.Context(), []Endpoint{a.endpoint, b.endpoint})
		},
	} {
		netns.Host(t, func() {
			h := newHostPath(t)
			a, b := wire(t, 1), wire(t, 2)
			mustApply(t, h, a.endpoint, b.endpoint)
			if out, err := exec.CommandContext(t.Context(), "ip", "link", "set", "cali1", "name", "other1").CombinedOutput(); strings.Contains(string(out), "busy") {
				t.Logf("a link that is up keeps its name before Linux 6.2: %s", out)
				return
			} else if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			report, err := apply(h, a, b)
			if err != nil {
				t.Fatal(err)
			}
			if got := errorsOf(report)["cali1"]; got != "interface cali1 is not there" {
				t.Errorf("%s: reported %q", what, got)
			}
			if diff := cmp.Diff(a.endpoint.Addrs, report.Lost, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%s: lost (-want +got):\n%s", what, diff)
			}
			for _, family := range []string{"-4", "-6"} {
				for _, route := range netns.IP(t, family, "route", "show", "proto", "80") {
					if !strings.Contains(route, "cali2") {
						t.Errorf("%s: there is %s", what, route)
					}
				}
			}
			netns.IP(t, "link", "set", "other1", "name", "cali1")
			report, err = apply(h, a, b)
			if err != nil {
				t.Fatal(err)
			}
			mustBeProgrammed(t, report)
		})
	}
}
