// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
