// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

func testKey(name string) model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: "h", Orchestrator: "k8s", Workload: name, Endpoint: "eth0"}
}

func testSpec(iface string, addrs ...string) model.WorkloadEndpoint {
	spec := model.WorkloadEndpoint{State: model.StateActive, Name: iface, MAC: model.MAC{2, 0, 0, 0, 0, 1}}
	for _, a := range addrs {
		p := hostNet(netip.MustParseAddr(a))
		if p.Addr().Is4() {
			spec.IPv4Nets = append(spec.IPv4Nets, p)
		} else {
			spec.IPv6Nets = append(spec.IPv6Nets, p)
		}
	}
	return spec
}

func put(key model.Key, value any, revision int64) model.Entry {
	e := model.Entry{Path: key.Path(), Key: key, Revision: revision, Created: revision, Value: value}
	if err, invalid := value.(error); invalid {
		e.Value, e.Err = nil, err
	}
	return e
}

func gone(key model.Key) model.Entry { return model.Entry{Path: key.Path(), Key: key} }

func paths(e effect) []string { return slices.Sorted(maps.Keys(e.endpoints)) }

// verdicts is what follows for each endpoint, as text.
func verdicts(s *state) map[string]string {
	out := map[string]string{}
	for _, ep := range s.endpoints {
		want, err := s.verdict(ep)
		if err != nil {
			out[ep.key.Workload] = err.Error()
			continue
		}
		out[ep.key.Workload] = fmt.Sprintf("%s %v", want.Interface, want.Addrs)
	}
	return out
}

// TestSetHosts: no endpoint has the address of another host.
func TestSetHosts(t *testing.T) {
	a, b := testKey("a"), testKey("b")
	s := newState("h", []string{"cali"})
	s.fold(model.Update{Revision: 5, Resync: true, Entries: []model.Entry{
		put(a, testSpec("calia", "10.0.0.1"), 3), put(b, testSpec("calib", "10.0.0.2", "fd00::2"), 4),
	}})
	const refused = " is that of host x: delete the endpoint, and the pool that overlaps the hosts' addresses"
	addr := netip.MustParseAddr
	for _, step := range []struct {
		hosts   map[netip.Addr]string
		touched []string
		want    map[string]string
	}{
		{map[netip.Addr]string{addr("10.0.0.9"): "x"}, nil, map[string]string{"a": "calia [10.0.0.1]", "b": "calib [10.0.0.2 fd00::2]"}},
		{map[netip.Addr]string{addr("10.0.0.1"): "y", addr("fd00::2"): "x"}, []string{a.Path(), b.Path()}, map[string]string{
			"a": "address 10.0.0.1 is that of host y: delete the endpoint, and the pool that overlaps the hosts' addresses", "b": "address fd00::2" + refused,
		}},
		{map[netip.Addr]string{addr("10.0.0.1"): "x", addr("fd00::2"): "x"}, []string{a.Path()}, map[string]string{
			"a": "address 10.0.0.1" + refused, "b": "address fd00::2" + refused,
		}},
		{nil, []string{a.Path(), b.Path()}, map[string]string{"a": "calia [10.0.0.1]", "b": "calib [10.0.0.2 fd00::2]"}},
	} {
		e := s.setHosts(step.hosts)
		if diff := cmp.Diff(step.touched, paths(e), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%v: touched (-want +got):\n%s", step.hosts, diff)
		}
		if diff := cmp.Diff(step.want, verdicts(s)); diff != "" {
			t.Errorf("%v: verdicts (-want +got):\n%s", step.hosts, diff)
		}
	}
}

