// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

func (r *trio) commit(c model.Change) {
	r.Helper()
	if _, err := r.lab.Etcd().Commit(r.ctx(), c); err != nil {
		r.Fatal(err)
	}
}

// TestAgentRestarts has agents stop, be killed, and start anew while pods talk:
// nothing is lost, and no route changes.
func TestAgentRestarts(t *testing.T) {
	long.Test(t)
	for _, mode := range modes(model.EncapAlways) {
		t.Run(nameOf(mode), func(t *testing.T) {
			r := newTrio(t, lab.Config{Pool: encap(mode), Hostile: true})
			r.all()
			var streams []*stream
			for _, a := range r.pods[1].Addrs() {
				streams = append(streams, r.stream(r.pods[0], a))
			}
			before := r.routesTo(0, 1)
			monitor := r.monitor(0)
			for _, end := range []func(*lab.Host) error{func(h *lab.Host) error { return h.Agent().Stop() }, func(h *lab.Host) error { return h.Agent().Kill() }} {
				for _, i := range []int{0, 1} {
					if err := end(r.hosts[i]); err != nil {
						t.Fatal(err)
					}
					r.all()
					if err := r.hosts[i].Agent().Start(r.ctx()); err != nil {
						t.Fatal(err)
					}
					r.programmed(i)
					r.all()
				}
			}
			for _, s := range streams {
				if lost := r.lost(s); lost > 0 {
					t.Errorf("to %s: %d of %d were lost", s.to, lost, s.requests())
				}
			}
			if diff := cmp.Diff(before, r.routesTo(0, 1)); diff != "" {
				t.Errorf("routes (-before +after):\n%s", diff)
			}
			for _, line := range monitor() {
				if strings.HasPrefix(line, "Deleted") {
					t.Errorf("a route went: %s", line)
				}
			}
		})
	}
}

// modes are without and with a tunnel, or the one of them that matters most with -short.
func modes(most model.EncapMode) []model.EncapMode {
	if testing.Short() {
		return []model.EncapMode{most}
	}
	return []model.EncapMode{model.EncapNever, model.EncapAlways}
}

// programmed waits until a host's agent has its routes and all its sessions.
func (r *trio) programmed(host int) {
	r.Helper()
	r.until("the agent of "+r.hosts[host].Name()+" has its sessions", func() bool {
		return strings.Contains(r.metrics(host), fmt.Sprintf("calico_node_bgp_peers{state=%q} %d\n", "established", 2*(len(r.hosts)-1)))
	})
}

// monitor notes what becomes of a host's routes of ours until it is asked.
func (r *trio) monitor(host int) (lines func() []string) {
	r.Helper()
	p, err := r.hosts[host].Start("monitor", "ip", "-4", "monitor", "route")
	if err != nil {
		r.Fatal(err)
	}
	return func() []string {
		_ = p.Kill() // what it wrote is what counts
		var ours []string
		for _, line := range strings.Split(lab.Tail(p.Log, 1000), "\n") {
			if strings.Contains(line, "proto 81") {
				ours = append(ours, line)
			}
		}
		return ours
	}
}

