// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// entry returns what a store returns for a key.
func entry(t testing.TB, path string, data []byte, revision int64) model.Entry {
	t.Helper()
	key, err := model.ParseKey(path)
	if err != nil {
		t.Fatal(err)
	}
	e := model.Entry{Path: path, Key: key, Revision: revision}
	e.Value, e.Err = model.ParseValue(key, data)
	if e.Err != nil {
		e.Value = nil
	}
	return e
}

// samples maps the directories of the model's samples to the keys of their values.
var samples = map[string]string{
	"workload-endpoint": "/calico/v1/host/a/workload/k8s/default.web/endpoint/eth0", "host-endpoint": "/calico/v1/host/a/endpoint/eth0",
	"profile-rules": "/calico/v1/policy/profile/p/rules", "profile-tags": "/calico/v1/policy/profile/p/tags", "profile-labels": "/calico/v1/policy/profile/p/labels",
	"network-set": "/calico/v1/netset/shop%2Foffice", "tier": "/calico/v1/policy/tier/t/metadata", "policy": "/calico/v1/policy/tier/default/policy/p",
	"pool-v4": "/calico/v1/ipam/v4/pool/10.0.0.0-16", "pool-small": "/calico/v1/ipam/v4/pool/10.9.0.0-28", "pool-v6": "/calico/v1/ipam/v6/pool/fd80:24e2:f998:72d6::-64",
	"ipam-config": "/calico/ipam/v2/config", "reservation": "/calico/ipam/v2/reservation/r", "controllers-config": "/calico/v1/controllers/config", "bgp-as": "/calico/bgp/v1/global/as_num", "bgp-mesh": "/calico/v1/config/bgp_node_mesh",
	"bgp-peer-v4": "/calico/v1/config/bgp_peer_v4/192.0.2.1", "bgp-peer-v6": "/calico/bgp/v1/global/peer_v6/2001:db8::1",
	"bgp-peer-named": "/calico/bgp/v1/peer/p", "bgp-filter": "/calico/bgp/v1/filter/f",
	"host-metadata": "/calico/v1/host/a/metadata", "subnet-v4": "/calico/dhcp/v1/subnet/s", "subnet-v6": "/calico/dhcp/v1/subnet/s",
}

// printed prints every resource in the entries, which must fit the kind's schema, and applies it again, which must write nothing. It
// returns how many there were.
func printed(t *testing.T, entries []model.Entry) int {
	t.Helper()
	n := 0
	for _, kind := range resource.Kinds() {
		schema := schemas(t)[kind.Name]
		for _, s := range kind.All(entries) {
			if !s.Entries[0].Exists() {
				continue // the tier that is there without a key
			}
			if s.Err != nil {
				t.Errorf("%s: %v", s.Title(), s.Err)
				continue
			}
			n++
			older := func(any) ([]byte, error) {
				o, err := s.Older()
				if err != nil {
					return nil, err
				}
				return yaml.Marshal(o.Document)
			}
			formats := []func(any) ([]byte, error){json.Marshal, yaml.Marshal, older}
			if peer, is := s.Spec.(*resource.BGPPeer); kind.MayOlder() != nil || is && peer.NodeSelector+peer.PeerSelector != "" {
				formats = formats[:2]
			}
			for _, format := range formats {
				text, err := format(s.Resource)
				if err != nil {
					t.Errorf("%s: %v", s.Title(), err)
					continue
				}
				if text[0] == '{' {
					if err := validate(t, schema, text); err != nil {
						t.Errorf("%s is not of its schema: %v\n%s", s.Title(), err, text)
					}
				}
				again, err := resource.Decode("printed", text)
				if err != nil {
					t.Errorf("%s: %v\n%s", s.Title(), err, text)
					continue
				}
				change, created, err := kind.Write(kind.Ranges(), entries, again[0], resource.Apply)
				if err != nil || created || !change.Empty() {
					t.Errorf("%s is written again: %v %v, %v\n%s", s.Title(), change.Puts, change.Deletes, err, text)
				}
			}
		}
	}
	return n
}

func TestSamplesRoundTrip(t *testing.T) {
	for dir, path := range samples {
		files, err := filepath.Glob(filepath.Join("../model/testdata", dir, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no samples: %v", dir, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(dir+"/"+filepath.Base(file), func(t *testing.T) {
				entries := []model.Entry{entry(t, path, bytes.TrimSuffix(data, []byte("\n")), 7)}
				if entries[0].Err != nil {
					t.Fatal(entries[0].Err)
				}
				if n := printed(t, entries); n != 1 && !bytes.Equal(bytes.TrimSpace(data), nil) {
					t.Errorf("%d resources, want 1", n)
				}
			})
		}
	}
}

// TestRandomRoundTrip makes policies with random rules: what is accepted is printed, and reads back the same.
func TestRandomRoundTrip(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(24, seed))
		policy := randomPolicy(r)
		data, err := json.Marshal(policy)
		if err != nil {
			t.Fatal(err)
		}
		e := entry(t, "/calico/v1/policy/tier/default/policy/p", data, 7)
		if e.Err != nil {
			continue // what no reader accepts
		}
		if printed(t, []model.Entry{e}) != 1 || t.Failed() {
			t.Fatalf("seed %d: %s", seed, data)
		}
	}
}

func randomPolicy(r *rand.Rand) map[string]any {
	pick := func(values ...any) any { return values[r.IntN(len(values))] }
	rules := func() []any {
		var list []any
		for range r.IntN(3) {
			rule := map[string]any{"action": pick("allow", "deny", "log", "next-tier")}
			for _, not := range []string{"", "!"} {
				for name, values := range map[string][]any{
					"protocol": {"tcp", "udp", "icmp", "icmpv6", 50, "sctp"}, "src_tag": {"t"}, "dst_selector": {"", "all()", "a == 'b'", "has(x) && !has(y)"},
					"src_selector": {"calico/k8s_ns == \"x\" && (a == 'b')", "pcns.a == 'b'"}, "src_nets": {[]any{"10.0.0.0/8"}, []any{"10.0.0.0/8", "fd00::/8"}, []any{"0.0.0.0/0"}},
					"dst_ports": {[]any{80}, []any{"1:2", "http"}, []any{7, "8:9"}}, "icmp_type": {0, 8, 254},
				} {
					if r.IntN(5) == 0 {
						rule[not+name] = values[r.IntN(len(values))]
					}
				}
			}
			if r.IntN(4) == 0 {
				rule["ip_version"] = pick(4, 6)
			}
			list = append(list, rule)
		}
		return list
	}
	p := map[string]any{"selector": pick("", "all()", "a == \"b\"", "a in {'x', 'y'} || global()", "has(a) && !(b != 'c')"), "inbound_rules": rules(), "outbound_rules": rules()}
	for name, values := range map[string][]any{"order": {1, -2.5, 1e9, nil, "default"}, "types": {[]any{"inbound"}, []any{"outbound"}, []any{}}, "untracked": {true}, "pre_dnat": {true}, "apply_on_forward": {true}} {
		if r.IntN(3) == 0 {
			p[name] = values[r.IntN(len(values))]
		}
	}
	return p
}
