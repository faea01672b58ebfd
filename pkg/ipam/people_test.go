// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

func (h *history) someAddr() netip.Addr {
	p := historyPools[h.dice.roll(len(historyPools))][0]
	return numberOf(p.CIDR.Addr()).add(number{lo: uint64(h.dice.roll(40))}).addr(isV6(p.CIDR))
}

// changePool is what people do.
func (h *history) changePool() {
	place := historyPools[h.dice.roll(len(historyPools))]
	p := place[h.dice.roll(len(place))]
	if h.dice.roll(4) == 0 {
		h.put(model.IPAMConfigKey{}, model.IPAMConfig{StrictAffinity: h.dice.roll(2) == 0, AutoAllocateBlocks: true})
	}
	for _, old := range place {
		if old.CIDR != p.CIDR && h.keys[model.PoolKey{CIDR: old.CIDR}.Path()].modified != 0 {
			h.delete(model.PoolKey{CIDR: old.CIDR})
		}
	}
	if h.dice.roll(5) == 0 {
		h.delete(model.PoolKey{CIDR: p.CIDR})
	} else {
		h.pool(p)
	}
	h.compare()
}

// changeReservation makes, changes or deletes one of three.
func (h *history) changeReservation() {
	k := model.ReservationKey{Name: fmt.Sprint("r", h.dice.roll(3))}
	if h.dice.roll(2) == 0 {
		h.delete(k)
		return
	}
	var r model.Reservation
	for range h.dice.roll(4) {
		a := h.someAddr()
		r.CIDRs = append(r.CIDRs, netip.PrefixFrom(a, a.BitLen()-h.dice.roll(5)).Masked())
	}
	h.put(k, r)
	h.counts["reservation"]++
}

func (h *history) changeNode() {
	host := h.hosts[h.dice.roll(len(h.hosts))]
	if k := (model.HostMetadataKey{Host: host}); h.dice.roll(2) == 0 {
		h.delete(k)
	} else {
		h.put(k, model.HostMetadata{Labels: map[string]string{"rack": fmt.Sprint(h.dice.roll(2))}})
	}
}
