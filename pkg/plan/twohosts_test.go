// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestOneAddressOnTwoHosts has an endpoint of host-b, then one of host-c with the same address, as a failed start or a move leaves
// them. The block and the allocation are host-b's. Which of the two has the address follows from what the hosts report, whatever
// comes first, and all hosts agree.
func TestOneAddressOnTwoHosts(t *testing.T) {
	addr := netip.MustParseAddr("10.65.0.3")
	up, down := model.EndpointUp, model.EndpointDown
	for name, c := range map[string]struct {
		b, c       model.EndpointStatus
		dead       string // its agent no longer reports
		ext        bool   // host-c's has it as ext_ip alone
		want       string
		onB        string // where host-b leads it, "" = as all do: to its own endpoint where that is up
		wantReason string
	}{
		"a failed start":               {b: down, c: up, want: "host-c", wantReason: "hosts host-b (not up), host-c"},
		"a failed move":                {b: up, c: down, want: "host-b", wantReason: "hosts host-b, host-c (not up)"},
		"a move that has yet to begin": {b: up, want: "host-b"},
		"a move that has yet to end":   {b: up, c: up, want: "host-c", onB: "host-b"},
		"both down":                    {b: down, c: down, want: "host-c"},
		"nothing is reported":          {want: "host-c"},
		"the older host is dead":       {b: up, dead: "host-b", want: "host-c"},
		"the younger host is dead":     {b: up, c: up, dead: "host-c", want: "host-b"},
		"an ext_ip":                    {b: down, c: down, ext: true, want: "host-b"},
	} {
		t.Run(name, func(t *testing.T) {
			var entries []model.Entry
			put := func(k model.Key, v any) {
				n := int64(len(entries) + 1)
				entries = append(entries, model.Entry{Path: k.Path(), Key: k, Value: v, Revision: n, Created: n})
			}
			endpoint := func(host string) model.WorkloadEndpointKey {
				return model.WorkloadEndpointKey{Host: host, Orchestrator: "openstack", Workload: "vm", Endpoint: "eth0"}
			}
			pool := netip.MustParsePrefix("10.65.0.0/16")
			put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool, IPAM: true, VXLANMode: model.EncapAlways})
			for host, a := range map[string]string{"host-a": "172.18.0.1", "host-b": "172.18.0.2", "host-c": "172.18.0.3"} {
				put(model.HostMetadataKey{Host: host}, model.HostMetadata{})
				put(model.BGPHostKey{Host: host, Field: model.BGPHostIPv4}, model.Text(a))
				put(model.LastStatusKey{Host: host}, model.Status{})
				if host != c.dead {
					put(model.StatusKey{Host: host}, model.Status{})
				}
			}
			put(model.BlockKey{CIDR: netip.MustParsePrefix("10.65.0.0/30")}, model.Block{
				CIDR: netip.MustParsePrefix("10.65.0.0/30"), Affinity: "host-b", Allocations: []int{model.Free, model.Free, model.Free, 0},
				Attributes: []model.Attributes{{HandleID: "x", Secondary: map[string]string{"node": "host-b"}}}, Unallocated: []int{0, 1, 2},
			})
			own := model.WorkloadEndpoint{State: model.StateActive, IPv4Nets: []netip.Prefix{single(addr)}}
			put(endpoint("host-b"), own)
			if c.ext {
				own = model.WorkloadEndpoint{State: model.StateActive, IPv4NAT: []model.NAT{{ExtIP: addr}}}
			}
			put(endpoint("host-c"), own)
			for host, status := range map[string]model.EndpointStatus{"host-b": c.b, "host-c": c.c} {
				if status != "" {
					put(model.WorkloadStatusKey(endpoint(host)), status)
				}
			}
			for _, self := range []string{"host-a", "host-b", "host-c"} {
				e := newEngine(self, Settings{})
				e.SetLinks(Links{Links: []Link{{Name: "eth0", Up: true, Uplink: true, Addrs: []netip.Prefix{netip.MustParsePrefix(map[string]string{
					"host-a": "172.18.0.1/24", "host-b": "172.18.0.2/24", "host-c": "172.18.0.3/24"}[self])}}}})
				var st State
				for _, entry := range entries {
					e.Update(entry)
					st.Apply(e.compute())
				}
				if self == c.dead {
					continue
				}
				leads := st.Routes[netip.MustParsePrefix("10.65.0.0/30")].Host
				if _, ours := e.allocations.holder(single(addr)); ours {
					leads = self
				} else if r, ok := st.Routes[single(addr)]; ok {
					leads = r.Host
				}
				if want := cmp.Or(c.onB, c.want); leads != c.want && (self != "host-b" || leads != want) {
					t.Errorf("%s leads %s to %q, want %s\n%s", self, addr, leads, want, st)
				}
				if _, to := st.Advertisements[single(addr)]; to != (self == "host-c" && self == c.want) {
					t.Errorf("on %s: advertised: %t", self, to)
				}
				reason := st.Problems[ProblemID{sameEndpointAddress, addr.String()}].Reason
				if !strings.Contains(reason, c.wantReason) || !strings.Contains(reason, "packets go to "+c.want+"; delete the others") {
					t.Errorf("on %s it is said: %s", self, reason)
				}
			}
		})
	}
}
