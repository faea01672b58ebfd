// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// Tunnels sets which tunnels there are, and between whom. It does no I/O.
func (f *Firewall) Tunnels(t policy.Tunnels) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.desired.setTunnels(t)
}

func (d *desired) setTunnels(t policy.Tunnels) {
	if t.VXLANPort == 0 && !t.IPIP {
		t.Hosts = nil // nobody asks
	}
	hosts := map[int]map[string]string{4: {}, 6: {}}
	for _, a := range t.Hosts {
		switch a = a.Unmap().WithZone(""); {
		case a.Is4():
			hosts[4][table.AddrBytes(a)] = ""
		case a.Is6():
			hosts[6][table.AddrBytes(a)] = ""
		}
	}
	for version, elements := range hosts {
		d.replace(render.Versioned(render.SetHosts, version), elements)
	}
	if now := (render.Tunnels{VXLANPort: t.VXLANPort, IPIP: t.IPIP}); now != d.tunnels {
		d.tunnels = now
		for name := range d.hosts { // untracked policies are asked before anything else
			d.putHost(name)
		}
	}
	d.putUses()
}
