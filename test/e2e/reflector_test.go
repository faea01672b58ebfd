// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/routing"
)

// reflector is where it listens: the fabric's own addresses.
var reflector = [2]netip.Addr{netip.MustParseAddr("172.20.0.1"), netip.MustParseAddr("fd00:fa:b::1")}

// reflected is a lab of two hosts that have sessions with a reflector alone.
type reflected struct {
	*routing.Rig
	daemon routing.Neighbour
	pods   [2]*lab.Pod
}

func newReflected(t *testing.T, start func(r *routing.Rig) routing.Neighbour) *reflected {
	t.Helper()
	r := &reflected{Rig: routing.New(t, lab.Config{Hosts: []string{"a", "b"}})}
	puts := []model.Put{{Key: model.BGPMeshKey{}, Value: model.Mesh{}}}
	for _, a := range reflector {
		puts = append(puts, model.Put{Key: model.BGPPeerKey{IP: a}, Value: model.BGPPeer{IP: a, AS: 64512}})
	}
	r.Put(puts...)
	r.daemon = start(r.Rig)
	r.pods = [2]*lab.Pod{r.Host("a").Pod("pod-a"), r.Host("b").Pod("pod-b")}
	r.holds()
	return r
}

// holds waits until all have all routes, and each host is the next hop of its own.
func (r *reflected) holds() {
	r.Helper()
	for i, h := range r.Hosts() {
		other := r.Hosts()[1-i]
		for _, block := range r.Blocks(h) {
			r.Settled(r.daemon, block.String())
			if block.Addr().Is4() {
				// Packets would pass a reflector that has routes in its kernel, too.
				r.Until("a route to host "+h.Name(), func() error {
					return has(r.Rig, other, fmt.Sprintf("%s via %s dev eth0", block, h.IPv4()))
				})
			}
		}
		r.Established(h, 2)
	}
	r.Reaches(r.pods[0], r.pods[1])
	r.Reaches(r.pods[1], r.pods[0])
}

// whole restarts something while pods talk: no packet is lost.
func (r *reflected) whole(t *testing.T, restart func()) {
	t.Helper()
	flow := routing.StartTraffic(t, r.pods[0], r.pods[1], false)
	restart()
	r.holds()
	flow.StopWhole()
}

func (r *reflected) restartAgent(t *testing.T) {
	t.Helper()
	a := r.Host("a")
	if err := a.Agent().Stop(); err != nil {
		t.Fatal(err)
	}
	if err := a.Agent().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestRouteReflector has BIRD reflect between hosts that have no sessions with each
// other. Nothing that restarts takes a packet with it.
func TestRouteReflector(t *testing.T) {
	var bird *routing.BIRD
	r := newReflected(t, func(r *routing.Rig) routing.Neighbour {
		conf := "router id 172.20.0.1;\n"
		for f, family := range []string{"ipv4", "ipv6"} {
			for i, h := range r.Hosts() {
				conf += fmt.Sprintf(`protocol bgp %[1]s_%[2]d {
	local %[3]s as 64512; neighbor %[4]s as 64512;
	rr client; rr cluster id 172.20.0.1; connect retry time 2; error wait time 1, 2;
	graceful restart on; graceful restart time 60;
	%[1]s { import all; export all; };
}
`, family, i, reflector[f], h.Addrs()[f])
			}
		}
		bird = routing.StartBIRD(t, r.Fabric(), conf)
		return bird
	})
	t.Run("an agent", func(t *testing.T) { r.whole(t, func() { r.restartAgent(t) }) })
	t.Run("the reflector", func(t *testing.T) {
		r.whole(t, func() {
			bird.Kill()
			bird.Start("-R")
		})
	})
}

// TestRouteReflectorFRR has FRR do the same.
func TestRouteReflectorFRR(t *testing.T) {
	var frr *routing.FRR
	r := newReflected(t, func(r *routing.Rig) routing.Neighbour {
		conf := `router bgp 64512
 bgp router-id 172.20.0.1
 bgp cluster-id 172.20.0.1
 no bgp default ipv4-unicast
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 bgp graceful-restart restart-time 60
`
		families := ""
		for f, family := range []string{"ipv4", "ipv6"} {
			families += fmt.Sprintf(" address-family %s unicast\n", family)
			for _, h := range r.Hosts() {
				a := h.Addrs()[f]
				conf += fmt.Sprintf(" neighbor %[1]s remote-as 64512\n neighbor %[1]s timers 3 9\n neighbor %[1]s timers connect 1\n neighbor %[1]s advertisement-interval 0\n", a)
				families += fmt.Sprintf("  neighbor %[1]s activate\n  neighbor %[1]s route-reflector-client\n", a)
			}
			families += " exit-address-family\n"
		}
		frr = routing.StartFRR(t, r.Fabric(), conf+families)
		return frr
	})
	t.Run("an agent", func(t *testing.T) { r.whole(t, func() { r.restartAgent(t) }) })
	// See TestTopOfRackFRR: it may take routes back that are still good, and then says them again.
	t.Run("the reflector", func(t *testing.T) {
		frr.Kill()
		frr.Start()
		r.holds()
	})
}
