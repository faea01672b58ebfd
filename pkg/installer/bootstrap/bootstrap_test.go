// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/test/etcd"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func ca(t *testing.T) *authority {
	t.Helper()
	p, err := newAuthority("calico-etcd-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	a, err := parseAuthority(p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestDue(t *testing.T) {
	a, other := ca(t), ca(t)
	l := leaf{name: "etcd", server: true, hosts: []string{"localhost", "10.0.0.1", "fd00::1"}}
	p, err := a.issue(l, now, leafLife)
	if err != nil {
		t.Fatal(err)
	}
	renamed, elsewhere := l, l
	renamed.name = "node"
	elsewhere.hosts = l.hosts[:2]
	tests := []struct {
		name  string
		by    *authority
		pair  pair
		leaf  leaf
		after time.Duration
		want  string
	}{
		{"new", a, p, l, 0, ""},
		{"half of its life", a, p, l, leafLife / 2, ""},
		{"two thirds", a, p, l, leafLife * 2 / 3, "two thirds of its lifetime are over"},
		{"long ago", a, p, l, leafLife * 2, "two thirds"},
		{"none", a, pair{}, l, 0, "there is none"},
		{"no key", a, pair{cert: p.cert}, l, 0, "tls: "},
		{"nonsense", a, pair{[]byte("x"), []byte("y")}, l, 0, "tls: "},
		{"another's", other, p, l, 0, "another authority"},
		{"another name", a, p, renamed, 0, `it is "etcd"'s`},
		{"another member", a, p, elsewhere, 0, "it is for [localhost 10.0.0.1 fd00::1]"},
	}
	for _, test := range tests {
		got := test.by.due(test.pair, test.leaf, now.Add(test.after))
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	if _, err := parseAuthority(p); err == nil {
		t.Error("a server's certificate was taken for an authority's")
	}
}

// TestLeaves verifies issued certificates as etcd and its clients do.
func TestLeaves(t *testing.T) {
	a := ca(t)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	for _, b := range bundles([]member{{"a", netip.MustParseAddr("10.0.0.1")}}) {
		for _, l := range b.leaves {
			p, err := a.issue(l.leaf, now, leafLife)
			if err != nil {
				t.Fatal(err)
			}
			both, err := tls.X509KeyPair(p.cert, p.key)
			if err != nil {
				t.Fatal(err)
			}
			for usage, want := range map[x509.ExtKeyUsage]bool{x509.ExtKeyUsageServerAuth: l.server, x509.ExtKeyUsageClientAuth: l.client} {
				_, err := both.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now.Add(-skew / 2), KeyUsages: []x509.ExtKeyUsage{usage}})
				if (err == nil) != want {
					t.Errorf("%s of %s, usage %v: %v", l.name, b.secret, usage, err)
				}
			}
			if err := both.Leaf.VerifyHostname("10.0.0.1"); (err == nil) != l.server {
				t.Errorf("%s of %s as 10.0.0.1: %v", l.name, b.secret, err)
			}
		}
	}
}

