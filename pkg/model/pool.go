// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/selector"
)

// Bounds of block_size: a block should neither be too small to be useful nor too large to rewrite.
const (
	minBlockSizeV4, minBlockSizeV6 = 20, 116
)

// Values of assignment_mode.
const (
	assignAutomatic = "Automatic"
	assignManual    = "Manual"
)

// noWorkloads are the networks of loopback, link-local and multicast addresses (RFC 6890, RFC 5771, RFC 4291).
var noWorkloads = [...]netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// defaultBlockSize returns the default block size. In a pool smaller than a usual block, it is the whole pool.
func defaultBlockSize(cidr netip.Prefix) int {
	return max(DefaultBlockSize(isV6(cidr)), cidr.Bits())
}

func parsePool(r *reader, k PoolKey) (Pool, error) {
	cidr := k.CIDR
	p := Pool{CIDR: cidr, IPAM: true}
	mode := EncapAlways
	err := r.record(
		field{"cidr", func(r *reader) (err error) {
			err = sameCIDR(r, cidr)
			return err
		}},
		into("ipip", &p.IPIP, (*reader).optionalStr),
		field{"ipip_mode", func(r *reader) (err error) {
			var m EncapMode
			if m, err = parseEncap(r); m != EncapNever {
				mode = m
			}
			return err
		}},
		into("vxlan_mode", &p.VXLANMode, parseEncap),
		into("masquerade", &p.Masquerade, boolean(false)),
		into("ipam", &p.IPAM, boolean(true)),
		into("disabled", &p.Disabled, boolean(false)),
		into("block_size", &p.BlockSize, optionalInt(1, 128)),
		into("node_selector", &p.NodeSelector, (*reader).optionalStr),
		into("namespace_selector", &p.NamespaceSelector, (*reader).optionalStr),
		into("disable_bgp_export", &p.DisableBGPExport, boolean(false)),
		field{"allowed_uses", func(r *reader) error {
			uses, err := r.strings()
			p.AllowedUses = strings.Join(uses, ",")
			if i := slices.IndexFunc(uses, func(use string) bool { return use == "" || strings.Contains(use, ",") }); err == nil && i >= 0 {
				return atIndex(i, fmt.Errorf("%.32q: want %s or %s", uses[i], ForWorkloads, ForTunnels))
			}
			return err
		}},
		into("assignment_mode", &p.Manual, parseManual),
		into("meta", &p.Meta, parseMeta),
	)
	if p.IPIP != "" {
		p.IPIPMode = mode
	}
	if p.BlockSize == 0 {
		p.BlockSize = defaultBlockSize(cidr)
	}
	return p, err
}

func parseManual(r *reader) (bool, error) {
	s, err := r.optionalStr()
	if err == nil && s != "" && s != assignAutomatic && s != assignManual {
		err = fmt.Errorf("%.32q: want %s or %s", s, assignAutomatic, assignManual)
	}
	return s == assignManual, err
}

func parseEncap(r *reader) (EncapMode, error) {
	s, err := r.optionalStr()
	if err != nil {
		return "", err
	}
	switch m := EncapMode(s); m {
	case EncapNever, EncapAlways, EncapCrossSubnet:
		return m, nil
	}
	return "", fmt.Errorf("%.32q: want always or cross-subnet", s)
}

func (p Pool) check() error {
	if !p.CIDR.IsValid() {
		return missing("cidr")
	}
	v6 := isV6(p.CIDR)
	if err := checkFamily(p.CIDR.Addr(), v6); err != nil {
		return inField("cidr", err)
	}
	if p.CIDR != p.CIDR.Masked() {
		return inField("cidr", fmt.Errorf("%s has host bits set: write %s", p.CIDR, p.CIDR.Masked()))
	}
	for _, no := range noWorkloads {
		if p.CIDR.Overlaps(no) {
			return inField("cidr", fmt.Errorf("%s has addresses of %s inside, which no workload can have", p.CIDR, no))
		}
	}
	if p.IPIP != "" {
		if v6 {
			return inField("ipip", errors.New("IPIP is for IPv4 pools only"))
		}
		if err := CheckInterface(p.IPIP); err != nil {
			return inField("ipip", err)
		}
		if p.VXLANMode != EncapNever {
			return inField("vxlan_mode", errors.New("a pool has ipip or vxlan_mode, not both"))
		}
	}
	if err := p.checkBlockSize(v6); err != nil {
		return inField("block_size", err)
	}
	if _, err := selector.Parse(p.NodeSelector); err != nil {
		return inField("node_selector", err)
	}
	if _, err := selector.Parse(p.NamespaceSelector); err != nil {
		return inField("namespace_selector", err)
	}
	return nil
}

func (p Pool) checkBlockSize(v6 bool) error {
	low, high := minBlockSizeV4, 32
	if v6 {
		low, high = minBlockSizeV6, 128
	}
	switch {
	case p.BlockSize == 0: // the default
	case p.BlockSize < low || p.BlockSize > high:
		return fmt.Errorf("%d: want %d to %d", p.BlockSize, low, high)
	case p.BlockSize < p.CIDR.Bits():
		return fmt.Errorf("%d: a block is larger than the pool %s", p.BlockSize, p.CIDR)
	}
	return nil
}

// format writes the default for a BlockSize of 0.
func (p Pool) format(w *writer) error {
	if p.BlockSize == 0 {
		p.BlockSize = defaultBlockSize(p.CIDR)
	}
	w.open('{')
	w.prefix("cidr", p.CIDR)
	if p.IPIP != "" {
		w.str("ipip", p.IPIP)
		if p.IPIPMode == EncapCrossSubnet {
			w.str("ipip_mode", string(p.IPIPMode))
		}
	}
	w.optional("vxlan_mode", string(p.VXLANMode))
	w.boolean("masquerade", p.Masquerade)
	w.flag("ipam", p.IPAM, true)
	w.flag("disabled", p.Disabled, false)
	if p.BlockSize != defaultBlockSize(p.CIDR) {
		w.integer("block_size", p.BlockSize)
	}
	w.optional("node_selector", p.NodeSelector)
	w.optional("namespace_selector", p.NamespaceSelector)
	w.flag("disable_bgp_export", p.DisableBGPExport, false)
	if p.AllowedUses != "" {
		w.strings("allowed_uses", strings.Split(p.AllowedUses, ","))
	}
	if p.Manual {
		w.str("assignment_mode", assignManual)
	}
	w.meta(p.Meta)
	w.close('}')
	return nil
}
