// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"encoding/json"
	"errors"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
)

// FuzzResult: from any output of another IPAM plugin a pod gets only addresses and routes that it can have, without
// duplicates, or the error has a code.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"},{"address":"fd00::5/64"}],"routes":[{"dst":"0.0.0.0/0"},{"dst":"fd01::/64","gw":"fd00::1","mtu":1400}],"dns":{"nameservers":["10.0.0.2"]}}`))
	f.Add([]byte(`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.5/24","routes":[{"dst":"10.1.0.0/16"}]}}`))
	f.Add([]byte(`{"cniVersion":"1.1.0","ips":[null],"routes":[{"dst":"10.1.0.0/16","table":-1}]}`))
	f.Add([]byte(`{"cniVersion":"1.0.0","ips":[{"address":"::ffff:10.0.0.5/120"},{"address":"224.0.0.1/4"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := create.CreateFromBytes(data)
		if err != nil {
			return
		}
		result, err := types100.GetResult(raw)
		if err != nil {
			return
		}
		p := Plugin{Conf: &netconf.Config{}}
		p.Conf.IPAM.Type = "theirs"
		a, err := p.read(result)
		if err != nil {
			if _, ok := errors.AsType[*protocol.Error](err); !ok {
				t.Fatal(err)
			}
			return
		}
		seen := map[any]bool{}
		for _, addr := range a.Addrs {
			if seen[addr] || !addr.IsGlobalUnicast() || addr.Is4In6() || addr.Zone() != "" {
				t.Errorf("%v", a.Addrs)
			}
			seen[addr] = true
		}
		for _, r := range a.Routes {
			if !r.Dst.IsValid() || r.Dst != r.Dst.Masked() || r.Dst.Addr().Is4In6() || r.Check() != nil {
				t.Errorf("%+v", r)
			}
		}
		if conf, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "n", "prevResult": json.RawMessage(data)}); err == nil {
			if conf, err = inVersion(conf, "0.3.1"); err == nil && !json.Valid(conf) {
				t.Errorf("%s", conf)
			}
		}
	})
}
