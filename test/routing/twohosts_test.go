// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// TestFailedStart has an endpoint of host a left behind, without an interface, with the addresses, of blocks of host a, that a pod
// has which lives on host c: all reach that one, host a and its pods too, and it is said which of them is to be deleted.
func TestFailedStart(t *testing.T) {
	for _, mode := range []model.EncapMode{model.EncapNever, model.EncapAlways} {
		t.Run(nameOf(mode), func(t *testing.T) {
			r := newTrio(t, lab.Config{Pool: encap(mode)}, "FELIX_BGPHoldTimeSecs=600")
			r.all()
			key := model.WorkloadEndpointKey{Host: r.hosts[0].Name(), Orchestrator: "cni", Workload: "failed", Endpoint: "eth0"}
			left := model.WorkloadEndpoint{State: model.StateActive, Name: "califailed", MAC: model.MAC{2, 0, 0, 0, 0, 9}}
			for _, a := range r.pods[2].Addrs() {
				if p, err := a.Prefix(a.BitLen()); err != nil {
					t.Fatal(err)
				} else if a.Is4() {
					left.IPv4Nets = append(left.IPv4Nets, p)
				} else {
					left.IPv6Nets = append(left.IPv6Nets, p)
				}
			}
			change := model.Change{Puts: []model.Put{{Key: key, Value: left}}}
			found, err := r.lab.Etcd().Read(r.ctx(), model.PrefixRange(model.BlockPrefix(false)), model.PrefixRange(model.BlockPrefix(true)))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range found.Entries() {
				if b, ok := e.Value.(model.Block); ok && b.Affinity == "c" {
					b.Affinity = "a"
					change.Puts = append(change.Puts, model.Put{Key: e.Key, Value: b}, model.Put{Key: model.AffinityKey{Host: "a", CIDR: b.CIDR}, Value: model.Affinity{}})
					change.Deletes = append(change.Deletes, model.AffinityKey{Host: "c", CIDR: b.CIDR})
				}
			}
			r.commit(change)
			for i, h := range r.hosts {
				for _, a := range r.pods[2].Addrs() {
					want := fmt.Sprintf("endpoints of hosts a (not up), c have %s: packets go to c; delete the others", a)
					r.until(fmt.Sprintf("host %s says: %s", h.Name(), want), func() bool { return strings.Contains(r.fetch(i, "http://127.0.0.1:9099/debug/invalid"), want) })
				}
			}
			r.all()
			r.commit(model.Change{Deletes: []model.Key{key}})
			for i, h := range r.hosts {
				r.until("host "+h.Name()+" says no more", func() bool {
					return !strings.Contains(r.fetch(i, "http://127.0.0.1:9099/debug/invalid"), "endpoints of hosts")
				})
			}
			r.all()
		})
	}
}
