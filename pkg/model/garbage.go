// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"maps"
	"math"
	"net/netip"
	"slices"
)

func parseGarbageBrake(r *reader) (b GarbageBrake, err error) {
	err = r.record(
		into("time", &b.Time, (*reader).time),
		into("reason", &b.Reason, (*reader).optionalStr),
		into("hosts", &b.Hosts, optionalInt(0, math.MaxInt32)),
		into("addresses", &b.Addresses, parseCounts),
		into("resumed", &b.Resumed, boolean(false)),
	)
	return b, err
}

// parseCounts reads numbers by CIDR.
func parseCounts(r *reader) (map[netip.Prefix]int, error) {
	if r.null() {
		return nil, nil
	}
	counts := map[netip.Prefix]int{}
	err := r.object(func(name string) error {
		c, err := netip.ParsePrefix(name)
		if err != nil {
			return errors.New("not a CIDR")
		}
		counts[c], err = r.integer(0, math.MaxInt32)
		return err
	})
	if len(counts) == 0 {
		return nil, err // empty is the same as absent
	}
	return counts, err
}

func (b GarbageBrake) format(w *writer) error {
	w.open('{')
	if !b.Time.IsZero() {
		if err := w.time("time", b.Time); err != nil {
			return err
		}
	}
	w.str("reason", b.Reason)
	w.integer("hosts", b.Hosts)
	w.name("addresses")
	w.open('{')
	for _, c := range slices.SortedFunc(maps.Keys(b.Addresses), netip.Prefix.Compare) {
		w.integer(c.String(), b.Addresses[c])
	}
	w.close('}')
	w.boolean("resumed", b.Resumed)
	w.close('}')
	return nil
}
