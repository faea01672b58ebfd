// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestMetadata: what a machine asks of metadata goes there whatever policy says, or is refused; a pod's is as everything else is.
func TestMetadata(t *testing.T) {
	e := NewEngine("h1")
	e.SetPrefixes([]string{"cali", "tap"})
	for _, name := range []string{"tap1", "cali1"} {
		k := model.WorkloadEndpointKey{Host: "h1", Orchestrator: "o", Workload: name, Endpoint: "eth0"}
		a := map[string]string{"tap1": "10.0.0.1", "cali1": "10.0.0.2"}[name]
		e.Update(model.Entry{Path: k.Path(), Key: k, Revision: 1, Created: 1, Value: model.WorkloadEndpoint{
			State: model.StateActive, Name: name, MAC: model.MAC{2, 0, 0, 0, 0, 1}, IPv4Nets: []netip.Prefix{netip.PrefixFrom(addr(a), 32)}}})
	}
	st := &State{}
	if err := st.Apply(e.Flush()); err != nil {
		t.Fatal(err)
	}
	asked, there := MetadataService(), netip.MustParseAddrPort("127.0.0.1:8775")
	for _, tt := range []struct {
		name string
		to   netip.AddrPort // where metadata is
		p    Packet
		want Verdict
	}{
		{"a machine", there, Packet{In: "tap1", Src: addr("10.0.0.1"), Dst: there.Addr(), DstPort: there.Port(), Called: asked}, Accept},
		{"a machine, before it is led there", there, Packet{In: "tap1", Out: "eth0", Src: addr("10.0.0.1"), Dst: asked.Addr(), DstPort: asked.Port()}, Accept},
		{"there is none", netip.AddrPort{}, Packet{In: "tap1", Out: "eth0", Src: addr("10.0.0.1"), Dst: asked.Addr(), DstPort: asked.Port()}, Drop},
		{"another port", there, Packet{In: "tap1", Src: addr("10.0.0.1"), Dst: there.Addr(), DstPort: 22, Called: asked}, Drop},
		{"the server itself", there, Packet{In: "tap1", Src: addr("10.0.0.1"), Dst: there.Addr(), DstPort: there.Port()}, Drop},
		{"another's address", there, Packet{In: "tap1", Src: addr("10.0.0.2"), Dst: there.Addr(), DstPort: there.Port(), Called: asked}, Drop},
		{"another's MAC address", there, Packet{In: "tap1", MAC: model.MAC{2, 9}, Src: addr("10.0.0.1"), Dst: there.Addr(), DstPort: there.Port(), Called: asked}, Drop},
		{"a pod", there, Packet{In: "cali1", Out: "eth0", Src: addr("10.0.0.2"), Dst: asked.Addr(), DstPort: asked.Port()}, Drop},
	} {
		tt.p.Protocol = model.ProtocolTCP
		if r := Evaluate(Settings{Prefixes: []string{"cali", "tap"}, EndpointToHost: ToHostDrop, Metadata: tt.to}, st, tt.p); r.Verdict != tt.want {
			t.Errorf("%s: %s, want %s: %v", tt.name, r.Verdict, tt.want, r.Trail)
		}
	}
}
