// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// everything has each field of what BGP is told set.
func everything() bgp.Desired {
	a := netip.MustParseAddr
	n := plan.Neighbour{
		Address: a("192.0.2.2"), AS: 4200000000, Local: a("192.0.2.1"), Kind: plan.FromOwn, Host: "o", PasswordFile: "/etc/calico/o.password",
		Multihop: 2, Client: true, MaxPrefixes: 50000,
		Import: []model.RouteFilter{{CIDR: prefix("10.9.0.0/16"), Action: "accept"}},
		Export: []model.RouteFilter{{CIDR: prefix("10.1.0.0/26"), Action: "reject"}},
	}
	least := plan.Neighbour{Address: a("2001:db8::2"), AS: 64512, Kind: plan.FromMesh}
	adv, adv6 := plan.Advertisement{Prefix: prefix("10.1.0.0/26"), NextHop: a("192.0.2.1"), NoMesh: true},
		plan.Advertisement{Prefix: prefix("fd00:1::/122"), NextHop: a("2001:db8::1")}
	return bgp.Desired{
		Speaker: plan.Speaker{
			AS: 64512, RouterID: a("192.0.2.1"), Listen: []netip.Addr{a("192.0.2.1"), a("2001:db8::1")}, ListenPort: 179,
			HoldTime: 90 * time.Second, KeepaliveTime: 30 * time.Second, RestartTime: 2 * time.Minute,
			ClusterID: a("10.0.0.1"), Import: []netip.Prefix{prefix("10.1.0.0/16"), prefix("fd00:1::/64")},
		},
		Neighbours:     map[netip.Addr]plan.Neighbour{n.Address: n, least.Address: least},
		Advertisements: map[netip.Prefix]plan.Advertisement{adv.Prefix: adv, adv6.Prefix: adv6},
	}
}

func equalDesired(t *testing.T, what string, want, got bgp.Desired) {
	t.Helper()
	comparers := cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
	if diff := cmp.Diff(want, got, comparers); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestSpokenSample reads and writes the file that the first agent which had one wrote. Where what BGP is told gets another
// field, a file without it must still mean the same, or the version be another.
func TestSpokenSample(t *testing.T) {
	want := everything()
	for _, v := range []any{want.Speaker, want.Neighbours[netip.MustParseAddr("192.0.2.2")], want.Advertisements[prefix("10.1.0.0/26")]} {
		for i := range reflect.TypeOf(v).NumField() {
			if name := reflect.TypeOf(v).Field(i).Name; reflect.ValueOf(v).Field(i).IsZero() && name != "Reflector" {
				t.Errorf("%T: the sample has no %s", v, name)
			}
		}
	}
	sample := spokenFile{filepath.Join("testdata", "bgp-spoken.v1"), "h", "boot/1"}
	got, err := sample.read(want.Speaker.RouterID)
	if err != nil {
		t.Fatal(err)
	}
	equalDesired(t, "the sample", want, got)
	f := newSpokenFile(filepath.Join(t.TempDir(), "var"), "h", "boot/1")
	if err := f.write(want); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(sample.path)
	after, _ := os.ReadFile(f.path)
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("what is written (-sample +now):\n%s", diff)
	}

	// Without it, a reflector is a neighbour that nothing is reflected to.
	for a, n := range want.Neighbours {
		n.Client, n.Reflector = false, n.Client
		want.Neighbours[a] = n
	}
	if err := f.write(want); err != nil {
		t.Fatal(err)
	}
	if got, err = f.read(want.Speaker.RouterID); err != nil {
		t.Fatal(err)
	}
	equalDesired(t, "with a reflector", want, got)
}

// TestSpokenOfAnother has only what this host said in this boot be said again.
func TestSpokenOfAnother(t *testing.T) {
	f := newSpokenFile(t.TempDir(), "h", "boot/1")
	d := everything()
	id := d.Speaker.RouterID
	refused := func(what string, f spokenFile, id netip.Addr, reason string) {
		t.Helper()
		if _, err := f.read(id); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want %q", what, err, reason)
		}
	}
	refused("no file", f, id, "no such file")
	if err := f.write(d); err != nil {
		t.Fatal(err)
	}
	refused("of another host, by a copied disk", spokenFile{f.path, "o", f.place}, id, `of host "h"`)
	refused("of another boot", spokenFile{f.path, "h", "boot/2"}, id, "before the host was booted")
	refused("where the boot isn't known", spokenFile{f.path, "h", ""}, id, "which boot")
	refused("of another router id", f, netip.MustParseAddr("192.0.2.9"), "router id 192.0.2.1")
	if err := (spokenFile{f.path, "h", ""}).write(bgp.Desired{}); err != nil {
		t.Error(err)
	}
	if _, err := f.read(id); err != nil {
		t.Errorf("where the boot isn't known the file is written: %v", err)
	}
	for text, reason := range map[string]string{
		"": "EOF", "{}": "no version", `{"Version": 2, "Wings": 3}`: "version 2", `{"Version": 1, "Wings": 3}`: "Wings", "\x00": "invalid",
	} {
		if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(text, f, id, reason)
	}
}
