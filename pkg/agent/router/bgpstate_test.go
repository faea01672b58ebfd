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

// everything returns a bgp.Desired with each field set.
func everything() bgp.Desired {
	a := netip.MustParseAddr
	n := plan.Neighbour{
		Address: a("192.0.2.2"), AS: 4200000000, Local: a("192.0.2.1"), Kind: plan.FromOwn, Host: "o", PasswordFile: "/etc/calico/o.password",
		Multihop: 2, Client: true, MaxPrefixes: 50000,
		Options: model.PeerOptions{AllowedLocalAS: 1, LocalAS: 65099, TTLSecurity: 1, KeepaliveTime: 3, HoldTime: 9, MaxRestartTime: 60,
			Source: model.PeerSource{Address: a("192.0.2.1")}, NextHop: model.NextHopSelf},
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
			ClusterID: a("10.0.0.1"), Communities: []model.Community{{CIDR: prefix("10.1.0.0/26"), Value: "64512:100"}}, Import: []netip.Prefix{prefix("10.1.0.0/16"), prefix("fd00:1::/64")},
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

// TestStateSample reads and writes the file of the first agent that had one. If bgp.Desired gets another field, a file without it must
// still mean the same, or the version must change.
func TestStateSample(t *testing.T) {
	want := everything()
	for _, v := range []any{want.Speaker, want.Neighbours[netip.MustParseAddr("192.0.2.2")], want.Advertisements[prefix("10.1.0.0/26")]} {
		for i := range reflect.TypeOf(v).NumField() {
			if name := reflect.TypeOf(v).Field(i).Name; reflect.ValueOf(v).Field(i).IsZero() && name != "Reflector" {
				t.Errorf("%T: the sample has no %s", v, name)
			}
		}
	}
	id := want.Speaker.RouterID
	sample := stateFile{filepath.Join("testdata", "bgp-state.v1"), "h", "boot/1"}
	f := newStateFile(filepath.Join(t.TempDir(), "var"), "h", "boot/1")
	if err := f.write(id, want); err != nil {
		t.Fatal(err)
	}
	for _, f := range []stateFile{sample, f} {
		gotID, got, err := f.read()
		if err != nil || gotID != id {
			t.Fatalf("%s: router id %s, %v", f.path, gotID, err)
		}
		equalDesired(t, f.path, want, got)
	}
	before, _ := os.ReadFile(sample.path)
	after, _ := os.ReadFile(f.path)
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("what is written (-sample +now):\n%s", diff)
	}
}

// TestStateOfAnother: only what this host said in this boot is said again. Its router id is kept longer.
func TestStateOfAnother(t *testing.T) {
	f := newStateFile(t.TempDir(), "h", "boot/1")
	d := everything()
	id := d.Speaker.RouterID
	refused := func(what string, f stateFile, want netip.Addr, reason string) {
		t.Helper()
		if got, _, err := f.read(); err == nil || !strings.Contains(err.Error(), reason) || got != want {
			t.Errorf("%s: router id %s, %v; want %s, %q", what, got, err, want, reason)
		}
	}
	refused("no file", f, netip.Addr{}, "no such file")
	if err := f.write(id, d); err != nil {
		t.Fatal(err)
	}
	refused("of another host, by a copied disk", stateFile{f.path, "o", f.boot}, netip.Addr{}, `of host "h"`)
	refused("of another boot", stateFile{f.path, "h", "boot/2"}, id, "before the host was booted")
	refused("where the boot isn't known", stateFile{f.path, "h", ""}, id, "which boot")
	if err := (stateFile{f.path, "h", ""}).write(id, d); err != nil {
		t.Error(err)
	}
	refused("written where the boot wasn't known", f, id, "before the host was booted")
	for text, reason := range map[string]string{
		"": "EOF", "{}": "no version", `{"Version": 2, "Wings": 3}`: "version 2", `{"Version": 1, "Wings": 3}`: "Wings", "\x00": "invalid",
		`{"Version": 1, "Host": "h", "RouterID": "fd00::1"}`: "router id",
	} {
		if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(text, f, netip.Addr{}, reason)
	}
}