func TestFold(t *testing.T) {
	const held = " belongs to an older endpoint, "
	a, b, c := testKey("a"), testKey("b"), testKey("c")
	s := newState("h", []string{"cali"})
	if got := s.waitsFor(); got != "etcd has not been read yet" {
		t.Errorf("waits for %q", got)
	}
	steps := []struct {
		name     string
		update   model.Update
		touched  []string
		waitsFor string
		want     map[string]string
	}{
		{"first snapshot", model.Update{Revision: 5, Resync: true, Entries: []model.Entry{
			put(a, testSpec("calia", "10.0.0.1"), 3),
			put(b, testSpec("calib", "10.0.0.2", "fd00::2"), 4),
		}}, []string{a.Path(), b.Path()}, "/calico/v1/Ready is not true in etcd",
			map[string]string{"a": "calia [10.0.0.1]", "b": "calib [10.0.0.2 fd00::2]"}},
		{"ready", model.Update{Revision: 6, Entries: []model.Entry{put(model.ReadyKey{}, model.Ready(true), 6)}}, nil, "",
			map[string]string{"a": "calia [10.0.0.1]", "b": "calib [10.0.0.2 fd00::2]"}},
		{"an address twice", model.Update{Revision: 7, Entries: []model.Entry{put(c, testSpec("calic", "10.0.0.3", "10.0.0.1"), 7)}},
			[]string{a.Path(), c.Path()}, "",
			map[string]string{"a": "calia [10.0.0.1]", "b": "calib [10.0.0.2 fd00::2]", "c": "address 10.0.0.1" + held + a.Path() + ": delete the one that is wrong"}},
		{"the older goes", model.Update{Revision: 8, Entries: []model.Entry{gone(a)}}, []string{a.Path(), c.Path()}, "",
			map[string]string{"b": "calib [10.0.0.2 fd00::2]", "c": "calic [10.0.0.1 10.0.0.3]"}},
		{"an interface twice", model.Update{Revision: 9, Entries: []model.Entry{put(a, testSpec("calib", "10.0.0.9"), 9)}},
			[]string{a.Path(), b.Path()}, "",
			map[string]string{"a": "interface calib" + held + b.Path() + ": delete the one that is wrong", "b": "calib [10.0.0.2 fd00::2]", "c": "calic [10.0.0.1 10.0.0.3]"}},
		{"the older no longer parses", model.Update{Revision: 10, Entries: []model.Entry{put(b, errors.New("bad"), 10)}},
			[]string{a.Path(), b.Path()}, "",
			map[string]string{"a": "calib [10.0.0.9]", "b": "bad", "c": "calic [10.0.0.1 10.0.0.3]"}},
		{"a snapshot without c and Ready, at an older revision", model.Update{Revision: 4, Resync: true, Entries: []model.Entry{
			put(a, testSpec("calia", "10.0.0.1"), 3),
			put(b, testSpec("calib", "10.0.0.2"), 4),
		}}, []string{a.Path(), b.Path(), c.Path()}, "/calico/v1/Ready is not true in etcd",
			map[string]string{"a": "calia [10.0.0.1]", "b": "calib [10.0.0.2]"}},
	}
	for _, step := range steps {
		e := s.fold(step.update)
		if diff := cmp.Diff(step.touched, paths(e), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: touched (-want +got):\n%s", step.name, diff)
		}
		if got := s.waitsFor(); got != step.waitsFor {
			t.Errorf("%s: waits for %q, want %q", step.name, got, step.waitsFor)
		}
		if diff := cmp.Diff(step.want, verdicts(s)); diff != "" {
			t.Errorf("%s: verdicts (-want +got):\n%s", step.name, diff)
		}
		if s.revision != step.update.Revision {
			t.Errorf("%s: revision %d", step.name, s.revision)
		}
	}
	if len(s.claims) != 4 {
		t.Errorf("claims are left: %v", s.claims)
	}
}

// TestFoldOrder folds one content of etcd along many ways: what follows is the
// same, and every endpoint whose verdict changed was said to be touched.
func TestFoldOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		s := newState("h", []string{"cali"})
		entries := map[string]model.Entry{}
		before := map[string]string{}
		var history []string
		for revision := int64(1); revision < 40; revision++ {
			key := testKey(fmt.Sprint("w", rng.IntN(6)))
			entry := gone(key)
			switch rng.IntN(5) {
			case 0:
				delete(entries, key.Path())
			case 1:
				entry = put(key, errors.New("bad"), revision)
			default:
				spec := testSpec(fmt.Sprint("cali", rng.IntN(4)), fmt.Sprint("10.0.0.", rng.IntN(4)+1), fmt.Sprint("10.0.0.", rng.IntN(4)+1))
				if rng.IntN(2) == 0 {
					spec.IPv4NAT = []model.NAT{{IntIP: spec.IPv4Nets[0].Addr(), ExtIP: netip.MustParseAddr(fmt.Sprint("10.0.0.", rng.IntN(4)+4))}}
				}
				entry = put(key, spec, revision)
			}
			if entry.Exists() {
				if old, ok := entries[key.Path()]; ok {
					entry.Created = old.Created
				}
				entries[key.Path()] = entry
			}
			history = append(history, fmt.Sprint(entry))
			e := s.fold(model.Update{Revision: revision, Entries: []model.Entry{entry}})
			after := verdicts(s)
			for name := range entries {
				short := strings.TrimSuffix(strings.TrimPrefix(name, "/calico/v1/host/h/workload/k8s/"), "/endpoint/eth0")
				if _, touched := e.endpoints[name]; !touched && before[short] != after[short] {
					t.Fatalf("round %d: %s went from %q to %q untouched by %s", round, short, before[short], after[short], history[len(history)-1])
				}
			}
			before = after
		}
		fresh := newState("h", []string{"cali"})
		shuffled := slices.Collect(maps.Values(entries))
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		fresh.fold(model.Update{Revision: 40, Resync: true, Entries: shuffled})
		if diff := cmp.Diff(verdicts(fresh), verdicts(s)); diff != "" {
			t.Fatalf("round %d: (-from a snapshot +by history %v):\n%s", round, history, diff)
		}
	}
}

