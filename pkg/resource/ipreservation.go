// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

// IPReservation is a set of addresses that nobody gets without asking for them.
type IPReservation struct {
	ReservedCIDRs []CIDR `json:"reservedCIDRs,omitempty" doc:"Networks and single addresses, of pools or not. No pod and no tunnel is given one, from the next ADD on; who has one keeps it. A pod that asks for one by name (cni.projectcalico.org/ipAddrs, IP in CNI_ARGS) gets it."`
}

var ipReservationKind = newKind(one(readReservation), writeReservation, Kind{
	Name: "IPReservation", Plural: "IPReservations", Aliases: []string{"reservation", "reservations"},
	ranges: prefix(model.ReservationPrefix()), of: keyed[model.ReservationKey],
	fields:  map[string]string{"cidrs": "reservedCIDRs"},
	Columns: []Column{cell("CIDRS", true, func(s *IPReservation) string { return joined(s.ReservedCIDRs) })},
	custom:  &custom{},
	narrow:  func(r Resource) []model.Range { return keyRanges(model.ReservationKey{Name: r.Metadata.Name}) },
})

func readReservation(key model.ReservationKey, v *model.Reservation, s *Stored) *IPReservation {
	s.Metadata.Name = key.Name
	if v == nil {
		return &IPReservation{}
	}
	return &IPReservation{ReservedCIDRs: converted(v.CIDRs, func(c netip.Prefix) CIDR { return CIDR{c} })}
}

func writeReservation(r writing[IPReservation]) (keys, error) {
	if r.old == nil {
		if err := r.dnsName(); err != nil {
			return keys{}, err
		}
	}
	cidrs := converted(r.spec.ReservedCIDRs, func(c CIDR) netip.Prefix { return c.Prefix })
	return put(model.ReservationKey{Name: r.Metadata.Name}, model.Reservation{CIDRs: cidrs, Meta: r.meta}), nil
}
