// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
)

// TestFlowKeys: each flow is read as it was written, that of ports 0 too.
func TestFlowKeys(t *testing.T) {
	sets := make(map[string]table.Set)
	for _, s := range CutSets() {
		sets[s.Name] = s
	}
	for _, addrs := range [][2]netip.Addr{{ip("10.0.0.1"), ip("10.0.0.2")}, {ip("fd00::1"), ip("fd00::2")}} {
		src, dst := addrs[0], addrs[1]
		for name, flow := range map[string]Flow{
			"cut":           {model.ProtocolUDP, src, dst, 0, 0, false},
			"cut-portless":  {model.ProtocolUDP, src, dst, 0, 0, true},
			"cut-from-port": {Protocol: model.ProtocolUDP, Src: src},
			"cut-to-port":   {Protocol: model.ProtocolUDP, Dst: dst},
			"cut-from":      {Protocol: model.ProtocolUDP, Src: src, AnyPorts: true},
			"cut-to":        {Protocol: model.ProtocolUDP, Dst: dst, AnyPorts: true},
		} {
			set := flow.Set()
			if set != name+"4" && set != name+"6" {
				t.Errorf("%+v is not in set %s", flow, name)
			}
			if got, ok := ParseFlow(sets[set], flow.Key()); got != flow || !ok || got.IsCoarse() != (name != "cut") {
				t.Errorf("%+v is read as %+v, %t", flow, got, ok)
			}
		}
		for _, other := range []Flow{{Protocol: 253, Src: src, Dst: dst}, {Protocol: 253, Src: src}, {Protocol: 253, Dst: dst}} {
			if got, ok := ParseFlow(sets[other.Set()], other.Key()); got != other || !ok || got.IsCoarse() == (other.Src.IsValid() && other.Dst.IsValid()) {
				t.Errorf("%+v is read as %+v, %t", other, got, ok)
			}
		}
	}
}
