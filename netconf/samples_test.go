// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// plugins returns the configuration of every calico plugin of a sample, as a
// runtime hands it over.
func plugins(t *testing.T, file string) []*Config {
	t.Helper()
	var raw [][]byte
	if strings.HasSuffix(file, ".conflist") {
		list, err := libcni.ConfListFromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Plugins {
			one, err := libcni.InjectConf(p, map[string]any{"name": list.Name, "cniVersion": list.CNIVersion})
			if err != nil {
				t.Fatal(err)
			}
			if p.Network.Type == "calico" {
				raw = append(raw, one.Bytes)
			}
		}
	} else {
		one, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, one)
	}
	var out []*Config
	for _, data := range raw {
		c, err := Parse(data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if string(c.Raw) != string(data) {
			t.Errorf("%s: Raw is not what was parsed", file)
		}
		out = append(out, c)
	}
	return out
}

// base is a configuration with nothing set but its name and type.
func base(change func(*Config)) *Config {
	c := &Config{
		CNIVersion:       "1.1.0",
		Name:             "net1",
		Type:             "calico",
		Etcd:             Etcd{Endpoints: []string{"http://127.0.0.1:2379"}},
		Nodename:         Nodename{File: "/var/lib/calico/nodename"},
		IPAM:             IPAM{Type: "calico-ipam", AssignIPv4: true},
		Log:              Log{File: "/var/log/calico/cni/cni.log", MaxSize: 100, MaxAge: 30, MaxCount: 10},
		Agent:            Agent{Socket: "/run/calico/agent.sock", Timeout: 10 * time.Second},
		DatastoreTimeout: 20 * time.Second,
	}
	change(c)
	return c
}

func TestSamples(t *testing.T) {
	want := map[string]*Config{
		"minimal.conf": base(func(c *Config) { c.Etcd.Unnamed = true }),
		"10-calico.conflist": base(func(c *Config) {
			c.Name, c.CNIVersion = "k8s-pod-network", "1.0.0"
			c.Nodename.FileRequired = true
			c.Etcd = Etcd{
				Endpoints: []string{"https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"},
				CAFile:    "/etc/calico/certs/ca.pem", CertFile: "/etc/calico/certs/client.pem", KeyFile: "/etc/calico/certs/client-key.pem",
			}
			c.MTU = 1440
			c.IPAM.AssignIPv6 = true
			c.IPAM.IPv4Pools = []model.PoolRef{{CIDR: netip.MustParsePrefix("10.10.0.0/16")}}
			c.IPAM.IPv6Pools = []model.PoolRef{{CIDR: netip.MustParsePrefix("fd00:10::/48")}}
			c.FloatingIPs, c.IPAddrsNoIPAM = true, true
			c.Policy.Kubernetes = true
			c.Kubernetes = Kubernetes{Kubeconfig: "/etc/cni/net.d/calico-kubeconfig", NodeName: "worker-1"}
		}),
		"10-calico.conf": base(func(c *Config) {
			c.Name, c.CNIVersion = "calico-k8s-network", "0.3.1"
			c.Etcd.Endpoints = []string{"http://10.100.0.5:2379"}
			c.Nodename.Hostname = "worker-7"
			c.Policy = Policy{Kubernetes: true, APIRoot: "https://10.96.0.1:443", AuthToken: "token"}
			c.Kubernetes.Kubeconfig = "/etc/cni/net.d/kubeconfig"
		}),
		"host-local.conflist": base(func(c *Config) {
			c.Name, c.CNIVersion = "pods", "0.4.0"
			c.Nodename.Name = "worker-1"
			c.IncludeDefaultRoutes = true
			c.IPAM = IPAM{Type: "host-local", AssignIPv4: true, Subnet: usePodCIDR, PodCIDR: true}
			c.Policy.Kubernetes = true
		}),
		"discovery.conf": base(func(c *Config) {
			c.Etcd = Etcd{DiscoverySRV: "example.com", Username: "cni", PasswordFile: "/etc/calico/password"}
			c.Nodename = Nodename{File: "/opt/calico/nodename", FileSet: true, FileOptional: true}
			c.Log = Log{Level: slog.LevelDebug, File: "/tmp/cni.log", MaxSize: 10, MaxAge: 0, MaxCount: 3}
			c.Agent = Agent{Socket: "/run/other/agent.sock", SocketSet: true}
			c.DatastoreTimeout = 5 * time.Second
			c.IPAM.AssignIPv4, c.IPAM.AssignIPv6 = false, true
			c.DNS = DNS{
				Nameservers: []string{"10.96.0.10"}, Domain: "cluster.local",
				Search: []string{"svc.cluster.local"}, Options: []string{"ndots:5"},
			}
		}),
		"ptp.conf": base(func(c *Config) {
			c.Name, c.CNIVersion, c.Type, c.MTU = "ptp-net", "1.0.0", "ptp", 1500
			c.IPAM.IPv4Pools = []model.PoolRef{{CIDR: netip.MustParsePrefix("10.20.0.0/16")}}
		}),
		"bridge.conf": base(func(c *Config) {
			c.Name, c.CNIVersion, c.Type, c.IsGateway = "bridge-net", "1.0.0", "bridge", true
			c.IPAM.Gateway = netip.MustParseAddr("10.20.0.1")
		}),
		"runtime.conf": base(func(c *Config) {
			c.Etcd.Unnamed = true
			c.Runtime.IPs = []netip.Addr{netip.MustParseAddr("10.10.0.7"), netip.MustParseAddr("fd00:10::7")}
			c.Runtime.MAC = model.MAC{2, 0, 0, 0, 0, 7}
			c.Runtime.ArgsIPs = []netip.Addr{netip.MustParseAddr("10.10.0.8")}
			c.DNS = DNS{Nameservers: []string{"8.8.8.8"}, Search: []string{"internal.example.com"}, Options: []string{"ndots:2"}}
			c.PrevResult = json.RawMessage(`{"cniVersion": "1.1.0", "ips": [{"address": "10.10.0.7/32"}]}`)
			c.ValidAttachments = []Attachment{{"c1", "eth0"}, {"c2", "net1"}}
		}),
	}
	files, err := filepath.Glob("testdata/*.conf*")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(want) {
		t.Errorf("%d samples, %d wanted results", len(files), len(want))
	}
	for _, file := range files {
		got := plugins(t, file)
		if len(got) != 1 {
			t.Fatalf("%s: %d calico plugins", file, len(got))
		}
		opts := cmp.Options{
			cmpopts.IgnoreFields(Config{}, "Raw"),
			cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
			cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		}
		if diff := cmp.Diff(want[filepath.Base(file)], got[0], opts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}
