// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

const gatewayPrefix = "gateway."

// GatewayHandle returns the handle of an address that calico-ipam has reserved for links of hosts: the gateway of
// another main plugin's workloads.
func GatewayHandle(a netip.Addr) string { return gatewayPrefix + a.String() }

// IsGatewayHandle reports whether handle equals GatewayHandle of the address.
func IsGatewayHandle(handle string, a netip.Addr) bool {
	text, ok := strings.CutPrefix(handle, gatewayPrefix)
	return ok && text == a.String()
}

func parseHandle(r *reader, k HandleKey) (Handle, error) {
	id := k.ID
	h := Handle{ID: id}
	err := r.record(
		field{"id", func(r *reader) (err error) {
			var s string
			if s, err = r.optionalStr(); err == nil && s != "" && s != id {
				err = fmt.Errorf("%.64q, but the key says %.64q", s, id)
			}
			return err
		}},
		into("block", &h.Blocks, parseHandleBlocks),
	)
	return h, err
}

func parseHandleBlocks(r *reader) (map[netip.Prefix]int, error) {
	if r.null() {
		return nil, nil
	}
	var out map[netip.Prefix]int
	err := r.object(func(name string) error {
		if len(name) > 64 {
			return errors.New("not a CIDR")
		}
		p, err := netip.ParsePrefix(name)
		if err != nil {
			return errors.New("not a CIDR")
		}
		if err := checkBlockCIDR(p); err != nil {
			return err
		}
		if _, dup := out[p]; dup {
			return errors.New("given twice")
		}
		n, err := r.integer(0, 1<<(p.Addr().BitLen()-p.Bits()))
		if err != nil {
			return err
		}
		if out == nil {
			out = make(map[netip.Prefix]int, 2)
		}
		out[p] = n
		return nil
	})
	return out, err
}

func (h Handle) format(w *writer) error {
	if h.ID == "" {
		return missing("id")
	}
	w.open('{')
	w.str("id", h.ID)
	w.name("block")
	w.open('{')
	blocks := make([]netip.Prefix, 0, 4)
	for p := range h.Blocks {
		blocks = append(blocks, p)
	}
	slices.SortFunc(blocks, netip.Prefix.Compare)
	for _, p := range blocks {
		if err := checkBlockCIDR(p); err != nil {
			return inField("block", err)
		}
		if n := h.Blocks[p]; n < 0 || n > 1<<(p.Addr().BitLen()-p.Bits()) {
			return inField("block", inField(fieldName(p.String()), fmt.Errorf("count %d", n)))
		}
		w.integer(p.String(), h.Blocks[p])
	}
	w.close('}')
	w.close('}')
	return nil
}

func parseIPAMConfig(r *reader) (IPAMConfig, error) {
	c := DefaultIPAMConfig
	err := r.record(
		into("strict_affinity", &c.StrictAffinity, boolean(c.StrictAffinity)),
		into("auto_allocate_blocks", &c.AutoAllocateBlocks, boolean(c.AutoAllocateBlocks)),
		into("meta", &c.Meta, parseMeta),
	)
	return c, err
}

func (c IPAMConfig) check() error {
	if !c.StrictAffinity && !c.AutoAllocateBlocks {
		return errors.New("strict_affinity and auto_allocate_blocks cannot both be false")
	}
	return nil
}

func (c IPAMConfig) format(w *writer) error {
	w.open('{')
	w.boolean("strict_affinity", c.StrictAffinity)
	w.boolean("auto_allocate_blocks", c.AutoAllocateBlocks)
	w.meta(c.Meta)
	w.close('}')
	return nil
}
