// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
	"github.com/calico-go/calico/test/routing"
)

// TestRouteReflector has BIRD reflect between hosts that have no sessions with each
// other: each is the next hop of its own blocks.
func TestRouteReflector(t *testing.T) {
	r := routing.New(t, lab.Config{Hosts: []string{"a", "b"}})
	reflector := []netip.Addr{netip.MustParseAddr("172.20.0.1"), netip.MustParseAddr("fd00:fa:b::1")} // the fabric's
	puts := []model.Put{{Key: model.BGPMeshKey{}, Value: model.Mesh{}}}
	for _, a := range reflector {
		puts = append(puts, model.Put{Key: model.BGPPeerKey{IP: a}, Value: model.BGPPeer{IP: a, AS: 64512}})
	}
	r.Put(puts...)
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
	bird := routing.StartBIRD(t, r.Fabric(), conf)
	a, b := r.Host("a"), r.Host("b")
	pa, pb := a.Pod("pod-a"), b.Pod("pod-b")
	holds := func() {
		t.Helper()
		for _, h := range r.Hosts() {
			for _, block := range r.Blocks(h) {
				r.Settled(bird, block.String())
			}
			r.Established(h, 2)
		}
		r.Reaches(pa, pb)
		r.Reaches(pb, pa)
	}
	holds()
	// Nothing that restarts takes a packet with it.
	for name, restart := range map[string]func() error{
		"an agent": func() error {
			if err := a.StopAgent(); err != nil {
				return err
			}
			return a.StartAgent(t.Context())
		},
		"the reflector": func() error {
			bird.Kill()
			bird.Start("-R")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			flow := routing.StartTraffic(t, pa, pb, false)
			if err := restart(); err != nil {
				t.Fatal(err)
			}
			holds()
			flow.StopWhole()
		})
	}
}