func node(name string, age time.Duration, labels map[string]string, addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func TestChooseMembers(t *testing.T) {
	control := map[string]string{controlPlane: ""}
	old, young := node("z", 2, control, "10.0.0.1"), node("a", 1, control, "fd00::2", "10.0.0.2")
	worker, bare, v6 := node("w", 3, nil, "10.0.0.3"), node("b", 9, control), node("c", 9, control, "fd00::4")
	leaving := node("l", 9, control, "10.0.0.5")
	leaving.DeletionTimestamp = &leaving.CreationTimestamp
	tests := []struct {
		name  string
		nodes []*corev1.Node
		n     int
		want  string
	}{
		{"the oldest of the control plane", []*corev1.Node{young, worker, old}, 1, "z=10.0.0.1"},
		{"two", []*corev1.Node{young, worker, old}, 2, "z=10.0.0.1 a=10.0.0.2"},
		{"workers are not taken to make up the number", []*corev1.Node{young, worker, old}, 3, ""},
		{"a provider's cluster", []*corev1.Node{worker}, 1, ""},
		{"IPv6 alone", []*corev1.Node{v6}, 1, "c=fd00::4"},
		{"no address yet, leaving", []*corev1.Node{bare, leaving}, 1, ""},
		{"nobody", nil, 1, ""},
	}
	for _, test := range tests {
		members, err := chooseMembers(test.nodes, test.n)
		var got []string
		for _, m := range members {
			got = append(got, m.node+"="+m.addr.String())
		}
		if (err != nil) != (test.want == "") || strings.Join(got, " ") != test.want {
			t.Errorf("%s: %v, %v; want %s", test.name, got, err, test.want)
		}
		if err != nil {
			continue
		}
		back, err := parseMembers(formatChosen(members, nil)[clusterKey])
		if diff := cmp.Diff(members, back, cmp.AllowUnexported(member{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
			t.Errorf("%s: read back (-want +got): %v\n%s", test.name, err, diff)
		}
	}
	for _, bad := range []string{"", "a", "a=10.0.0.1", "a=https://10.0.0.1:2480,"} {
		if m, err := parseMembers(bad); err == nil {
			t.Errorf("%q: members %v", bad, m)
		}
	}
}

// TestEtcdConfig: etcd accepts the configuration of a member's pod, at addresses of both families.
func TestEtcdConfig(t *testing.T) {
	const cluster = "n1=https://172.31.0.11:2480,n2=https://[fd00:31::12]:2480"
	for node, host := range map[string]string{"n1": "172.31.0.11", "n2": "[fd00:31::12]"} {
		text, err := EtcdConfig([]string{"NODE_NAME=" + node, "INITIAL_CLUSTER=" + cluster, "INITIAL_CLUSTER_TOKEN=calico-1=x"})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "etcd.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := embed.ConfigFromFile(file) // which checks it
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		got := []string{c.Name, c.ListenClientUrls[0].Host, c.AdvertiseClientUrls[0].Host, c.ListenPeerUrls[0].Host, c.AdvertisePeerUrls[0].Host,
			c.InitialCluster, c.InitialClusterToken, strings.Join(c.PeerTLSInfo.AllowedCNs, ""), c.PeerTLSInfo.CertFile, c.ClientTLSInfo.KeyFile, c.ListenMetricsUrls[0].Host, c.TlsMinVersion}
		want := []string{node, host + ":2479", host + ":2479", host + ":2480", host + ":2480",
			cluster, "calico-1=x", "calico-etcd-peer", "/certs/peer.crt", "/certs/server.key", "127.0.0.1:2481", "TLS1.3"}
		if diff := cmp.Diff(want, got); diff != "" || !c.ClientTLSInfo.ClientCertAuth || !c.PeerTLSInfo.ClientCertAuth || c.QuotaBackendBytes != 2<<30 || c.AutoCompactionRetention != "5m" {
			t.Errorf("%s (-want +got):\n%s%s", node, diff, text)
		}
	}
	for _, bad := range [][]string{nil, {"NODE_NAME=n3", "INITIAL_CLUSTER=" + cluster}, {"NODE_NAME=n1", "INITIAL_CLUSTER=n1=https://fd00::1:2480"}} {
		if text, err := EtcdConfig(bad); err == nil {
			t.Errorf("%q: %s", bad, text)
		}
	}
}

func TestPodSubnets(t *testing.T) {
	tests := []struct{ config, want, err string }{
		{"networking:\n  podSubnet: 10.244.0.0/16\n", "[10.244.0.0/16]", ""},
		{"networking: {podSubnet: '10.1.2.3/16, fd00::/48'}", "[10.1.0.0/16 fd00::/48]", ""},
		{"networking: {}", "[]", ""},
		{"", "[]", ""},
		{"networking: {podSubnet: 10.244.0.0}", "", "want a network"},
		{"networking: [", "", "ClusterConfiguration: "},
	}
	for _, test := range tests {
		got, err := podSubnets(test.config)
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q: %v, want %s", test.config, err, test.err)
			}
		case err != nil:
			t.Errorf("%q: %v", test.config, err)
		default:
			texts := make([]string, len(got))
			for i, p := range got {
				texts[i] = p.String()
			}
			if s := "[" + strings.Join(texts, " ") + "]"; s != test.want {
				t.Errorf("%q: %s, want %s", test.config, s, test.want)
			}
		}
	}
}

func TestParseConfig(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	api := kube.Config{Name: "calico-bootstrap", Logger: log}
	pools := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/48")}
	usual := model.Pool{VXLANMode: model.EncapCrossSubnet, Masquerade: true}
	tests := []struct {
		args, environ string
		want          Config // Pool4 and Pool6: the usual, where zero
		err           string
	}{
		{"", "", Config{Own: true, Members: 1, Kube: api, Logger: log}, ""},
		{"renew", "ETCD_MEMBERS=3", Config{Own: true, Renew: true, Members: 3, Kube: api, Logger: log}, ""},
		{"sign", "", Config{Own: true, Renew: true, Sign: true, Members: 1, Kube: api, Logger: log}, ""},
		{"sign-nsm", "", Config{SignNSM: true, Members: 1, Kube: api, Logger: log}, ""},
		{"data", "ETCD_ENDPOINTS=http://a:1,http://b:2 CALICO_IPV4POOL_CIDR=10.1.0.0/16 CALICO_IPV6POOL_CIDR=fd00::/48",
			Config{Members: 1, Pools: pools, Store: store.Config{Endpoints: []string{"http://a:1", "http://b:2"}, Logger: log}, Kube: api, Logger: log}, ""},
		{"", "CALICO_IPV4POOL_ENCAPSULATION=IPIPCrossSubnet CALICO_IPV4POOL_BLOCK_SIZE=28 CALICO_IPV6POOL_ENCAPSULATION=VXLAN CALICO_IPV6POOL_NAT_OUTGOING=false",
			Config{
				Own: true, Members: 1, Kube: api, Logger: log,
				Pool4: model.Pool{IPIP: "tunl0", IPIPMode: model.EncapCrossSubnet, BlockSize: 28, Masquerade: true},
				Pool6: model.Pool{VXLANMode: model.EncapAlways},
			}, ""},
		{"", "NO_DEFAULT_POOLS=true", Config{Own: true, NoPools: true, Members: 1, Kube: api, Logger: log}, ""},
		{"again", "", Config{}, `"again" is not understood`},
		{"", "ETCD_MEMBERS=2", Config{}, `ETCD_MEMBERS: "2": want 1 or 3`},
		{"", "CALICO_IPV4POOL_CIDR=fd00::/48", Config{}, "CALICO_IPV4POOL_CIDR: "},
		{"", "CALICO_IPV6POOL_CIDR=x", Config{}, `CALICO_IPV6POOL_CIDR: pod network "x"`},
		{"", "CALICO_IPV6POOL_ENCAPSULATION=vxlan", Config{}, `CALICO_IPV6POOL_ENCAPSULATION: "vxlan": want one of IPIP, IPIPCrossSubnet, None, VXLAN, VXLANCrossSubnet`},
		{"", "CALICO_IPV4POOL_BLOCK_SIZE=/26", Config{}, `CALICO_IPV4POOL_BLOCK_SIZE: "/26"`},
		{"", "CALICO_IPV4POOL_NAT_OUTGOING=no", Config{}, `CALICO_IPV4POOL_NAT_OUTGOING: "no": want true or false`},
	}
	for _, test := range tests {
		got, err := ParseConfig(strings.Fields(test.args), strings.Fields(test.environ), log)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s %s: %v, want %s", test.args, test.environ, err, test.err)
			}
			continue
		}
		for _, p := range []*model.Pool{&test.want.Pool4, &test.want.Pool6} {
			if *p == (model.Pool{}) {
				*p = usual
			}
		}
		same := cmp.Options{cmp.Comparer(func(a, b *slog.Logger) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
		if diff := cmp.Diff(test.want, got, same); err != nil || diff != "" {
			t.Errorf("%s %s: %v\n%s", test.args, test.environ, err, diff)
		}
	}
}

// TestFill fills an empty etcd, and leaves one alone that was changed since.
func TestFill(t *testing.T) {
	s := etcd.New(t)
	pool := netip.MustParsePrefix("10.1.0.0/16")
	usual := model.Pool{VXLANMode: model.EncapCrossSubnet, Masquerade: true}
	second := netip.MustParsePrefix("10.3.0.0/16")
	wrote, err := fill(t.Context(), s.Store, []netip.Prefix{pool, second}, Config{Own: true, Pool4: usual})
	if err != nil || len(wrote) != 7 {
		t.Fatalf("wrote %v: %v", wrote, err)
	}
	for cidr, name := range map[netip.Prefix]string{pool: "default-ipv4-ippool", second: ""} { // no two have the same name
		want := model.Pool{CIDR: cidr, VXLANMode: model.EncapCrossSubnet, Masquerade: true, IPAM: true, BlockSize: 26, Meta: model.Meta{Name: name}}
		if got := s.Get(model.PoolKey{CIDR: cidr}); got != any(want) {
			t.Errorf("pool %+v, want %+v", got, want)
		}
	}
	s.Put(model.ReadyKey{}, model.Ready(false))
	s.Remove(model.GlobalConfigKey{Name: "FailsafeInboundHostPorts"})
	guid := s.Get(model.GlobalConfigKey{Name: "ClusterGUID"})
	wrote, err = fill(t.Context(), s.Store, []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, Config{})
	if err != nil || len(wrote) != 0 {
		t.Errorf("the second time it wrote %v: %v", wrote, err)
	}
	if s.Get(model.ReadyKey{}) != any(model.Ready(false)) || s.Get(model.GlobalConfigKey{Name: "ClusterGUID"}) != guid {
		t.Error("what was there was changed")
	}
	// Maintenance restores nothing that was deleted, but everything if nothing is left.
	renew := Config{Own: true, Renew: true}
	s.Remove(model.PoolKey{CIDR: pool})
	s.Remove(model.PoolKey{CIDR: second})
	if wrote, err = fill(t.Context(), s.Store, []netip.Prefix{pool}, renew); err != nil || len(wrote) != 0 {
		t.Errorf("maintenance brought back %v: %v", wrote, err)
	}
	s.Remove(model.GlobalConfigKey{Name: "ClusterGUID"}) // as after a restore
	if wrote, err = fill(t.Context(), s.Store, nil, renew); err != nil || len(wrote) != 1 {
		t.Errorf("maintenance gave the cluster no GUID: %v: %v", wrote, err)
	}
	guid = s.Get(model.GlobalConfigKey{Name: "ClusterGUID"})
	s.Remove(model.ReadyKey{})
	s.Remove(model.GlobalConfigKey{Name: "FailsafeOutboundHostPorts"})
	if wrote, err = fill(t.Context(), s.Store, []netip.Prefix{pool}, renew); err != nil || len(wrote) != 4 {
		t.Errorf("an etcd that an agent named before it was filled: wrote %v: %v", wrote, err)
	}
	if s.Get(model.GlobalConfigKey{Name: "ClusterGUID"}) != guid {
		t.Error("the cluster has another GUID")
	}
}

// TestFillPools: the default pools are as the settings of their families say, and what no pool can be is refused.
func TestFillPools(t *testing.T) {
	four, six := netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")
	for _, test := range []struct {
		environ string
		want    []model.Pool
		err     string
	}{
		{"CALICO_IPV4POOL_BLOCK_SIZE=28 CALICO_IPV4POOL_ENCAPSULATION=IPIP CALICO_IPV6POOL_ENCAPSULATION=None CALICO_IPV6POOL_NAT_OUTGOING=false", []model.Pool{
			{CIDR: four, IPIP: "tunl0", IPIPMode: model.EncapAlways, Masquerade: true, IPAM: true, BlockSize: 28, Meta: model.Meta{Name: "default-ipv4-ippool"}},
			{CIDR: six, IPAM: true, BlockSize: 122, Meta: model.Meta{Name: "default-ipv6-ippool"}},
		}, ""},
		{"NO_DEFAULT_POOLS=true", nil, ""},
		{"CALICO_IPV4POOL_BLOCK_SIZE=20", nil, "a block is larger than the pool"},
		{"CALICO_IPV6POOL_ENCAPSULATION=IPIP", nil, "IPIP is for IPv4 pools only"},
	} {
		s := etcd.New(t)
		cfg, err := ParseConfig(nil, strings.Fields(test.environ+" CALICO_IPV4POOL_CIDR=10.1.0.0/24 CALICO_IPV6POOL_CIDR=fd00::/64"), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		pools, err := (&bootstrapper{cfg: cfg}).pools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = fill(t.Context(), s.Store, pools, cfg); test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v, want %s", test.environ, err, test.err)
			}
			continue
		}
		if err != nil || s.Get(model.ReadyKey{}) != any(model.Ready(true)) {
			t.Fatalf("%s: %v", test.environ, err)
		}
		var got []model.Pool
		for _, cidr := range []netip.Prefix{four, six} {
			if p, ok := s.Get(model.PoolKey{CIDR: cidr}).(model.Pool); ok {
				got = append(got, p)
			}
		}
		if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.environ, diff)
		}
	}
}

