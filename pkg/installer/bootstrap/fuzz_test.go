// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// FuzzMembers: members in a ConfigMap are written back as they were read, and each is valid: etcd's own configuration has what was read.
func FuzzMembers(f *testing.F) {
	f.Add("a=https://192.0.2.1:2480,b=https://[2001:db8::1]:2480")
	for _, bad := range []string{"a=https://192.0.2.1:2480,a=https://192.0.2.2:2480", "=https://192.0.2.1:2480", "a=https://[fe80::1%25eth0]:2480", "a=https://[fe80::1%eth0]:2480",
		"a=https://[::ffff:192.0.2.1]:2480", "a=https://192.0.2.1:2379", "a=192.0.2.1:2480", "a\n=https://192.0.2.1:2480", ""} {
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, cluster string) {
		members, err := parseMembers(cluster)
		if !utf8.ValidString(cluster) {
			return // a ConfigMap's is
		}
		if err != nil {
			if !strings.Contains(err.Error(), membersConfig) {
				t.Fatal(err)
			}
			return
		}
		if again, err := parseMembers(formatChosen(members, nil)[clusterKey]); err != nil || !slices.Equal(members, again) {
			t.Fatalf("%v are %v, %v", members, again, err)
		}
		seen := map[string]bool{}
		for _, m := range members {
			if m.node == "" || seen[m.node] || m.addr.Zone() != "" || m.addr.Is4In6() || m.addr.IsUnspecified() {
				t.Fatalf("%q: %+v", cluster, m)
			}
			seen[m.node] = true
			text, err := EtcdConfig([]string{"NODE_NAME=" + m.node, "INITIAL_CLUSTER=" + cluster})
			var config map[string]any
			if err != nil || json.Unmarshal(text, &config) != nil || config["initial-cluster"] != cluster {
				t.Fatalf("%q: %v, %s", cluster, err, text)
			}
		}
	})
}

// FuzzPools: networks from kubeadm or a ConfigMap are valid pools.
func FuzzPools(f *testing.F) {
	f.Add("networking:\n  podSubnet: 10.244.0.0/16, fd00::/56\n")
	f.Add("networking:\n  podSubnet: ::ffff:10.0.0.0/104\n")
	f.Add("networking: &a [*a]")
	f.Fuzz(func(t *testing.T, config string) {
		pools, err := podSubnets(config)
		if err != nil {
			return
		}
		for _, p := range pools {
			key := model.PoolKey{CIDR: p}
			if again, err := model.ParseKey(key.Path()); err != nil || again != key {
				t.Errorf("%v: %v, %v", p, again, err)
			}
		}
		if again, err := parsePools(formatChosen(nil, pools)[poolsKey]); err != nil || len(again) != len(pools) {
			t.Errorf("%v are %v, %v", pools, again, err)
		}
	})
}

// FuzzCertificate: the content of a secret is accepted as an authority, or a leaf, only if it is one, and has the key.
func FuzzCertificate(f *testing.F) {
	now := time.Unix(1_700_000_000, 0)
	made, err := newAuthority("calico-etcd-ca", now)
	if err != nil {
		f.Fatal(err)
	}
	ca, err := parseAuthority(made)
	if err != nil {
		f.Fatal(err)
	}
	l := leaf{name: "n", client: true, hosts: []string{"192.0.2.1", "localhost"}}
	p, err := ca.issue(l, now, leafLife)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p.cert, p.key)
	f.Add(made.cert, made.key)
	f.Add(append(p.cert, made.cert...), p.key)
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		due := ca.due(pair{cert, key}, l, now)
		both, err := tls.X509KeyPair(cert, key)
		if due == "" && (err != nil || both.Leaf.Subject.CommonName != "n" || cmp.Diff(both.Leaf.DNSNames, []string{"localhost"}) != "") {
			t.Fatal(err)
		}
		if other, err := parseAuthority(pair{cert, key}); err == nil && !other.cert.IsCA {
			t.Fatal("no authority")
		}
		if r, err := x509.ParseCertificateRequest(cert); err == nil && r.CheckSignature() == nil {
			if _, err := ca.certify(l, r.PublicKey, now, nodeLife); err != nil {
				t.Log(err) // a key that can't be certified
			}
		}
	})
}
