// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

var update = flag.Bool("update", false, "write what the samples are in canonical form to testdata")

// sampleKeys says which key the samples of a directory of testdata are values
// of. Samples stay for ever: what was once readable must stay so.
var sampleKeys = map[string]string{
	"ready":                    "/calico/v1/Ready",
	"config":                   "/calico/v1/config/InterfacePrefix",
	"host-metadata":            "/calico/v1/host/a/metadata",
	"bird-ip":                  "/calico/v1/host/a/bird_ip",
	"workload-endpoint":        "/calico/v1/host/a/workload/k8s/default.web/endpoint/eth0",
	"host-endpoint":            "/calico/v1/host/a/endpoint/eth0",
	"profile-rules":            "/calico/v1/policy/profile/p/rules",
	"profile-tags":             "/calico/v1/policy/profile/p/tags",
	"profile-labels":           "/calico/v1/policy/profile/p/labels",
	"tier":                     "/calico/v1/policy/tier/default/metadata",
	"policy":                   "/calico/v1/policy/tier/default/policy/p",
	"network-set":              "/calico/v1/netset/shop%2Foffice",
	"pool-v4":                  "/calico/v1/ipam/v4/pool/10.0.0.0-16",
	"pool-small":               "/calico/v1/ipam/v4/pool/10.9.0.0-28",
	"pool-v6":                  "/calico/v1/ipam/v6/pool/fd80:24e2:f998:72d6::-64",
	"block-document":           "/calico/ipam/v2/assignment/ipv4/block/192.168.0.0-24",
	"block-v4":                 "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29",
	"block-v6":                 "/calico/ipam/v2/assignment/ipv6/block/fd00::-125",
	"handle":                   "/calico/ipam/v2/handle/net.0a1b.eth0",
	"affinity":                 "/calico/ipam/v2/host/a/ipv4/block/10.0.0.0-26",
	"ipam-config":              "/calico/ipam/v2/config",
	"reservation":              "/calico/ipam/v2/reservation/r",
	"bgp-as":                   "/calico/bgp/v1/global/as_num",
	"bgp-mesh":                 "/calico/v1/config/bgp_node_mesh",
	"bgp-peer-v4":              "/calico/v1/config/bgp_peer_v4/192.0.2.1",
	"bgp-peer-v6":              "/calico/bgp/v1/global/peer_v6/2001:db8::1",
	"bgp-peer-named":           "/calico/bgp/v1/peer/p",
	"bgp-filter":               "/calico/bgp/v1/filter/f",
	"bgp-host-ipv4":            "/calico/bgp/v1/host/a/ip_addr_v4",
	"bgp-host-ipv6":            "/calico/bgp/v1/host/a/ip_addr_v6",
	"bgp-host-as":              "/calico/bgp/v1/host/a/as_num",
	"bgp-host-network":         "/calico/bgp/v1/host/a/network_v4",
	"bgp-host-reflector":       "/calico/bgp/v1/host/a/route_reflector_cluster_id",
	"status":                   "/calico/felix/v1/host/a/status",
	"endpoint-status":          "/calico/felix/v1/host/a/workload/k8s/default.web/endpoint/eth0",
	"garbage-brake":            "/calico/v1/controllers/gc",
	"leader":                   "/calico/v1/controllers/leader",
	"controllers-config":       "/calico/v1/controllers/config",
	"service":                  "/calico/v1/service/shop%2Fweb",
	"subnet-v4":                "/calico/dhcp/v1/subnet/s",
	"network-service":          "/calico/nsm/v1/service/vpn",
	"network-service-endpoint": "/calico/nsm/v1/endpoint/vpn/a/gw-1",
	"subnet-v6":                "/calico/dhcp/v1/subnet/s",
}

func sampleKey(t testing.TB, dir string) model.Key {
	t.Helper()
	k, err := model.ParseKey(sampleKeys[dir])
	if err != nil {
		t.Fatalf("testdata/%s: %v", dir, err)
	}
	return k
}

// eachSample walks testdata. A file ends with one newline more than its value.
func eachSample(t testing.TB, fn func(file, dir string, data []byte)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*/*")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		dir := filepath.Base(filepath.Dir(file))
		if dir == "fuzz" || filepath.Ext(file) == ".golden" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		seen[dir] = true
		fn(file, dir, bytes.TrimSuffix(data, []byte("\n")))
	}
	for dir := range sampleKeys {
		if !seen[dir] {
			t.Errorf("testdata/%s: no samples", dir)
		}
	}
}

func TestSamples(t *testing.T) {
	eachSample(t, func(file, dir string, data []byte) {
		k := sampleKey(t, dir)
		v, err := model.ParseValue(k, data)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			return
		}
		canonical, err := model.FormatValue(v)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			return
		}
		again, err := model.ParseValue(k, canonical)
		if err != nil {
			t.Errorf("%s: its canonical form %s: %v", file, canonical, err)
		} else if diff := cmp.Diff(v, again, compare); diff != "" {
			t.Errorf("%s: its canonical form means something else:\n%s", file, diff)
		}

		golden := strings.TrimSuffix(file, filepath.Ext(file)) + ".golden"
		if *update {
			if err := os.WriteFile(golden, append(canonical, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Error(err)
			return
		}
		if diff := cmp.Diff(string(bytes.TrimSuffix(want, []byte("\n"))), string(canonical)); diff != "" {
			t.Errorf("%s:\n%s", file, diff)
		}
	})
}
