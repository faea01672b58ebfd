// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestHostEndpoints closes every host but for its fail-safe ports: tunnels between
// the hosts, and BGP, are not what is meant.
func TestHostEndpoints(t *testing.T) {
	long.Test(t)
	for _, mode := range []model.EncapMode{model.EncapNever, model.EncapAlways} {
		t.Run(nameOf(mode), func(t *testing.T) {
			r := newTrio(t, lab.Config{Pool: encap(mode), Hostile: true})
			var puts []model.Put
			for _, h := range r.hosts {
				puts = append(puts, model.Put{Key: model.HostEndpointKey{Host: h.Name(), Endpoint: "eth0"},
					Value: model.HostEndpoint{Name: "eth0"}})
			}
			r.commit(model.Change{Puts: puts})
			for i := range r.hosts {
				r.until("the host is closed", func() bool {
					return strings.Contains(r.run(i, "nft", "list", "table", "inet", "calico"), "host-in-eth0")
				})
			}
			r.all()
			for i := range r.hosts {
				r.programmed(i)
			}
			if mode == model.EncapNever {
				p := r.hosts[0].Pod("late") // its route comes by BGP
				if err := r.pods[1].Ping(r.ctx(), p); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
