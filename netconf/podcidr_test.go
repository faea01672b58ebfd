// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithPodCIDRs(t *testing.T) {
	v4, v4b, v6 := netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("10.245.1.0/24"), netip.MustParsePrefix("fd00:1::/64")
	for _, tt := range []struct {
		name, in string
		cidrs    []netip.Prefix
		want     string
		err      string
	}{
		{"subnet", `{"name":"n","ipam":{"subnet":"usePodCidr"}}`, []netip.Prefix{v6, v4, v4b}, `{"ipam":{"subnet":"10.244.1.0/24"},"name":"n"}`, ""},
		{
			"ranges", `{"name":"n","ipam":{"ranges":[[{"subnet":"usePodCidr"}],[{"subnet":"usePodCidrIPv6"}]]}}`, []netip.Prefix{v4, v6},
			`{"ipam":{"ranges":[[{"subnet":"10.244.1.0/24"}],[{"subnet":"fd00:1::/64"}]]},"name":"n"}`, "",
		},
		{"none needed", `{"name":"n" , "ipam":{"subnet":"10.0.0.0/8"}}`, nil, `{"name":"n" , "ipam":{"subnet":"10.0.0.0/8"}}`, ""},
		{"none", `{"name":"n","ipam":{"subnet":"usePodCidr"}}`, nil, "", "ipam.subnet: usePodCidr: the Kubernetes Node has no IPv4 podCIDR, of []"},
		{"none of the family", `{"name":"n","ipam":{"subnet":"usePodCidrIPv6"}}`, []netip.Prefix{v4}, "",
			"ipam.subnet: usePodCidrIPv6: the Kubernetes Node has no IPv6 podCIDR, of [10.244.1.0/24]"},
	} {
		c, err := Parse([]byte(tt.in))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		got, err := c.WithPodCIDRs(tt.cidrs)
		if text(err) != tt.err || tt.err == "" && string(got) != tt.want {
			t.Errorf("%s: %s, %v", tt.name, got, err)
		}
	}
}

func TestWithoutPodCIDR(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"none", `{"name":"n" , "ipam":{"type":"host-local","subnet":"10.0.0.0/8"}}`, `{"name":"n" , "ipam":{"type":"host-local","subnet":"10.0.0.0/8"}}`},
		{"no ipam", `{"name":"n","ipam":null}`, `{"name":"n","ipam":null}`},
		{"subnet", `{"name":"n","ipam":{"subnet":"usePodCidr"}}`, `{"ipam":{"subnet":"0.0.0.0/0"},"name":"n"}`},
		{"in another case", `{"name":"n","ipam":{"subnet":"UsePodCIDR"}}`, `{"ipam":{"subnet":"0.0.0.0/0"},"name":"n"}`},
		{
			"ranges", `{"name":"n","ipam":{"ranges":[[{"subnet":"usePodCidr"}],[{"subnet":"usePodCidrIPv6"},{"subnet":"fd00::/8"}]]}}`,
			`{"ipam":{"ranges":[[{"subnet":"0.0.0.0/0"}],[{"subnet":"::/0"},{"subnet":"fd00::/8"}]]},"name":"n"}`,
		},
		{
			"the same words elsewhere", `{"name":"usePodCidr","x":"usePodCidr","usePodCidr":{"subnet":"usePodCidr"},"ipam":{"subnet":"usePodCidr","note":"usePodCidr","usePodCidr":1}}`,
			`{"ipam":{"note":"usePodCidr","subnet":"0.0.0.0/0","usePodCidr":1},"name":"usePodCidr","usePodCidr":{"subnet":"usePodCidr"},"x":"usePodCidr"}`,
		},
		{"only elsewhere", `{"name":"usePodCidr","ipam":{"type":"usePodCidr"}}`, `{"name":"usePodCidr","ipam":{"type":"usePodCidr"}}`},
		{
			"numbers and strange text", `{"name":"n","big":12345678901234567890.10,"ipam":{"subnet":"usePodCidr","big":9007199254740993,"tiny":1e-400,"text":"<&>\u2028\"","null":null}}`,
			`{"big":12345678901234567890.10,"ipam":{"big":9007199254740993,"null":null,"subnet":"0.0.0.0/0","text":"\u003c\u0026\u003e\u2028\"","tiny":1e-400},"name":"n"}`,
		},
		{"escaped", `{"name":"n","ipam":{"sub\u006eet":"useP\u006fdCidr"}}`, `{"ipam":{"subnet":"0.0.0.0/0"},"name":"n"}`},
	} {
		c, err := Parse([]byte(tt.in))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got, err := c.WithoutPodCIDR()
		if diff := cmp.Diff(tt.want, string(got)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
		if c.IPAM.PodCIDR == bytes.Equal(got, []byte(tt.in)) || !json.Valid(got) {
			t.Errorf("%s: PodCIDR %v", tt.name, c.IPAM.PodCIDR)
		}
	}
}
