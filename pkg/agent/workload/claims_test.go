// SPDX-License-Identifier: Apache-2.0

package workload

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

	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
)

func testKey(name string) model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: "h", Orchestrator: "k8s", Workload: name, Endpoint: "eth0"}
}

func testSpec(iface string, addrs ...string) model.WorkloadEndpoint {
	spec := model.WorkloadEndpoint{State: model.StateActive, Name: iface, MAC: model.MAC{2, 0, 0, 0, 0, 1}}
	for _, a := range addrs {
		p := netip.PrefixFrom(netip.MustParseAddr(a), netip.MustParseAddr(a).BitLen())
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

// test runs change, and returns the endpoints whose verdict may differ.
func (s *claims) test(change func()) []string {
	clear(s.dirty)
	change()
	return slices.Sorted(maps.Keys(s.dirty))
}

func (s *claims) fold(entries ...model.Entry) []string {
	return s.test(func() {
		for _, e := range entries {
			s.update(e)
		}
	})
}

// verdicts returns each endpoint's verdict as text.
func verdicts(s *claims) map[string]string {
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

func TestClaims(t *testing.T) {
	const held = " belongs to an older endpoint, "
	a, b, c := testKey("a"), testKey("b"), testKey("c")
	s := newClaims("h", []string{"cali"})
	for _, step := range []struct {
		name    string
		entries []model.Entry
		touched []string
		want    map[string]string
	}{
		{"two", []model.Entry{put(a, testSpec("calia", "10.0.0.1"), 3), put(b, testSpec("calib", "10.0.0.2", "fd00::2"), 4)}, []string{a.Path(), b.Path()},
			map[string]string{"a": "calia [10.0.0.1]", "b": "calib [10.0.0.2 fd00::2]"}},
		{"another host's", []model.Entry{put(model.WorkloadEndpointKey{Host: "other", Orchestrator: "o", Workload: "w", Endpoint: "e"}, testSpec("calia", "10.0.0.1"), 2)}, nil,
			map[string]string{"a": "calia [10.0.0.1]", "b": "calib [10.0.0.2 fd00::2]"}},
		{"an address twice", []model.Entry{put(c, testSpec("calic", "10.0.0.3", "10.0.0.1"), 7)}, []string{a.Path(), c.Path()},
			map[string]string{"a": "calia [10.0.0.1]", "b": "calib [10.0.0.2 fd00::2]", "c": "address 10.0.0.1" + held + a.Path() + ": delete the one that is wrong"}},
		{"the older goes", []model.Entry{gone(a)}, []string{a.Path(), c.Path()},
			map[string]string{"b": "calib [10.0.0.2 fd00::2]", "c": "calic [10.0.0.1 10.0.0.3]"}},
		{"an interface twice", []model.Entry{put(a, testSpec("calib", "10.0.0.9"), 9)}, []string{a.Path(), b.Path()},
			map[string]string{"a": "interface calib" + held + b.Path() + ": delete the one that is wrong", "b": "calib [10.0.0.2 fd00::2]", "c": "calic [10.0.0.1 10.0.0.3]"}},
		{"the older no longer parses", []model.Entry{put(b, errors.New("bad"), 10)}, []string{a.Path(), b.Path()},
			map[string]string{"a": "calib [10.0.0.9]", "b": "bad", "c": "calic [10.0.0.1 10.0.0.3]"}},
		{"all go but one", []model.Entry{gone(a), gone(c), put(b, testSpec("calib", "10.0.0.2"), 4)}, []string{a.Path(), b.Path(), c.Path()},
			map[string]string{"b": "calib [10.0.0.2]"}},
	} {
		if diff := cmp.Diff(step.touched, s.fold(step.entries...), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: touched (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.want, verdicts(s)); diff != "" {
			t.Errorf("%s: verdicts (-want +got):\n%s", step.name, diff)
		}
	}
	if s.owners.Len() != 2 {
		t.Errorf("%d claims are left", s.owners.Len())
	}
}

// TestClaimsOrder reaches the same content of etcd by many histories: the verdicts are the same, and every endpoint whose verdict changed
// was reported as touched.
func TestClaimsOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		s := newClaims("h", []string{"cali"})
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
			touched := s.fold(entry)
			after := verdicts(s)
			for name := range entries {
				short := strings.TrimSuffix(strings.TrimPrefix(name, "/calico/v1/host/h/workload/k8s/"), "/endpoint/eth0")
				if !slices.Contains(touched, name) && before[short] != after[short] {
					t.Fatalf("round %d: %s went from %q to %q untouched by %s", round, short, before[short], after[short], history[len(history)-1])
				}
			}
			before = after
		}
		fresh := newClaims("h", []string{"cali"})
		shuffled := slices.Collect(maps.Values(entries))
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		fresh.fold(shuffled...)
		if diff := cmp.Diff(verdicts(fresh), verdicts(s)); diff != "" {
			t.Fatalf("round %d: (-from a snapshot +by history %v):\n%s", round, history, diff)
		}
	}
}

func TestEndpointOf(t *testing.T) {
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

func TestReconcile(t *testing.T) {
	a, b := testKey("a"), testKey("b")
	s, d := newClaims("h", []string{"cali"}), newDesired()
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
		s.fold(step.entries...)
		if got := show(d.reconcile(s, s.dirty, time.Time{})); got != step.want {
			t.Errorf("%s: %s\nwant %s", step.name, got, step.want)
		}
		for name, target := range d.interfaces {
			if target.Want.Interface != name || d.targets[target.Path] != target {
				t.Errorf("%s: %s leads to %+v", step.name, name, target)
			}
		}
	}
	if len(d.targets)+len(d.interfaces) != 0 {
		t.Errorf("left: %v %v", d.targets, d.interfaces)
	}
}

// TestMisfit: the prefixes cover no endpoint's interface.
func TestMisfit(t *testing.T) {
	s := newClaims("h", []string{"cali"})
	expect := func(name, want string) {
		t.Helper()
		got := ""
		if err := s.misfit(); err != nil {
			got = err.Error()
		}
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	expect("no endpoints", "")
	s.fold(put(testKey("b"), testSpec("tap2", "10.0.0.2"), 1), put(testKey("a"), testSpec("tap1", "10.0.0.1"), 2), put(testKey("0"), errors.New("bad"), 3))
	expect("others' names", "interface prefix cali: no endpoint of this host has an interface that begins so, and all are without access; the first, "+testKey("a").Path()+", has tap1: ")
	s.setPrefixes([]string{"cali", "tap"})
	expect("one of several prefixes", "")
}
