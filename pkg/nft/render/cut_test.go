// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
)

// TestFlowKeys: each flow is read as it was written, with ports 0 too.
func TestFlowKeys(t *testing.T) {
	sets := make(map[string]table.Set)
	for _, s := range CutSets() {
		sets[s.Name] = s
	}
	for name, addrs := range map[string][2]netip.Addr{"cut4": {ip("10.0.0.1"), ip("10.0.0.2")}, "cut6": {ip("fd00::1"), ip("fd00::2")}} {
		for _, flow := range []Flow{{model.ProtocolUDP, addrs[0], addrs[1], 0, 0}, {model.ProtocolTCP, addrs[0], addrs[1], 80, 50000}} {
			if flow.Set() != name {
				t.Errorf("%+v is in set %s", flow, flow.Set())
			}
			if got, ok := ParseFlow(sets[name], flow.Key()); got != flow || !ok {
				t.Errorf("%+v is read as %+v, %t", flow, got, ok)
			}
		}
	}
}