func TestPlan(t *testing.T) {
	with := func(change func(*model.WorkloadEndpoint)) model.WorkloadEndpoint {
		spec := testSpec("calia", "10.0.0.1")
		change(&spec)
		return spec
	}
	tests := []struct {
		name string
		spec model.WorkloadEndpoint
		want hostpath.Endpoint
		err  string
	}{
		{"plain", testSpec("calia", "10.0.0.2", "10.0.0.1", "fd00::1"),
			hostpath.Endpoint{Interface: "calia", MAC: model.MAC{2, 0, 0, 0, 0, 1}, Active: true,
				Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")}}, ""},
		{"NAT addresses, one twice", with(func(s *model.WorkloadEndpoint) {
			nat := model.NAT{IntIP: netip.MustParseAddr("10.0.0.1"), ExtIP: netip.MustParseAddr("192.0.2.1")}
			s.IPv4NAT = []model.NAT{nat, nat}
		}), hostpath.Endpoint{Interface: "calia", MAC: model.MAC{2, 0, 0, 0, 0, 1}, Active: true,
			Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.1")}}, ""},
		{"inactive", with(func(s *model.WorkloadEndpoint) { s.State = model.StateInactive }),
			hostpath.Endpoint{Interface: "calia", MAC: model.MAC{2, 0, 0, 0, 0, 1}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, ""},
		{"no workload's name", testSpec("eth0"), hostpath.Endpoint{}, "begins with cali or tap here"},
		{"no name", testSpec(""), hostpath.Endpoint{}, "begins with cali"},
	}
	for _, test := range tests {
		got, err := endpointOf(test.spec, []string{"cali", "tap"})
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v, want %q", test.name, err, test.err)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", test.name, err, diff)
		}
	}
}

func TestFollow(t *testing.T) {
	a, b := testKey("a"), testKey("b")
	s, d := newState("h", []string{"cali"}), newDesired()
	revision := int64(1)
	show := func(w work) string {
		var parts []string
		for _, e := range w.changed {
			parts = append(parts, fmt.Sprintf("+%s %v", e.Interface, e.Addrs))
		}
		for _, e := range w.removed {
			parts = append(parts, fmt.Sprintf("-%s %v", e.Interface, e.Addrs))
		}
		slices.SortFunc(w.lost, netip.Addr.Compare)
		return strings.Join(append(parts, fmt.Sprint("lost ", w.lost)), " ")
	}
	inactive := testSpec("cali1", "10.0.0.1", "10.0.0.2")
	inactive.State = model.StateInactive
	contained := func(id string) model.WorkloadEndpoint {
		spec := testSpec("cali1", "10.0.0.1")
		spec.ContainerID = id
		return spec
	}
	steps := []struct {
		name    string
		entries []model.Entry // at revision 0: deleted; else the step's is put in
		want    string
	}{
		{"new", []model.Entry{put(a, testSpec("cali1", "10.0.0.1"), 1)}, "+cali1 [10.0.0.1] lost []"},
		{"same again is read again", []model.Entry{put(a, testSpec("cali1", "10.0.0.1"), 1)}, "+cali1 [10.0.0.1] lost []"},
		{"another address more", []model.Entry{put(a, testSpec("cali1", "10.0.0.1", "10.0.0.2"), 1)}, "+cali1 [10.0.0.1 10.0.0.2] lost []"},
		{"one less", []model.Entry{put(a, testSpec("cali1", "10.0.0.2"), 1)}, "+cali1 [10.0.0.2] lost [10.0.0.1]"},
		{"another interface", []model.Entry{put(a, testSpec("cali2", "10.0.0.2"), 1)}, "+cali2 [10.0.0.2] -cali1 [10.0.0.2] lost [10.0.0.2]"},
		{"interface and address go to another endpoint", []model.Entry{gone(a), put(b, testSpec("cali2", "10.0.0.2"), 1)}, "+cali2 [10.0.0.2] lost [10.0.0.2]"},
		{"two exchange their interfaces", []model.Entry{put(a, testSpec("cali1", "10.0.0.1"), 1)}, "+cali1 [10.0.0.1] lost []"},
		{"… now", []model.Entry{put(a, testSpec("cali2", "10.0.0.1"), 1), put(b, testSpec("cali1", "10.0.0.2"), 1)},
			"+cali1 [10.0.0.2] +cali2 [10.0.0.1] lost [10.0.0.1 10.0.0.2]"},
		{"inactive", []model.Entry{gone(a), put(b, inactive, 1)}, "+cali1 [10.0.0.1 10.0.0.2] -cali2 [10.0.0.1] lost [10.0.0.1 10.0.0.2]"},
		{"invalid", []model.Entry{put(b, errors.New("bad"), 1)}, "-cali1 [10.0.0.1 10.0.0.2] lost []"},
		{"gone", []model.Entry{gone(b)}, "lost []"},
		{"new, of a container", []model.Entry{put(a, contained("one"), 1)}, "+cali1 [10.0.0.1] lost []"},
		{"another container has all of it", []model.Entry{put(a, contained("two"), 1)}, "+cali1 [10.0.0.1] lost [10.0.0.1]"},
		{"whose isn't said", []model.Entry{put(a, contained(""), 1)}, "+cali1 [10.0.0.1] lost []"},
		{"gone again", []model.Entry{gone(a)}, "-cali1 [10.0.0.1] lost [10.0.0.1]"},
	}
	for _, step := range steps {
		revision++
		for i := range step.entries {
			if step.entries[i].Revision != 0 {
				step.entries[i].Revision = revision
			}
		}
		e := s.fold(model.Update{Revision: revision, Entries: step.entries})
		if got := show(d.follow(s, e.endpoints, time.Time{})); got != step.want {
			t.Errorf("%s: %s\nwant %s", step.name, got, step.want)
		}
		for name, target := range d.interfaces {
			if target.want.Interface != name || d.targets[target.path] != target {
				t.Errorf("%s: %s leads to %+v", step.name, name, target)
			}
		}
	}
	if len(d.targets)+len(d.interfaces) != 0 {
		t.Errorf("left: %v %v", d.targets, d.interfaces)
	}
}

func TestAnswer(t *testing.T) {
	a, bad := testKey("a"), testKey("bad")
	s, d := newState("h", []string{"cali"}), newDesired()
	ask := func(key model.WorkloadEndpointKey, revision int64) string {
		done, err := d.answer(s, gate.Request{Endpoint: key, Revision: revision})
		var rejected *gate.RejectedError
		switch {
		case err != nil && (!done || !errors.As(err, &rejected) || rejected.Retry):
			return fmt.Sprint("wrong: ", done, err)
		case err != nil:
			return rejected.Reason
		case done:
			return "programmed"
		}
		return "waits"
	}
	expect := func(name string, want, got string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	expect("nothing known", "waits", ask(a, 5))
	e := s.fold(model.Update{Revision: 5, Resync: true, Entries: []model.Entry{
		put(a, testSpec("cali1", "10.0.0.1"), 5), put(bad, testSpec("eth0", "10.0.0.2"), 4)}})
	expect("not followed", "waits", ask(a, 5))
	d.follow(s, e.endpoints, time.Time{})
	expect("not read back", "waits", ask(a, 5))
	expect("never was", "endpoint "+testKey("no").Path()+" has been deleted since", ask(testKey("no"), 5))
	expect("to come", "waits", ask(testKey("no"), 6))
	s.deaf = true
	expect("etcd may come back restored", "waits", ask(testKey("no"), 4))
	s.deaf = false
	d.read([]hostpath.Status{{Interface: "cali1", Err: &link.DownError{Interface: "cali1", Why: "is not there"}}})
	expect("no interface", "waits", ask(a, 5))
	d.read([]hostpath.Status{{Interface: "cali1"}})
	expect("read back", "programmed", ask(a, 5))
	expect("of an older revision", "programmed", ask(a, 4))
	expect("of a newer one", "waits", ask(a, 6))
	expect("refused", "endpoint "+bad.Path()+` keeps no access: interface "eth0": the name of a workload's interface begins with cali here (InterfacePrefix)`, ask(bad, 4))
	e = s.fold(model.Update{Revision: 7, Entries: []model.Entry{put(a, testSpec("cali1", "10.0.0.1"), 7)}})
	expect("changed and not followed", "waits", ask(a, 5))
	d.follow(s, e.endpoints, time.Time{})
	expect("changed and not read back, though the same", "waits", ask(a, 7))
	d.read([]hostpath.Status{{Interface: "cali1"}})
	expect("changed", "programmed", ask(a, 7))
	d.read([]hostpath.Status{{Interface: "cali1", Err: errors.New("refused")}})
	expect("drifted", "waits", ask(a, 7))
	s.fold(model.Update{Revision: 8, Entries: []model.Entry{gone(a)}})
	expect("deleted", "endpoint "+a.Path()+" has been deleted since", ask(a, 7))
	other := a
	other.Host = "other"
	expect("of another host", "this is the agent of host h, not of other: use one node name in the network configuration and for the agent", ask(other, 1))
}
