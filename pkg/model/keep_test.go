// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// TestKeep has every kind written over every sample of it, with a member that nothing is known of: the value is what was written, and the
// member stays as it stands. What is written without a change changes nothing.
func TestKeep(t *testing.T) {
	const member = `"x-later.version": {"a":  [1.50, null, "\u00e9"]}`
	samples := map[string][][]byte{}
	eachSample(t, func(_, dir string, data []byte) { samples[dir] = append(samples[dir], data) })
	for dir, all := range samples {
		k := sampleKey(t, dir)
		for _, data := range all {
			stored := data
			open := bytes.IndexByte(data, '{')
			if object := open >= 0 && strings.TrimSpace(string(data[:open])) == ""; object {
				rest := bytes.TrimSpace(data[open+1:])
				comma := ","
				if rest[0] == '}' {
					comma = ""
				}
				stored = []byte("{" + member + comma + string(rest))
			}
			v, err := model.ParseValue(k, stored)
			if err != nil {
				continue // a policy's may decide, labels have texts alone
			}
			switch v.(type) {
			case model.Labels, model.Text:
				continue // nothing of it is unknown
			}
			for _, other := range all {
				w, err := model.ParseValue(k, other)
				if err != nil {
					t.Fatal(err)
				}
				written, err := model.FormatValue(w)
				if err != nil {
					t.Fatal(err)
				}
				kept := model.Keep(k, stored, written)
				back, err := model.ParseValue(k, kept)
				if diff := cmp.Diff(w, back, compare); err != nil || diff != "" {
					t.Errorf("%s: %s written over %s: %v: %s means something else:\n%s", dir, written, stored, err, kept, diff)
				}
				if bytes.Contains(stored, []byte(member)) && !bytes.Contains(kept, []byte(member[strings.Index(member, "{"):])) {
					t.Errorf("%s: %s written over %s: the member is lost: %s", dir, written, stored, kept)
				}
			}
		}
	}
}

func TestKeepBytes(t *testing.T) {
	endpoint := model.WorkloadEndpointKey{Host: "a", Orchestrator: "k8s", Workload: "d.web", Endpoint: "eth0"}
	block := model.BlockKey{CIDR: netip.MustParsePrefix("10.0.0.0/30")}
	for name, tt := range map[string]struct {
		key          model.Key
		stored, want string
		change       func(any) any
	}{
		"a label": {endpoint,
			`{"state":"active","name":"cali1","mac":"02:00:00:00:00:01","ipv4_nets":["10.0.0.1/32"],"later":{"x": 1.0},"profile_ids":["p"],"labels":{"a":"b"}}`,
			`{"state":"active","name":"cali1","mac":"02:00:00:00:00:01","ipv4_nets":["10.0.0.1/32"],"later":{"x": 1.0},"profile_ids":["p"],"labels":{"a":"c"}}`,
			func(v any) any {
				e := v.(model.WorkloadEndpoint)
				e.Labels = model.Labels{"a": "c"}
				return e
			}},
		"what is inside a member that stays": {model.PoolKey{CIDR: netip.MustParsePrefix("10.0.0.0/24")},
			`{"cidr":"10.0.0.0/24","masquerade":false,"meta":{"name":"p","later": 1}}`,
			`{"cidr":"10.0.0.0/24","masquerade":true,"meta":{"name":"p","later": 1}}`,
			func(v any) any {
				p := v.(model.Pool)
				p.Masquerade = true
				return p
			}},
		"what was left out is needed now": {endpoint,
			`{"state":"active","name":"cali1","later":1}`,
			`{"state":"active","name":"cali1","later":1,"labels":{"a":"c"}}`,
			func(v any) any {
				e := v.(model.WorkloadEndpoint)
				e.Labels = model.Labels{"a": "c"}
				return e
			}},
		"an older name": {endpoint,
			`{"state":"active","name":"cali1","active_instance_id":"c","later":1}`,
			`{"state":"active","name":"cali1","later":1,"profile_ids":[],"ipv4_nets":[],"ipv6_nets":[],"labels":{"a":"c"},"container_id":"c"}`,
			func(v any) any {
				e := v.(model.WorkloadEndpoint)
				e.Labels = model.Labels{"a": "c"}
				return e
			}},
		"an older form": {block,
			`{"cidr":"10.0.0.0/30","hostAffinity":"a","strictAffinity":false,"allocations":[null,null,null,null],"unallocated":[0,1,2,3],"attributes":[],"later":1}`,
			`{"cidr":"10.0.0.0/30","strictAffinity":false,"allocations":[null,null,null,null],"unallocated":[0,1,2,3],"attributes":[],"later":1,"affinity":"host:b"}`,
			func(v any) any {
				b := v.(model.Block)
				b.Affinity = "b"
				return b
			}},
	} {
		v, err := model.ParseValue(tt.key, []byte(tt.stored))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		written, err := model.FormatValue(tt.change(v))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := model.Keep(tt.key, []byte(tt.stored), written); string(got) != tt.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, tt.want)
		}
	}
}

// BenchmarkKeep is what it costs to write a full block, as each ADD does.
func BenchmarkKeep(b *testing.B) {
	cidr := netip.MustParsePrefix("10.0.0.0/26")
	block := model.Block{CIDR: cidr, Affinity: "a"}
	for i := range 64 {
		block.Allocations = append(block.Allocations, i)
		block.Attributes = append(block.Attributes, model.Attributes{HandleID: fmt.Sprintf("net.%064d.eth0", i), Secondary: map[string]string{"node": "a", "network": "net", "workload": "d.web"}})
	}
	k := model.BlockKey{CIDR: cidr}
	text, err := model.FormatValue(block)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("keep", func(b *testing.B) {
		for b.Loop() {
			model.Keep(k, text, text)
		}
	})
	b.Run("parse", func(b *testing.B) {
		for b.Loop() {
			if _, err := model.ParseValue(k, text); err != nil {
				b.Fatal(err)
			}
		}
	})
}
