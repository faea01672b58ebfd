// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/model"
)

var compareAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func TestParseAnnotations(t *testing.T) {
	const cni = "cni.projectcalico.org/"
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	for _, tt := range []struct {
		name, value string
		want        Annotations
		err         string // without the annotation's name and value
	}{
		{cni + "ipv4pools", `["10.1.0.0/16"," 10.2.0.0/16 "]`, Annotations{IPv4Pools: []model.PoolRef{{CIDR: prefix("10.1.0.0/16")}, {CIDR: prefix("10.2.0.0/16")}}}, ""},
		{cni + "ipv6pools", `["fd00::/64"]`, Annotations{IPv6Pools: []model.PoolRef{{CIDR: prefix("fd00::/64")}}}, ""},
		{cni + "ipv4pools", `["fd00::/64"]`, Annotations{}, "fd00::/64 is of the wrong family"},
		{cni + "ipv6pools", `["10.1.0.0/16"]`, Annotations{}, "10.1.0.0/16 is of the wrong family"},
		{cni + "ipv4pools", `["10.1.2.3/16"]`, Annotations{}, "10.1.2.3/16 has bits set after its length: want 10.1.0.0/16"},
		{cni + "ipv4pools", `["default-pool","10.2.0.0/16"]`, Annotations{IPv4Pools: []model.PoolRef{{Name: "default-pool"}, {CIDR: prefix("10.2.0.0/16")}}}, ""},
		{cni + "ipv4pools", `[" "]`, Annotations{}, `want the CIDR or the name of a pool, got ""`},
		{cni + "ipv4pools", `["10.1.0.0"]`, Annotations{}, `want the CIDR or the name of a pool, got "10.1.0.0"`},
		{cni + "ipv4pools", `10.1.0.0/16`, Annotations{}, `want a JSON list of strings, like ["…"]`},
		{cni + "ipv4pools", `[]`, Annotations{}, `want a JSON list of strings, like ["…"]`},
		{cni + "ipv4pools", `[null]`, Annotations{}, `want a JSON list of strings, got null in it`},
		{cni + "ipv4pools", `[1]`, Annotations{}, `want a JSON list of strings, like ["…"]`},
		{cni + "ipv4pools", ``, Annotations{}, `want a JSON list of strings, like ["…"]`},
		{cni + "ipAddrs", `["10.1.0.7","fd00::7","10.1.0.7"]`, Annotations{IPAddrs: []netip.Addr{addr("10.1.0.7"), addr("fd00::7")}}, ""},
		{cni + "ipAddrs", `["10.1.0.300"]`, Annotations{}, `want an IP address, got "10.1.0.300"`},
		{cni + "ipAddrs", `["224.0.0.1"]`, Annotations{}, `want an IP address, got "224.0.0.1"`},
		{cni + "ipAddrsNoIpam", `["192.0.2.1"]`, Annotations{IPAddrsNoIPAM: []netip.Addr{addr("192.0.2.1")}}, ""},
		{cni + "ipAddrsNoIpam", `["x"]`, Annotations{}, `want an IP address, got "x"`},
		{cni + "floatingIPs", `["192.0.2.1"]`, Annotations{FloatingIPs: []netip.Addr{addr("192.0.2.1")}}, ""},
		{cni + "floatingIPs", `{}`, Annotations{}, `want a JSON list of strings, like ["…"]`},
		{cni + "ipFamilies", `["IPv6"]`, Annotations{Families: &Families{V6: true}}, ""},
		{cni + "ipFamilies", `["IPv6","IPv4"]`, Annotations{Families: &Families{V4: true, V6: true}}, ""},
		{cni + "ipFamilies", `["v4"]`, Annotations{}, `want IPv4 or IPv6, got "v4"`},
		{cni + "hwAddr", ` 02:00:00:00:00:07 `, Annotations{MAC: model.MAC{2, 0, 0, 0, 0, 7}}, ""},
		{cni + "hwAddr", `ff:ff:ff:ff:ff:ff`, Annotations{}, "MAC address ff:ff:ff:ff:ff:ff: want that of a single interface, like 02:00:00:00:00:01"},
		{cni + "maxConnections", " 300 ", Annotations{MaxConnections: 300}, ""},
		{cni + "maxConnections", "1073741824", Annotations{MaxConnections: 1 << 30}, ""},
		{cni + "maxConnections", "1073741825", Annotations{}, "want a number, 1 to 1073741824"},
		{cni + "maxConnections", "0", Annotations{}, "want a number, 1 to 1073741824"},
		{cni + "maxConnections", "-1", Annotations{}, "want a number, 1 to 1073741824"},
		{cni + "maxConnections", "20k", Annotations{}, "want a number, 1 to 1073741824"},
		{cni + "maxConnections", "", Annotations{}, "want a number, 1 to 1073741824"},
		{"kubernetes.io/ingress-bandwidth", "10M", Annotations{Bandwidth: Bandwidth{Ingress: 10_000_000}}, ""},
		{"kubernetes.io/egress-bandwidth", "1Mi", Annotations{Bandwidth: Bandwidth{Egress: 1 << 20}}, ""},
		{"kubernetes.io/egress-bandwidth", "fast", Annotations{}, "want a number of bits per second from 1k to 1P, like 10M"},
		{cni + "allowedSourcePrefixes", `["10.0.0.0/8"]`, Annotations{}, "this version has no such thing: take the annotation away"},
		{"qos.projectcalico.org/ingressBandwidth", "1M", Annotations{}, "this version has no such thing: take the annotation away"},
		{cni + "podIP", "10.0.0.1/32", Annotations{}, ""}, // another version wrote it
		{"example.org/ipAddrs", "x", Annotations{}, ""},
	} {
		got, err := ParseAnnotations(map[string]string{tt.name: tt.value})
		if diff := cmp.Diff(tt.want, got, compareAddrs); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.name, tt.value, diff)
		}
		text, ok := "", err == nil
		if err != nil {
			text, ok = strings.CutPrefix(err.Error(), (&AnnotationError{Name: tt.name, Value: tt.value}).Error())
		}
		if !ok || text != tt.err {
			t.Errorf("%s %s: %v, want …%s", tt.name, tt.value, err, tt.err)
		}
	}
}

