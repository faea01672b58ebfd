// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"testing"

	"github.com/calico-go/calico/netconf"
)

// FuzzPrevResult: for any ADD result from a runtime, its addresses are valid, its interfaces are the container's and
// the host's, and an error has a code.
func FuzzPrevResult(f *testing.F) {
	f.Add("1.0.0", []byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"cali1"},{"name":"eth0","sandbox":"/n"}],"ips":[{"address":"10.0.0.5/32","interface":1},{"address":"fd00::5/128","interface":7}]}`))
	f.Add("0.3.1", []byte(`{"ips":[{"version":"4","address":"10.0.0.5/32"}]}`))
	f.Add("0.2.0", []byte(`{"cniVersion":null,"ip4":{"ip":"10.0.0.5/32"}}`))
	f.Add("1.1.0", []byte(`{"cniVersion":"1.1.0","interfaces":[null]}`))
	f.Fuzz(func(t *testing.T, version string, data []byte) {
		p, err := PrevResult(&netconf.Config{CNIVersion: version, PrevResult: data}, Identity{IfName: "eth0", HostIf: "cali1"})
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatal(err)
			}
			return
		}
		for _, a := range p.Addrs {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Error(p.Addrs)
			}
		}
		if p.Pod != nil && (p.Pod.Name != "eth0" || p.Pod.Sandbox == "") || p.Host != nil && (p.Host.Name != "cali1" || p.Host.Sandbox != "") || len(p.Addrs) > len(p.IPs) {
			t.Errorf("%+v", p)
		}
	})
}