// TestEtcdAway has etcd go away and come back: routes stay, pods talk.
func TestEtcdAway(t *testing.T) {
	r := newTrio(t, lab.Config{Pool: encap(model.EncapAlways)}, "FELIX_ReportingTTLSecs=20", "FELIX_ReportingIntervalSecs=1")
	r.all()
	s := r.stream(r.pods[0], r.pods[1].Addrs()[0])
	before := r.routesTo(0, 1)
	if err := r.lab.Members().Kill(1); err != nil {
		t.Fatal(err)
	}
	r.until("the agent misses etcd, and the host is ready", func() bool {
		page := r.fetch(0, "http://127.0.0.1:9099/readiness")
		return strings.HasPrefix(page, "ok\n") && strings.Contains(page, "reports to etcd fail")
	})
	r.all()
	if err := r.hosts[2].Agent().Stop(); err != nil {
		t.Fatal(err)
	}
	if err := r.hosts[2].Agent().Launch(); err != nil { // it finds no etcd
		t.Fatal(err)
	}
	r.all()
	if err := r.lab.Members().Start(r.ctx(), 1); err != nil {
		t.Fatal(err)
	}
	for i := range r.hosts {
		if err := r.hosts[i].Agent().Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	r.all()
	if lost := r.lost(s); lost > 0 {
		t.Errorf("%d were lost", lost)
	}
	if diff := cmp.Diff(before, r.routesTo(0, 1)); diff != "" {
		t.Errorf("routes (-before +after):\n%s", diff)
	}
}

// TestCutOffFromEtcd has all hosts cut off from etcd for longer than their leases last: when they reach it again each hears that the
// others' have ended, and then that they live.
func TestCutOffFromEtcd(t *testing.T) {
	long.Test(t)
	r := newTrio(t, lab.Config{Pool: encap(model.EncapAlways)}, "FELIX_ReportingTTLSecs=10", "FELIX_ReportingIntervalSecs=1")
	r.all()
	s := r.stream(r.pods[0], r.pods[1].Addrs()[0])
	monitor := r.monitor(0)
	living := func() (n int) {
		for _, h := range r.hosts {
			snapshot, err := r.lab.Etcd().Read(r.ctx(), model.KeyRange(model.StatusKey{Host: h.Name()}))
			if err != nil {
				t.Fatal(err)
			}
			n += len(snapshot.Entries())
		}
		return n
	}
	var names []string
	for _, h := range r.hosts {
		names = append(names, h.Name())
	}
	if err := r.lab.PartitionFromEtcd(names...); err != nil {
		t.Fatal(err)
	}
	r.until("all leases have ended", func() bool { return living() == 0 })
	time.Sleep(48 * time.Second) // until agents try to reach it no more than every 18 s
	if err := r.lab.Heal(); err != nil {
		t.Fatal(err)
	}
	r.until("all hosts live", func() bool { return living() == len(r.hosts) })
	for _, h := range r.hosts {
		h.Pod("late-" + h.Name()) // its agent has heard all of etcd then
	}
	r.all()
	if lost := r.lost(s); lost > 0 {
		t.Errorf("%d of %d were lost", lost, s.requests())
	}
	for _, line := range monitor() {
		if strings.HasPrefix(line, "Deleted") {
			t.Errorf("a route went: %s", line)
		}
	}
}

// TestHostDies has a host die and come back, with and without a tunnel.
func TestHostDies(t *testing.T) {
	long.Test(t)
	for _, mode := range modes(model.EncapAlways) {
		t.Run(nameOf(mode), func(t *testing.T) {
			// Soon, but not so soon that hosts which live seem dead on a busy machine.
			r := newTrio(t, lab.Config{Pool: encap(mode)}, "FELIX_BGPHoldTimeSecs=9", "FELIX_BGPRestartTimeSecs=1",
				"FELIX_ReportingTTLSecs=12", "FELIX_ReportingIntervalSecs=1")
			r.all()
			s := r.stream(r.pods[0], r.pods[2].Addrs()[0])
			before := r.routesTo(0, 1)
			if err := r.hosts[1].Kill(); err != nil {
				t.Fatal(err)
			}
			r.until("its routes are gone", func() bool { return len(r.routesTo(0, 1)) == 0 && len(r.routesTo(2, 1)) == 0 })
			if err := r.hosts[1].Return(r.ctx()); err != nil {
				t.Fatal(err)
			}
			r.until("its routes are back", func() bool {
				return cmp.Equal(before, r.routesTo(0, 1)) && len(r.routesTo(2, 1)) == 2 && len(r.routesTo(1, 0)) == 2
			})
			r.all()
			if lost := r.lost(s); lost > 0 {
				t.Errorf("between the others %d were lost", lost)
			}
		})
	}
}

// TestHostDeleted has a host die whose entry is deleted from etcd: nobody waits for its lease or its session to end.
func TestHostDeleted(t *testing.T) {
	for _, mode := range modes(model.EncapNever) {
		t.Run(nameOf(mode), func(t *testing.T) {
			r := newTrio(t, lab.Config{Pool: encap(mode), Hostile: true}, "FELIX_BGPHoldTimeSecs=600", "FELIX_ReportingTTLSecs=600")
			r.all()
			s := r.stream(r.pods[0], r.pods[2].Addrs()[0])
			before := r.routesTo(0, 1)
			if err := r.hosts[1].Kill(); err != nil {
				t.Fatal(err)
			}
			r.commit(model.Change{Deletes: []model.Key{model.HostMetadataKey{Host: r.hosts[1].Name()}}})
			r.until("its routes are gone", func() bool { return len(r.routesTo(0, 1)) == 0 && len(r.routesTo(2, 1)) == 0 })
			if err := r.hosts[1].Return(r.ctx()); err != nil {
				t.Fatal(err)
			}
			r.until("its routes are back", func() bool { return cmp.Equal(before, r.routesTo(0, 1)) && len(r.routesTo(2, 1)) == 2 })
			r.all()
			if lost := r.lost(s); lost > 0 {
				t.Errorf("between the others %d were lost", lost)
			}
		})
	}
}

// TestRacks has hosts in racks of their own, whose routers know nothing of pods.
func TestRacks(t *testing.T) {
	long.Test(t)
	r := newTrio(t, lab.Config{Racks: [][]string{{"a", "b"}, {"c"}}, Pool: encap(model.EncapCrossSubnet), Hostile: true})
	r.all()
	for _, c := range []struct {
		from, to int
		device   string
	}{{0, 1, "dev eth0"}, {0, 2, "calico"}, {2, 1, "calico"}} {
		if routes := r.routesTo(c.from, c.to); len(routes) != 2 || strings.Count(strings.Join(routes, "\n"), c.device) != 2 {
			t.Errorf("host %d to %d: %q, want %s", c.from, c.to, routes, c.device)
		}
	}
}