func TestParseAnnotationsTogether(t *testing.T) {
	_, err := ParseAnnotations(map[string]string{
		AnnotationIPAddrs: `["10.0.0.1"]`, AnnotationIPAddrsNoIPAM: `["10.0.0.1"]`, AnnotationHWAddr: "x", "qos.projectcalico.org/x": strings.Repeat("y", 300),
	})
	want := `annotation cni.projectcalico.org/hwAddr, "x": MAC address "x": want six bytes like 02:00:00:00:00:01
annotation cni.projectcalico.org/ipAddrsNoIpam, "[\"10.0.0.1\"]": set together with cni.projectcalico.org/ipAddrs: keep one of the two
annotation qos.projectcalico.org/x, "` + strings.Repeat("y", 200) + `": this version has no such thing: take the annotation away`
	if diff := cmp.Diff(want, text(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseRate(t *testing.T) {
	for in, want := range map[string]uint64{
		"1000": 1000, "1k": 1000, "1Ki": 1024, "10M": 10_000_000, "1.5G": 1_500_000_000, "+2k": 2000, ".5M": 500_000, "1e6": 1_000_000, "1E6": 1_000_000,
		"1P": 1e15, "1000000m": 1000, "1500.7": 1500, "2T": 2e12, "1Gi": 1 << 30, "999.9T": 999_900_000_000_000,
	} {
		if got, err := parseRate(in); got != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "M", "0", "999", "-1M", "2P", "1E", "1Ei", "1e3k", "1 M", "1m", "10Mbit", "0x1000", "1_000", "1/2", "1e99999999", "1e-3", "1..5M", "1e", "e3", "٣M",
		strings.Repeat("1", 1000), "10K", "10mi",
	} {
		if got, err := parseRate(in); err == nil {
			t.Errorf("%q: %d, want an error", in, got)
		}
	}
}

func TestParseBandwidth(t *testing.T) {
	parse := func(bandwidth string) (Bandwidth, string) {
		c, err := Parse([]byte(`{"name":"n","runtimeConfig":{"bandwidth":` + bandwidth + `}}`))
		return c.Runtime.Bandwidth, text(err)
	}
	for in, want := range map[string]Bandwidth{
		`null`: {}, `{}`: {}, `{"ingressRate":0,"ingressBurst":4294967295}`: {},
		`{"ingressRate":1000000,"ingressBurst":4294967295,"egressRate":20000000000,"egressBurst":1}`: {Ingress: 1_000_000, Egress: 20_000_000_000},
	} {
		if got, err := parse(in); got != want || err != "" {
			t.Errorf("%s: %+v, %s", in, got, err)
		}
	}
	for in, want := range map[string]string{
		`7`:                    "runtimeConfig.bandwidth: want an object, got number",
		`{"ingressRate":"1M"}`: `runtimeConfig.bandwidth.ingressRate: want bits per second, 0 or 1000 to 1000000000000000, got "1M"`,
		`{"egressRate":7}`:     `runtimeConfig.bandwidth.egressRate: want bits per second, 0 or 1000 to 1000000000000000, got 7`,
		`{"egressRate":-1000}`: `runtimeConfig.bandwidth.egressRate: want bits per second, 0 or 1000 to 1000000000000000, got -1000`,
	} {
		if got, err := parse(in); got != (Bandwidth{}) || err != want {
			t.Errorf("%s: %+v, %s", in, got, err)
		}
	}
}

func FuzzAnnotations(f *testing.F) {
	f.Add(AnnotationIPAddrs, `["10.0.0.1"]`)
	f.Add(AnnotationIPv4Pools, `["10.0.0.0/8"]`)
	f.Add(AnnotationIngress, "10M")
	f.Add(AnnotationHWAddr, "02:00:00:00:00:01")
	f.Add(AnnotationIPFamilies, `["IPv4"]`)
	f.Fuzz(func(t *testing.T, name, value string) {
		a, err := ParseAnnotations(map[string]string{name: value})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "annotation "+name) {
				t.Errorf("%q does not name %q", err, name)
			}
			return
		}
		for _, rate := range []uint64{a.Bandwidth.Ingress, a.Bandwidth.Egress} {
			if rate != 0 && (rate < minRate || rate > maxRate) {
				t.Errorf("%s %q: %d", name, value, rate)
			}
		}
	})
}
