// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// maxBlockBits limits a block to 2^12 addresses.
const maxBlockBits = 12

func checkBlockCIDR(p netip.Prefix) error {
	if !p.IsValid() {
		return errMissing
	}
	if err := checkFamily(p.Addr(), isV6(p)); err != nil {
		return err
	}
	if p != p.Masked() {
		return fmt.Errorf("%s has host bits set: write %s", p, p.Masked())
	}
	if low := p.Addr().BitLen() - maxBlockBits; p.Bits() < low {
		return fmt.Errorf("%s: a block is /%d at the largest", p, low)
	}
	return nil
}

// Size returns the number of addresses in the block.
func (b Block) Size() int { return 1 << (b.CIDR.Addr().BitLen() - b.CIDR.Bits()) }

// hostPrefix precedes the host's name in a block's affinity.
const hostPrefix = "host:"

func parseBlock(r *reader, k BlockKey) (Block, error) {
	cidr := k.CIDR
	b := Block{CIDR: cidr}
	if err := checkBlockCIDR(cidr); err != nil {
		return b, inField("cidr", err)
	}
	var affinity, oldAffinity string
	haveUnallocated := false
	err := r.record(
		field{"cidr", func(r *reader) (err error) {
			err = sameCIDR(r, cidr)
			return err
		}},
		field{"affinity", func(r *reader) (err error) {
			affinity, err = r.optionalStr()
			if host, ok := strings.CutPrefix(affinity, hostPrefix); ok && host != "" {
				affinity = host
			} else if err == nil && affinity != "" {
				err = fmt.Errorf("%.64q: want host:<name> or nothing", affinity)
			}
			return err
		}},
		into("hostAffinity", &oldAffinity, (*reader).optionalStr),
		into("strictAffinity", &b.StrictAffinity, boolean(false)),
		field{"allocations", func(r *reader) (err error) {
			b.Allocations, err = parseAllocations(r, b.Size())
			return err
		}},
		field{"unallocated", func(r *reader) (err error) {
			if !r.null() {
				haveUnallocated = true
				b.Unallocated, err = parseUnallocated(r, b.Size())
			}
			return err
		}},
		into("attributes", &b.Attributes, each(parseAttributes)),
		into("emptySince", &b.EmptySince, (*reader).time),
	)
	if err != nil {
		return b, err
	}
	if affinity != "" && oldAffinity != "" && affinity != oldAffinity {
		return b, inField("hostAffinity", fmt.Errorf("%.64q, but affinity is %.64q", oldAffinity, hostPrefix+affinity))
	}
	if b.Affinity = affinity; affinity == "" {
		b.Affinity = oldAffinity
	}
	if !haveUnallocated {
		b.Unallocated = make([]int, 0, b.Size())
		for i, a := range b.Allocations {
			if a == Free {
				b.Unallocated = append(b.Unallocated, i)
			}
		}
	}
	return b, nil
}

// sameCIDR reads a CIDR, which must equal the key's.
func sameCIDR(r *reader, key netip.Prefix) error {
	p, err := r.prefix()
	if err == nil && p != key {
		err = fmt.Errorf("%s, but the key says %s", p, key)
	}
	return err
}

func parseAllocations(r *reader, size int) ([]int, error) {
	out := make([]int, 0, size)
	err := r.list(func(i int) error {
		if i == size {
			return fmt.Errorf("more entries than the block's %d addresses", size)
		}
		n := Free
		var err error
		if !r.null() {
			n, err = r.integer(0, size*size)
		}
		out = append(out, n)
		return err
	})
	return out, err
}

func parseUnallocated(r *reader, size int) ([]int, error) {
	out := make([]int, 0, size)
	err := r.list(func(i int) error {
		if i == size {
			return fmt.Errorf("more entries than the block's %d addresses", size)
		}
		n, err := r.integer(0, size-1)
		out = append(out, n)
		return err
	})
	return out, err
}

func parseAttributes(r *reader) (a Attributes, err error) {
	if r.null() {
		return a, nil
	}
	var old string
	err = r.record(
		into("handle_id", &a.HandleID, (*reader).optionalStr),
		into("primary", &old, (*reader).optionalStr),
		into("secondary", &a.Secondary, (*reader).stringMap),
	)
	switch {
	case err != nil:
	case a.HandleID == "":
		a.HandleID = old
	case old != "" && old != a.HandleID:
		err = inField("primary", fmt.Errorf("%.64q, but handle_id is %.64q", old, a.HandleID))
	}
	return a, err
}

// check makes sure that a block is safe to use: every index and ordinal is in range, and Unallocated has exactly the
// free ordinals.
func (b Block) check() error {
	if err := checkBlockCIDR(b.CIDR); err != nil {
		return inField("cidr", err)
	}
	size := b.Size()
	if len(b.Allocations) != size {
		return inField("allocations", fmt.Errorf("%d entries for %d addresses", len(b.Allocations), size))
	}
	free := 0
	for i, a := range b.Allocations {
		if a == Free {
			free++
		} else if a < 0 || a >= len(b.Attributes) {
			return inField("allocations", atIndex(i, fmt.Errorf("%d: there are %d attributes", a, len(b.Attributes))))
		}
	}
	var seenSpace [1 << maxBlockBits / 64]uint64
	seen := seenSpace[:]
	for i, o := range b.Unallocated {
		switch {
		case o < 0 || o >= size:
			return inField("unallocated", atIndex(i, fmt.Errorf("%d: want 0 to %d", o, size-1)))
		case b.Allocations[o] != Free:
			return inField("unallocated", atIndex(i, fmt.Errorf("%d is allocated", o)))
		case seen[o/64]&(1<<(o%64)) != 0:
			return inField("unallocated", atIndex(i, fmt.Errorf("%d is there twice", o)))
		}
		seen[o/64] |= 1 << (o % 64)
	}
	if len(b.Unallocated) != free {
		return inField("unallocated", fmt.Errorf("%d ordinals for %d free addresses", len(b.Unallocated), free))
	}
	return nil
}

func (b Block) format(w *writer) error {
	w.b = make([]byte, 0, 256+8*len(b.Allocations)+128*len(b.Attributes))
	w.open('{')
	if !b.EmptySince.IsZero() {
		if err := w.time("emptySince", b.EmptySince); err != nil {
			return err
		}
	}
	w.name("unallocated")
	w.open('[')
	for _, o := range b.Unallocated {
		w.sep()
		w.b = strconv.AppendInt(w.b, int64(o), 10)
	}
	w.close(']')
	w.prefix("cidr", b.CIDR)
	if b.Affinity != "" {
		w.str("affinity", hostPrefix+b.Affinity)
	}
	w.boolean("strictAffinity", b.StrictAffinity)
	w.name("allocations")
	w.open('[')
	for _, a := range b.Allocations {
		w.sep()
		if a == Free {
			w.b = append(w.b, "null"...)
		} else {
			w.b = strconv.AppendInt(w.b, int64(a), 10)
		}
	}
	w.close(']')
	writeList(w, "attributes", b.Attributes, func(w *writer, a Attributes) {
		w.open('{')
		w.optional("handle_id", a.HandleID)
		if len(a.Secondary) > 0 {
			w.name("secondary")
			w.stringMap(a.Secondary)
		}
		w.close('}')
	})
	w.close('}')
	return nil
}