// TestAdmitAndRevoke: a node that asks while it is being revoked has no user afterwards.
func TestAdmitAndRevoke(t *testing.T) {
	ctx, s := t.Context(), etcd.New(t).Store
	for i := range 25 {
		node := fmt.Sprintf("n%d", i)
		var signer sync.WaitGroup
		signer.Go(func() { _ = admit(ctx, s, node, nodeUser(node, "uid")) }) // it may be refused, before or after, or meet a user that is gone
		if err := revoke(ctx, s, node, "uid", false); err != nil {
			t.Fatal(err)
		}
		signer.Wait()
		if left, err := s.Users(ctx, nodePrefix); err != nil || len(left) > 0 {
			t.Fatalf("users of revoked nodes: %v, %v", left, err)
		}
	}
}

// TestUsers: a node may write what is its own, and what IPAM needs of the rest.
func TestUsers(t *testing.T) {
	for _, u := range append(users(), nodeUser("n1", "uid")) {
		for _, prefix := range u.Write {
			if !strings.HasPrefix(prefix, model.Root) || !strings.HasSuffix(prefix, "/") {
				t.Errorf("%s may write %s: that is no part of the data model", u.Name, prefix)
			}
		}
	}
	u := nodeUser("n1", "uid")
	if u.Name != "node:n1:uid" { // which is never that of another user
		t.Errorf("user %s", u.Name)
	}
	may := func(k model.Key) bool {
		return slices.ContainsFunc(u.Write, func(prefix string) bool { return strings.HasPrefix(k.Path(), prefix) })
	}
	block := netip.MustParsePrefix("10.0.0.0/26")
	for _, host := range []string{"n1", "n11", "n", "N1"} {
		for _, k := range []model.Key{
			model.HostMetadataKey{Host: host}, model.HostConfigKey{Host: host, Name: "InterfacePrefix"}, model.StatusKey{Host: host}, model.LastStatusKey{Host: host},
			model.BGPHostKey{Host: host, Field: model.BGPHostIPv4}, model.WorkloadEndpointKey{Host: host, Orchestrator: "k8s", Workload: "a.b", Endpoint: "eth0"},
		} {
			if may(k) != (host == "n1") {
				t.Errorf("n1 may write %s: %v", k.Path(), may(k))
			}
		}
	}
	for _, k := range []model.Key{model.BlockKey{CIDR: block}, model.HandleKey{ID: "h"}, model.AffinityKey{Host: "n1", CIDR: block}, model.AffinityKey{Host: "n2", CIDR: block}} {
		if !may(k) {
			t.Errorf("n1 may not write %s: no address could be given", k.Path())
		}
	}
	for _, k := range []model.Key{
		model.ReadyKey{}, model.IPAMConfigKey{}, model.PoolKey{CIDR: block}, model.GlobalConfigKey{Name: "ClusterGUID"}, model.GlobalConfigKey{Name: "InterfacePrefix"},
		model.PolicyKey{Tier: "default", Policy: "p"}, model.ProfileRulesKey{Profile: "p"},
	} {
		if may(k) {
			t.Errorf("n1 may write %s", k.Path())
		}
	}
}
