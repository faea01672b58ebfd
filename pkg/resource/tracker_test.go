// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// TestTracker changes keys at random: what a Tracker has reported equals what All finds, and nothing is reported twice.
func TestTracker(t *testing.T) {
	values := map[string][]string{
		"/calico/v1/host/a/metadata": {"{}", `{"labels":{"x":"y"}}`, "{"}, "/calico/v1/host/b/metadata": {"{}"},
		"/calico/bgp/v1/host/a/ip_addr_v4": {"192.0.2.1"}, "/calico/bgp/v1/host/b/as_num": {"65001", "x"}, "/calico/bgp/v1/global/as_num": {"64999", "65000"},
		"/calico/v1/host/a/config/IpInIpTunnelAddr": {"10.0.0.1"}, "/calico/v1/host/a/config/LogSeverityScreen": {"INFO", "DEBUG"},
		"/calico/v1/config/LogSeverityScreen": {"INFO"}, "/calico/v1/config/BGPHoldTimeSecs": {"30s", "60s"}, "/calico/v1/config/ClusterGUID": {"g"},
		"/calico/v1/Ready": {"true", "false"}, "/calico/v1/config/bgp_node_mesh": {`{"enabled":true}`}, "/calico/bgp/v1/global/node_mesh": {`{"enabled":false}`},
		"/calico/v1/config/bgp_peer_v4/192.0.2.9":     {`{"ip":"192.0.2.9","as_num":"1"}`},
		"/calico/bgp/v1/global/peer_v4/192.0.2.9":     {`{"ip":"192.0.2.9","as_num":"1"}`, `{"ip":"192.0.2.9","as_num":"2","name":"x"}`},
		"/calico/v1/ipam/v4/pool/10.0.0.0-16":         {`{"cidr":"10.0.0.0/16"}`, `{"cidr":"10.0.0.0/16","name":"pods"}`, `{"cidr":"10.0.0.0/16","name":"other"}`},
		"/calico/v1/ipam/v4/pool/10.1.0.0-16":         {`{"cidr":"10.1.0.0/16","name":"pods"}`, `{"cidr":"10.1.0.0/16","name":"other"}`},
		"/calico/v1/policy/tier/default/metadata":     {"{}"},
		"/calico/v1/policy/tier/t/metadata":           {"{}", `{"order":5}`},
		"/calico/v1/policy/tier/t/policy/p":           {`{"selector":"all()"}`, `{"selector":"a == 'b'"}`},
		"/calico/v1/policy/tier/default/policy/n%2fp": {`{"selector":"calico/k8s_ns == \"n\""}`, `{"selector":"all()"}`},
		"/calico/v1/policy/profile/p/tags":            {`["a"]`}, "/calico/v1/policy/profile/p/labels": {`{"a":"b"}`, `{"a":"c"}`},
		"/calico/v1/host/a/workload/k8s/n.p/endpoint/eth0": {`{"state":"active","name":"cali1"}`}, "/calico/v1/host/a/endpoint/eth0": {`{"name":"eth0"}`},
		"/calico/v1/host/b/endpoint/eth0": {`{"name":"eth0"}`}, "/calico/ipam/v2/config": {`{"strict_affinity":true}`}, "/calico/nothing": {"x"},
	}
	paths := slices.Sorted(maps.Keys(values))
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		held := map[string]model.Entry{}
		trackers, told := map[*resource.Kind]*resource.Tracker{}, map[*resource.Kind]map[string]string{}
		for _, k := range resource.Kinds() {
			trackers[k], told[k] = k.Track(), map[string]string{}
		}
		for step := range int64(60) {
			u := model.Update{Revision: step + 2, Resync: step == 0 || rnd.IntN(10) == 0}
			if u.Resync {
				clear(held)
			}
			for _, i := range rnd.Perm(len(paths))[:1+rnd.IntN(4)] {
				path := paths[i]
				key, err := model.ParseKey(path)
				e := model.Entry{Path: path, Key: key, Err: err}
				if _, there := held[path]; !there || rnd.IntN(2) == 0 {
					if e.Revision = u.Revision; err == nil {
						e.Value, e.Err = model.ParseValue(key, []byte(values[path][rnd.IntN(len(values[path]))]))
					}
				}
				if delete(held, path); e.Exists() {
					held[path] = e
				}
				u.Entries = append(u.Entries, e)
			}
			if u.Resync {
				u.Entries = slices.DeleteFunc(u.Entries, func(e model.Entry) bool { return !e.Exists() })
			}
			entries := slices.Collect(maps.Values(held))
			for kind, tracker := range trackers {
				// Two with one name are told apart by their paths.
				id := func(s resource.Stored) string {
					if slices.Contains([]string{"Node", "Profile", "BGPConfiguration", "ClusterInformation", "FelixConfiguration"}, kind.Name) {
						return s.ID()
					}
					return s.ID() + " at " + s.Entries[0].Path
				}
				gone, changed := tracker.Update(u)
				for _, s := range gone {
					if _, known := told[kind][id(s)]; !known {
						t.Fatalf("%s: gone, and was never there", s.Title())
					}
					delete(told[kind], id(s))
				}
				for _, s := range changed {
					told[kind][id(s)] = said(t, s)
				}
				want := map[string]string{}
				for _, s := range kind.All(entries) {
					want[id(s)] = said(t, s)
				}
				if diff := cmp.Diff(want, told[kind]); diff != "" {
					t.Fatalf("seed %d, step %d, %s: %+v (-all +told):\n%s", seed, step, kind.Name, u, diff)
				}
				again := u
				again.Resync = false
				if gone, changed := tracker.Update(again); len(changed)+len(gone) > 0 {
					t.Fatalf("seed %d, step %d: told again: %v %v", seed, step, gone, changed)
				}
			}
		}
	}
}

