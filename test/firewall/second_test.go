// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"encoding/json"
	"net/netip"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/calico-go/calico/pkg/lab"
)

// TestSecondInterface: a container that is in two networks is reached at every address of
// both, by those on its host and outside. One goes without harm to the other.
func TestSecondInterface(t *testing.T) {
	r := newRig(t)
	r.profile("second", `{"inbound_rules": [{"action": "allow"}], "outbound_rules": [{"action": "allow"}]}`)
	two, client := r.pod("two"), r.pod("client")
	r.profile(lab.Network, `{"inbound_rules": [{"action": "allow"}], "outbound_rules": [{"action": "allow"}]}`)
	conf := r.host.PluginConf()
	conf["cniVersion"], conf["name"] = "1.1.0", "second"
	data, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	call := lab.Call{Verb: "ADD", ContainerID: two.pod.ContainerID(), IfName: "net1", Netns: two.ns.Path(), Stdin: data}
	reply, err := r.host.CNI(r.ctx(), call)
	if err != nil {
		t.Fatalf("%v\n%s", err, reply.Stderr)
	}
	var result types100.Result
	if err := json.Unmarshal(reply.Stdout, &result); err != nil {
		t.Fatal(err)
	}
	all := two.addrs[:]
	for _, ip := range result.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		all = append(all, a.Unmap())
	}
	if len(all) != 4 {
		t.Fatalf("addresses %v", all)
	}
	reach := func(addrs []netip.Addr) {
		t.Helper()
		for _, from := range []*place{client, r.self, r.outside} {
			for _, a := range addrs {
				if _, err := from.ns.Ping(r.ctx(), a); err != nil {
					t.Errorf("%s: %v", from.name, err)
				}
			}
		}
	}
	r.enforced()
	reach(all)
	call.Verb = "DEL"
	if reply, err := r.host.CNI(r.ctx(), call); err != nil {
		t.Fatalf("%v\n%s", err, reply.Stderr)
	}
	reach(two.addrs[:])
}
