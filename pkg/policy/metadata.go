// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// VethPrefix begins the names of containers' interfaces; other workload interfaces are taps.
const VethPrefix = "cali"

// MetadataService returns the address at which virtual machines ask for metadata.
func MetadataService() netip.AddrPort { return netip.MustParseAddrPort("169.254.169.254:80") }

// metadata decides, before policy, about packets from a tap for MetadataService: they go to Settings.Metadata, or are
// refused.
func (e *evaluation) metadata() (accepted, decided bool) {
	p := &e.p
	if !e.hasPrefix(p.In) || strings.HasPrefix(p.In, VethPrefix) || p.Protocol != model.ProtocolTCP || p.Conn != ConnNew {
		return false, false
	}
	to, asked := netip.AddrPortFrom(p.Dst, p.DstPort), MetadataService()
	if there := p.Called == asked && to == e.s.Metadata; to != asked && !there {
		return false, false
	}
	if ep := e.workload(p.In); ep != nil && !e.ownMAC(ep) {
		return false, true
	}
	if !e.s.Metadata.IsValid() {
		e.note("metadata, of which there is none: refused")
		return false, true
	}
	e.note("metadata, at %s: accept", e.s.Metadata)
	return true, true
}