func said(t *testing.T, s resource.Stored) string {
	t.Helper()
	text, err := json.Marshal(s.Resource)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + fmt.Sprint(s.Err)
}

// TestNameRanges: a single resource is read by its key if its name gives that.
func TestNameRanges(t *testing.T) {
	for _, tc := range []struct{ kind, namespace, name, path string }{
		{"node", "", "a", "/calico/v1/host/a/metadata"}, {"node", "", "a", "/calico/bgp/v1/host/a/as_num"},
		{"wep", "default", "a--1-x-w--1-eth0", "/calico/v1/host/a-1/workload/x/w-1/endpoint/eth0"},
		{"wep", "", "a-k8s-p-eth0", "/calico/v1/host/a/workload/k8s/default.p/endpoint/eth0"},
		{"wep", "n", "a-k8s-p--q-eth0", "/calico/v1/host/a/workload/k8s/n.p-q/endpoint/eth0"},
		{"np", "", "p", "/calico/v1/policy/tier/default/policy/default%2fp"}, {"gnp", "", "p", "/calico/v1/policy/tier/default/policy/p"},
		{"tier", "", "t", "/calico/v1/policy/tier/t/metadata"}, {"profile", "", "p", "/calico/v1/policy/profile/p/rules"},
		{"felixconfig", "", "default", "/calico/v1/config/LogSeverityScreen"}, {"felixconfig", "", "node.a", "/calico/v1/host/a/config/LogSeverityScreen"},
		{"subnet", "", "s", "/calico/dhcp/v1/subnet/s"}, {"ipamconfig", "", "default", "/calico/ipam/v2/config"}, {"pool", "", "p", "/calico/v1/ipam/v4/pool/10.0.0.0-16"},
	} {
		kind, err := resource.Find(tc.kind)
		if err != nil {
			t.Fatal(err)
		}
		key, err := model.ParseKey(tc.path)
		if err != nil {
			t.Fatal(err)
		}
		covered := false
		for _, r := range kind.NameRanges(tc.namespace, tc.name) {
			covered = covered || r.Key == key || r.Key == nil && len(tc.path) > len(r.Prefix) && tc.path[:len(r.Prefix)] == r.Prefix
			if r.Key == nil && r.Prefix == model.HostPrefix("") {
				t.Errorf("%s %s: all hosts are read", tc.kind, tc.name)
			}
		}
		if !covered {
			t.Errorf("%s %s: %s isn't read: %+v", tc.kind, tc.name, tc.path, kind.NameRanges(tc.namespace, tc.name))
		}
	}
}

// BenchmarkTracker changes one of many nodes.
func BenchmarkTracker(b *testing.B) {
	kind, err := resource.Find("node")
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{10, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			u := model.Update{Resync: true}
			for i := range n {
				u.Entries = append(u.Entries, entry(b, fmt.Sprintf("/calico/v1/host/n%d/metadata", i), []byte("{}"), 2))
			}
			tracker := kind.Track()
			tracker.Update(u)
			e, revision := u.Entries[0], int64(2)
			for b.Loop() {
				revision++
				e.Revision = revision
				if _, changed := tracker.Update(model.Update{Entries: []model.Entry{e}}); len(changed) != 1 {
					b.Fatal(changed)
				}
			}
		})
	}
}
