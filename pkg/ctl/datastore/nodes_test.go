// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRenamed: a node is renamed wherever it is named, and nothing else is; two nodes don't become one.
func TestRenamed(t *testing.T) {
	for _, tc := range []struct{ nodes, path, value, now, err string }{
		{nodes: "a=b", path: "/calico/v1/host/a/metadata", value: `{}`, now: `/calico/v1/host/b/metadata {}`},
		{nodes: "a=b", path: "/calico/v1/host/a/config/LogSeverityScreen", value: "info", now: "/calico/v1/host/b/config/LogSeverityScreen info"},
		{nodes: "a=b.c", path: "/calico/bgp/v1/host/a/ip_addr_v4", value: "192.0.2.1", now: "/calico/bgp/v1/host/b.c/ip_addr_v4 192.0.2.1"},
		{nodes: "a=b", path: "/calico/v1/host/a/endpoint/a", value: `{"name":"a"}`, now: `/calico/v1/host/b/endpoint/a {"name":"a","profile_ids":[]}`},
		{nodes: "a=b", path: "/calico/v1/host/a/workload/k8s/n.a/endpoint/eth0", value: `{"state":"active","name":"cali1","profile_ids":[]}`,
			now: `/calico/v1/host/b/workload/k8s/n.a/endpoint/eth0 {"state":"active","name":"cali1","profile_ids":[],"ipv4_nets":[],"ipv6_nets":[]}`},
		{nodes: "a=b", path: "/calico/bgp/v1/peer/a", value: `{"node":"a","peer_selector":"has(rr)"}`, now: `/calico/bgp/v1/peer/a {"node":"b","peer_selector":"has(rr)"}`},
		{nodes: "a=b", path: "/calico/ipam/v2/host/a/ipv4/block/10.0.0.0-30", value: `{}`, now: `/calico/ipam/v2/host/b/ipv4/block/10.0.0.0-30 {}`},
		{nodes: "a=b", path: "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-31", value: `{"cidr":"10.0.0.0/31","affinity":"host:a","allocations":[0,1],"unallocated":[],"attributes":[{"handle_id":"vxlan-tunnel-addr-a","secondary":{"node":"a","pod":"a"}},{"handle_id":"a","secondary":null}]}`,
			now: `/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-31 {"unallocated":[],"cidr":"10.0.0.0/31","affinity":"host:b","strictAffinity":false,"allocations":[0,1],"attributes":[{"handle_id":"vxlan-tunnel-addr-b","secondary":{"node":"b","pod":"a"}},{"handle_id":"a"}]}`},
		{nodes: "a=b", path: "/calico/ipam/v2/handle/vxlan-tunnel-addr-a", value: `{"id":"vxlan-tunnel-addr-a","block":{"10.0.0.0/31":1}}`, now: `/calico/ipam/v2/handle/vxlan-tunnel-addr-b {"id":"vxlan-tunnel-addr-b","block":{"10.0.0.0/31":1}}`},
		{nodes: "m.x=m", path: "/calico/v1/meta/FelixConfiguration/node.m.x", value: `{"labels":{"a":"b"}}`, now: `/calico/v1/meta/FelixConfiguration/node.m {"labels":{"a":"b"}}`},
		{nodes: "a=b", path: "/calico/v1/host/ab/metadata /calico/v1/host/a/metadata", value: `{"labels":{"node":"a"}}`, now: `/calico/v1/host/ab/metadata {"labels":{"node":"a"}} /calico/v1/host/b/metadata {"labels":{"node":"a"}}`},
		{nodes: "a=b", path: "/calico/v1/config/LogSeverityScreen", value: "info", err: "--node a=b: it names no node a"},
		{nodes: "a=b", path: "/calico/v1/host/a/metadata /calico/v1/host/b/metadata", value: `{}`, err: "/calico/v1/host/b/metadata would be there twice, from /calico/v1/host/a/metadata and /calico/v1/host/b/metadata"},
		{nodes: "a=b b=a", path: "/calico/v1/host/a/metadata /calico/v1/host/b/metadata", value: `{}`, now: "/calico/v1/host/b/metadata {} /calico/v1/host/a/metadata {}"},
	} {
		n, err := parseNodes(strings.Fields(tc.nodes))
		if err != nil {
			t.Fatal(err)
		}
		var records []record
		for _, path := range strings.Fields(tc.path) {
			r, err := newRecord(path, []byte(tc.value))
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
		}
		records, err = n.renamed(records)
		if err != nil || tc.err != "" {
			if err == nil || err.Error() != tc.err {
				t.Errorf("%s: %v, want %s", tc.path, err, tc.err)
			}
			continue
		}
		var now []string
		for _, r := range records {
			now = append(now, r.key.Path()+" "+r.text)
		}
		if diff := cmp.Diff(tc.now, strings.Join(now, " ")); diff != "" {
			t.Error(diff)
		}
	}
}

// TestStrangeNodes: nodes of a file that a cluster doesn't have are asked about where it has others than the file's.
func TestStrangeNodes(t *testing.T) {
	for _, tc := range []struct{ args, file, hosts, strange string }{
		{file: "a b"},
		{file: "a b", hosts: "a"}, // what an import that was cut off has left
		{file: "a b", hosts: "a b c"},
		{file: "a b", hosts: "a c", strange: "the file has the nodes b, and this cluster c: "},
		{args: "b=c", file: "a b", hosts: "a c"},
		{args: "b=b", file: "a b", hosts: "a c"},
		{args: "a=c", file: "a b", hosts: "c d", strange: "the file has the nodes b, and this cluster d: "},
	} {
		n, err := parseNodes(strings.Fields(tc.args))
		if err != nil {
			t.Fatal(err)
		}
		hosts := map[string]bool{}
		for host := range strings.FieldsSeq(tc.hosts) {
			hosts[host] = true
		}
		for node := range strings.FieldsSeq(tc.file) {
			n.named[node] = true
		}
		err = n.check(hosts)
		if (err == nil) != (tc.strange == "") || err != nil && !strings.HasPrefix(err.Error(), tc.strange) {
			t.Errorf("%+v: %v", tc, err)
		}
		if got := slices.Sorted(maps.Keys(hosts)); strings.Join(got, " ") != tc.hosts {
			t.Errorf("%+v: hosts are %v", tc, got)
		}
	}
}
