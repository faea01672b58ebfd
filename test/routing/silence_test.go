// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestRestartsUntold has agents start anew that may go by nothing in etcd, as it isn't ready or can't be reached: BGP says what
// it said last, and no packet is lost. Without that the neighbours' patience would be at its end after 10 s.
func TestRestartsUntold(t *testing.T) {
	long.Test(t)
	r := New(t, lab.Config{Hosts: []string{"a", "b", "c"}, AgentEnv: []string{"FELIX_BGPRESTARTTIMESECS=10"}})
	a, b, c := r.Host("a"), r.Host("b"), r.Host("c")
	pa, pb, pc := a.Pod("pod-a"), b.Pod("pod-b"), c.Pod("pod-c")
	all := func() {
		t.Helper()
		r.Reaches(pa, pb, pc)
		r.Reaches(pb, pa, pc)
		r.Reaches(pc, pa, pb)
	}
	all()
	again := func(h *lab.Host, end func(*lab.Host) error, sessions int) {
		t.Helper()
		if err := end(h); err != nil {
			t.Fatal(err)
		}
		if err := h.Agent().Launch(); err != nil {
			t.Fatal(err)
		}
		r.Established(h, sessions)
	}
	flows := func(step func()) {
		t.Helper()
		all := []*Traffic{StartTraffic(t, pa, pb, false), StartTraffic(t, pb, pc, true), StartTraffic(t, pc, pa, false)}
		step()
		for _, f := range all {
			f.StopWhole()
		}
	}
	flows(func() {
		r.Put(model.Put{Key: model.ReadyKey{}, Value: model.Ready(false)})
		again(b, func(h *lab.Host) error { return h.Agent().Stop() }, 4)
		again(c, func(h *lab.Host) error { return h.Agent().Kill() }, 4)
		all()
		r.Says(b, "BGP says what it said before the agent was started anew", "/calico/v1/Ready is not true in etcd")
		r.Put(model.Put{Key: model.ReadyKey{}, Value: model.Ready(true)})
		for _, h := range r.Hosts() {
			if err := h.Agent().Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		all()
	})

	r.Put(model.Put{Key: model.BGPHostKey{Host: "a", Field: model.BGPHostReflector}, Value: model.Text("10.0.0.1")})
	for _, addr := range a.Addrs() {
		r.Put(model.Put{Key: model.BGPPeerKey{IP: addr}, Value: model.BGPPeer{IP: addr, AS: 64512}})
	}
	r.Put(model.Put{Key: model.BGPMeshKey{}, Value: model.Mesh{}})
	r.Established(a, 4)
	r.Established(b, 2)
	r.Established(c, 2)
	all()
	flows(func() {
		if err := r.PartitionFromEtcd("a"); err != nil {
			t.Fatal(err)
		}
		again(a, func(h *lab.Host) error { return h.Agent().Kill() }, 4)
		all()
		r.Says(a, "BGP says what it said before the agent was started anew", "etcd has not been read yet")
		if err := r.Heal(); err != nil {
			t.Fatal(err)
		}
		if err := a.Agent().Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		all()
	})
}
