// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestNetworksOfSets: rules match the networks of sets as well as endpoints, but those of Kubernetes' policies endpoints alone.
func TestNetworksOfSets(t *testing.T) {
	rule := func(rule string) string {
		return `{"selector": "role == 'db'", "types": ["inbound"], "inbound_rules": [` + rule + `]}`
	}
	sets := map[string]string{
		netset + "office": `{"nets": ["192.0.2.0/24", "192.0.2.128/25", "2001:db8::/32"], "labels": {"role": "known"}}`,
		netset + "vpn":    `{"nets": ["10.0.1.0/24", "198.51.100.7"], "labels": {"role": "known"}}`,
		remote:            strings.Replace(base()[remote], `"far"`, `"known"`, 1),
	}
	known, unknown, all := `{"src_selector": "role == 'known'"}`, `{"!src_selector": "role == 'known'"}`, `{"src_selector": "all()"}`
	for _, tt := range []struct {
		name, policy, rule, passes, drops string
	}{
		{"a selector", "a", known, "192.0.2.0 192.0.2.200 192.0.2.255 2001:db8::1 198.51.100.7 10.0.1.3 10.0.1.9", "192.0.3.0 192.0.1.255 198.51.100.8 2001:db9:: 10.0.2.0 fd00::1"},
		{"a negated one", "a", unknown, "192.0.3.0 192.0.1.255 fd00::1", "192.0.2.0 2001:db8::1 10.0.1.3 10.0.1.9"},
		{"all()", "a", all, "192.0.2.9 10.0.1.3 10.0.0.1", "192.0.3.0"},
		{"of Kubernetes", "knp.shop.a", known, "10.0.1.3", "192.0.2.0 10.0.1.9 2001:db8::1"},
		{"of Kubernetes, for the cluster", "kcnp.a", unknown, "192.0.2.0 10.0.1.9", "10.0.1.3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects := map[string]string{pol + tt.policy: rule(tt.rule)}
			for path, value := range sets {
				objects[path] = value
			}
			_, st := stateOf(t, objects)
			for want, list := range map[Verdict]string{Accept: tt.passes, Drop: tt.drops} {
				for _, src := range strings.Fields(list) {
					p := Packet{In: "eth0", Out: "cali2", Src: addr(src), Dst: addr("10.0.0.2"), Protocol: model.ProtocolTCP, DstPort: 80, Conn: ConnNew}
					if p.Src.Is6() {
						p.Dst = addr("fd00::2")
					}
					if r := Evaluate(Settings{Prefixes: []string{"cali"}}, st, p); r.Verdict != want {
						t.Errorf("from %s: %s, want %s: %v", src, r.Verdict, want, r.Trail)
					}
				}
			}
		})
	}
}

// TestUnreadableNetworkSet: what can't be read counts as what it was, if that is known.
func TestUnreadableNetworkSet(t *testing.T) {
	valid := `{"nets": ["192.0.2.0/24"], "labels": {"role": "known"}}`
	e, st := stateOf(t, map[string]string{
		netset + "office": valid, pol + "a": `{"selector": "role == 'db'", "inbound_rules": [{"action": "deny", "src_selector": "role == 'known'"}, {}]}`,
	})
	entry := entryOf(t, netset+"office", "{")
	for _, tt := range []struct {
		value any
		want  Verdict
	}{{entryOf(t, netset+"office", valid).Value, Drop}, {nil, Accept}} {
		entry.Value = tt.value
		e.Update(entry)
		if err := st.Apply(e.Flush()); err != nil {
			t.Fatal(err)
		}
		p := Packet{In: "eth0", Out: "cali2", Src: addr("192.0.2.1"), Dst: addr("10.0.0.2"), Protocol: model.ProtocolTCP, DstPort: 80, Conn: ConnNew}
		if r := Evaluate(Settings{Prefixes: []string{"cali"}}, st, p); r.Verdict != tt.want {
			t.Errorf("with the value %v: %s, want %s", tt.value, r.Verdict, tt.want)
		}
		if e.Invalid()[entry.Path] == nil {
			t.Error("it is not listed")
		}
	}
}
