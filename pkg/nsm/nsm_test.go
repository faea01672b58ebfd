// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCandidates(t *testing.T) {
	mem := Interface{Type: 3, Preference: 1}
	local := Endpoint{Service: "vpn", Host: "a", Name: "e1"}
	far := Endpoint{Service: "vpn", Host: "b", Name: "e2", Interfaces: []Interface{{Type: 3}, {Type: Kernel, Parameters: map[string]string{"pools": "10.0.0.0/24"}}}}
	onlyMem := Endpoint{Service: "vpn", Host: "c", Name: "e3", Interfaces: []Interface{{Type: 3}}}
	for _, tt := range []struct {
		name      string
		wanted    []Interface
		endpoints []Endpoint
		want      string // names of the endpoints, or a part of the error
		failed    map[string]int64
	}{
		{"local first", nil, []Endpoint{far, local}, "e1 e2", nil},
		{"failed last", nil, []Endpoint{far, local}, "e2 e1", map[string]int64{"e1": 5}},
		{"failed before", nil, []Endpoint{far, local}, "e1 e2", map[string]int64{"e1": 5, "e2": 6}},
		{"no such service", nil, []Endpoint{{Service: "other"}}, `"vpn" has no endpoint`, nil},
		{"none", nil, nil, `"vpn" has no endpoint`, nil},
		{"not offered", []Interface{{Type: 2}}, []Endpoint{local}, "e1 offers KERNEL_INTERFACE, and the client asked for VHOST_INTERFACE", nil},
		{"not built", []Interface{mem}, []Endpoint{far}, "MEM_INTERFACE is not built here", nil},
		{"second choice", []Interface{{Type: Kernel}, mem}, []Endpoint{far}, "e2", nil},
		{"one without", []Interface{{Type: Kernel}}, []Endpoint{onlyMem, far}, "e2", nil},
		{"default is kernel", []Interface{{Type: Default}}, []Endpoint{local}, "e1", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, err := Candidates(Request{ID: "1", Service: "vpn", Interfaces: tt.wanted}, tt.endpoints, "a", func(e Endpoint) int64 { return tt.failed[e.Name] })
			var names []string
			for _, c := range found {
				names = append(names, c.Endpoint.Name)
				if c.Offered.Type != Kernel || c.Wanted.Type != Kernel {
					t.Errorf("chosen: %v of %v", c.Offered, c.Wanted)
				}
			}
			got := strings.Join(names, " ")
			if err != nil {
				got = err.Error()
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("%v is not ErrNotFound", err)
				}
			}
			if !strings.Contains(got, tt.want) || got == "" {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestChecks(t *testing.T) {
	for _, r := range []Request{{}, {ID: "1"}, {Service: "s"}, {ID: "a b", Service: "s"}, {ID: "1", Service: "a\nb"}, {ID: strings.Repeat("x", 201), Service: "s"}, {ID: "\xff", Service: "s"}} {
		if err := r.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if err := (Request{ID: "1", Service: "secure-intranet"}).Check(); err != nil {
		t.Error(err)
	}
	for _, e := range []Endpoint{{}, {Service: "s"}, {Service: "s", Name: "n", Interfaces: []Interface{{Parameters: map[string]string{"pools": "10.0.0.1/24"}}}}} {
		if err := e.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

func TestParseContextRequest(t *testing.T) {
	got, err := ParseContextRequest(map[string]string{
		ParamAddressed: "true", ParamExcluded: "10.0.0.0/8, fd00::/8", ParamAdditional: "4/28,6/64", "unknown": "x",
	})
	want := ContextRequest{Addressed: true, Excluded: prefixes("10.0.0.0/8", "fd00::/8"), Additional: []PrefixRequest{{false, 28}, {true, 64}}}
	if diff := cmp.Diff(want, got, comparePrefixes); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for name, value := range map[string]string{
		ParamAddressed: "perhaps", ParamExcluded: "10.0.0.1/8", ParamAdditional: "5/28", ParamDefaultRoute: "2",
	} {
		if _, err := ParseContextRequest(map[string]string{name: value}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	for _, bad := range []string{"4/33", "6/129", "4/0", "4", "/", "4/x"} {
		if _, err := ParseContextRequest(map[string]string{ParamAdditional: bad}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestInterfaceName(t *testing.T) {
	taken := func(name string) bool { return name == "eth0" || name == "nsm0" }
	for wanted, want := range map[string]string{"": "nsm1", "vpn": "vpn", "nsm7": "nsm7"} {
		if got, err := InterfaceName(wanted, taken); got != want || err != nil {
			t.Errorf("%q: %q, %v", wanted, got, err)
		}
	}
	for _, bad := range []string{"eth0", "a/b", "sixteen-letters-", "..", "a b", "n%d"} {
		if got, err := InterfaceName(bad, taken); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

func TestKnown(t *testing.T) {
	var l Ledger
	r := Request{ID: "1", Service: "s", Namespace: 5, Interfaces: []Interface{{Type: Kernel, Parameters: map[string]string{"a": "b"}}}}
	if _, known, err := l.Known(r); known || err != nil {
		t.Fatal(known, err)
	}
	l.Put(Connection{Key: Key{ID: "1", Service: "s"}, Request: r})
	l.Put(Connection{Key: Key{ID: "1", Service: "s", Peer: "b"}})
	if _, known, err := l.Known(r); !known || err != nil {
		t.Error(known, err)
	}
	r.Namespace = 6
	if _, _, err := l.Known(r); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	if n := len(l.All()); n != 2 {
		t.Error(n, "connections")
	}
	l.Delete(Key{ID: "1", Service: "s"})
	if _, known, err := l.Known(r); known || err != nil {
		t.Error(known, err)
	}
}

var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}
