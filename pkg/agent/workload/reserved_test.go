// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
)

func nat(inner, outer string) model.NAT {
	return model.NAT{IntIP: netip.MustParseAddr(inner), ExtIP: netip.MustParseAddr(outer)}
}

// TestUntranslated: an endpoint loses the NAT of an address that is a host's, and keeps everything else; one that has such an address
// itself has no access.
func TestUntranslated(t *testing.T) {
	a, b := testKey("a"), testKey("b")
	specA, specB := testSpec("calia", "10.0.0.1", "fd00::1"), testSpec("calib", "10.0.0.2")
	specA.IPv4NAT = []model.NAT{nat("10.0.0.1", "192.0.2.1"), nat("10.0.0.1", "192.0.2.2")}
	specA.IPv6NAT = []model.NAT{nat("fd00::1", "2001:db8::1")}
	s := newClaims("h", []string{"cali"})
	s.fold(put(a, specA, 3), put(b, specB, 4))
	addr := netip.MustParseAddr
	type whose = map[netip.Addr]string
	const overlaps = ": delete the endpoint, and the pool that overlaps the hosts' addresses"
	for _, step := range []struct {
		name     string
		reserved whose
		touched  []string
		want     map[string]string
		reason   []string // of a
	}{
		{"others", whose{addr("192.0.2.9"): "this host, on eth0"}, nil, map[string]string{
			"a": "calia [10.0.0.1 192.0.2.1 192.0.2.2 2001:db8::1 fd00::1]", "b": "calib [10.0.0.2]",
		}, nil},
		{"outer addresses", whose{addr("192.0.2.1"): "this host, on eth0", addr("2001:db8::1"): "this host, on lo"}, []string{a.Path()}, map[string]string{
			"a": "calia [10.0.0.1 192.0.2.2 fd00::1]", "b": "calib [10.0.0.2]",
		}, []string{"ext_ip 192.0.2.1 of int_ip 10.0.0.1 is an address of this host, on eth0", "ext_ip 2001:db8::1 of int_ip fd00::1 is an address of this host, on lo"}},
		{"another outer one", whose{addr("192.0.2.2"): "host x"}, []string{a.Path()}, map[string]string{
			"a": "calia [10.0.0.1 192.0.2.1 2001:db8::1 fd00::1]", "b": "calib [10.0.0.2]",
		}, []string{"ext_ip 192.0.2.2 of int_ip 10.0.0.1 is an address of host x"}},
		{"the endpoint's own", whose{addr("10.0.0.2"): "this host, on eth0"}, []string{a.Path(), b.Path()}, map[string]string{
			"a": "calia [10.0.0.1 192.0.2.1 192.0.2.2 2001:db8::1 fd00::1]", "b": "address 10.0.0.2 is that of this host, on eth0" + overlaps,
		}, nil},
		{"the same, of another", whose{addr("10.0.0.2"): "host x"}, []string{b.Path()}, map[string]string{
			"a": "calia [10.0.0.1 192.0.2.1 192.0.2.2 2001:db8::1 fd00::1]", "b": "address 10.0.0.2 is that of host x" + overlaps,
		}, nil},
		{"none", nil, []string{b.Path()}, map[string]string{
			"a": "calia [10.0.0.1 192.0.2.1 192.0.2.2 2001:db8::1 fd00::1]", "b": "calib [10.0.0.2]",
		}, nil},
	} {
		touched := s.test(func() { s.setReserved(step.reserved) })
		if diff := cmp.Diff(step.touched, touched, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: touched (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.want, verdicts(s)); diff != "" {
			t.Errorf("%s: verdicts (-want +got):\n%s", step.name, diff)
		}
		reason := problems.Reason(s.untranslated(s.endpoints[a.Path()]))
		if (reason == "") != (len(step.reason) == 0) {
			t.Errorf("%s: %s", step.name, reason)
		}
		for _, want := range step.reason {
			if !strings.Contains(reason, want) {
				t.Errorf("%s: %q, want %q in it", step.name, reason, want)
			}
		}
	}
	if err := s.untranslated(s.endpoints[b.Path()]); err != nil {
		t.Errorf("b, which has no NAT: %v", err)
	}
}

// TestUntranslatedBeside: an endpoint loses only the NAT whose ext_ip an older endpoint has, or is another's own address, whichever comes
// first, until the other no longer has it.
func TestUntranslatedBeside(t *testing.T) {
	a, b, c := testKey("a"), testKey("b"), testKey("c")
	specA, specB, specC := testSpec("calia", "10.0.0.1"), testSpec("calib", "10.0.0.2"), testSpec("calic", "10.0.0.3")
	specA.IPv4NAT = []model.NAT{nat("10.0.0.1", "192.0.2.1")}
	specB.IPv4NAT = []model.NAT{nat("10.0.0.2", "192.0.2.1"), nat("10.0.0.2", "192.0.2.2"), nat("10.0.0.2", "10.0.0.1")}
	own := func(what, of string, whose model.WorkloadEndpointKey) string {
		return "ext_ip " + what + " of int_ip " + of + " is the own address of another endpoint, " + whose.Path()
	}
	specC.IPv4NAT = []model.NAT{nat("10.0.0.3", "192.0.2.2")}
	specB6, inactive := testSpec("calib", "fd00::b"), testSpec("calic", "fd00::c")
	specB6.IPv6NAT = []model.NAT{nat("fd00::b", "fd00::c")}
	inactive.State = model.StateInactive
	s := newClaims("h", []string{"cali"})
	for _, step := range []struct {
		name    string
		entry   model.Entry
		touched []string
		want    map[string]string
		reasons map[string]string
	}{
		{"the newer alone", put(b, specB, 4), []string{b.Path()}, map[string]string{"b": "calib [10.0.0.1 10.0.0.2 192.0.2.1 192.0.2.2]"}, nil},
		{"an older one beside it", put(a, specA, 3), []string{a.Path(), b.Path()}, map[string]string{"a": "calia [10.0.0.1 192.0.2.1]", "b": "calib [10.0.0.2 192.0.2.2]"}, map[string]string{
			"b": "without this NAT (want an ext_ip that no other endpoint of this host has): ext_ip 192.0.2.1 of int_ip 10.0.0.2 belongs to an older endpoint, " + a.Path() +
				"; " + own("10.0.0.1", "10.0.0.2", a),
		}},
		{"a third", put(c, specC, 5), []string{b.Path(), c.Path()}, map[string]string{
			"a": "calia [10.0.0.1 192.0.2.1]", "b": "calib [10.0.0.2 192.0.2.2]", "c": "calic [10.0.0.3]",
		}, map[string]string{"b": "ext_ip 192.0.2.1 ", "c": "ext_ip 192.0.2.2 of int_ip 10.0.0.3 belongs to an older endpoint, " + b.Path()}},
		{"one whose address is an older one's ext_ip", put(c, testSpec("calic", "192.0.2.2"), 5), []string{b.Path(), c.Path()}, map[string]string{
			"a": "calia [10.0.0.1 192.0.2.1]", "b": "calib [10.0.0.2]", "c": "calic [192.0.2.2]",
		}, map[string]string{"b": own("192.0.2.2", "10.0.0.2", c)}},
		{"the oldest is gone", gone(a), []string{a.Path(), b.Path()}, map[string]string{
			"b": "calib [10.0.0.1 10.0.0.2 192.0.2.1]", "c": "calic [192.0.2.2]",
		}, map[string]string{"b": own("192.0.2.2", "10.0.0.2", c)}},
		{"the newer has another address", put(c, testSpec("calic", "fd00::c"), 5), []string{b.Path(), c.Path()}, map[string]string{
			"b": "calib [10.0.0.1 10.0.0.2 192.0.2.1 192.0.2.2]", "c": "calic [fd00::c]",
		}, nil},
		{"another's ext_ip comes to be its address", put(b, specB6, 4), []string{b.Path(), c.Path()}, map[string]string{"b": "calib [fd00::b]", "c": "calic [fd00::c]"},
			map[string]string{"b": own("fd00::c", "fd00::b", c)}},
		{"it is inactive", put(c, inactive, 5), []string{b.Path(), c.Path()}, map[string]string{"b": "calib [fd00::b]", "c": "calic [fd00::c]"}, map[string]string{"b": own("fd00::c", "fd00::b", c)}},
		{"it is gone", gone(c), []string{b.Path(), c.Path()}, map[string]string{"b": "calib [fd00::b fd00::c]"}, nil},
	} {
		if diff := cmp.Diff(step.touched, s.fold(step.entry)); diff != "" {
			t.Errorf("%s: touched (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.want, verdicts(s)); diff != "" {
			t.Errorf("%s: verdicts (-want +got):\n%s", step.name, diff)
		}
		for _, ep := range s.endpoints {
			reason, want := problems.Reason(s.untranslated(ep)), step.reasons[ep.key.Workload]
			if (reason == "") != (want == "") || !strings.Contains(reason, want) {
				t.Errorf("%s: %s: %q, want %q", step.name, ep.key.Workload, reason, want)
			}
		}
	}
}
