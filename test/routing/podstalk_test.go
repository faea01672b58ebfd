// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// TestPodsTalk has pods of three hosts on one Ethernet talk: over BGP, and through
// VXLAN always.
func TestPodsTalk(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   model.EncapMode
		device string
	}{
		{"bgp", model.EncapNever, "dev eth0"},
		{"vxlan", model.EncapAlways, "calico"},
		{"cross-subnet", model.EncapCrossSubnet, "dev eth0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTrio(t, lab.Config{Pool: encap(c.mode), Hostile: true})
			r.all()
			for i := range r.hosts {
				for j := range r.hosts {
					routes := r.routesTo(i, j)
					if i != j && (len(routes) != 2 || !strings.Contains(routes[0], c.device) || !strings.Contains(routes[1], c.device)) {
						t.Errorf("host %d to %d: %q", i, j, routes)
					}
				}
			}
		})
	}
}
