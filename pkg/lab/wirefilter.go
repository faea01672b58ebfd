// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Faults of the wires are nftables rules on the bridges that connect hosts, where the hosts themselves can't see them.
//
// A partition must also apply to packets whose addresses do not show which host sent them: unencapsulated packets of
// pods that have passed routers. So during a partition each packet from a host is marked with the side of its sender:
// on the same wire by its mark, including ARP; beyond a router, where the mark is lost, by its DSCP. Packets to a host
// on another side are dropped. Etcd and the routers mark nothing, and are on every side.
const (
	filterTable = "faults"
	// maxSides bounds the values written to DSCP: 1 to 32, none of which routing daemons use (48).
	maxSides = 32
	// lossModulus is the precision of loss: a hundredth of a percent.
	lossModulus = 10000
)

// setPorts sets the hosts' ports up, or down if the host has lost its link.
func (w wire) setPorts(hosts []*Host, faults map[*Host]*Faults) error {
	return w.ns.links(func(h *netlink.Handle) error {
		var errs []error
		for _, host := range hosts {
			port, err := h.LinkByName(host.port())
			if err != nil {
				return fmt.Errorf("port of host %s: %w", host.name, err)
			}
			f := faults[host]
			switch up := port.Attrs().RawFlags&unix.IFF_UP != 0; {
			case up && (f.Dead || f.LinkDown):
				err = h.LinkSetDown(port)
			case !up && !f.Dead && !f.LinkDown:
				err = h.LinkSetUp(port)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("port of host %s: %w", host.name, err))
			}
		}
		return errors.Join(errs...)
	})
}

// wireRules are a bridge's rules for packets from and to hosts.
type wireRules struct{ from, to [][]expr.Any }

func (f *fabric) portRules(hosts []*Host, faults map[*Host]*Faults, sides []int) wireRules {
	var r wireRules
	for _, h := range hosts {
		wrong := faults[h]
		from := ifname(expr.MetaKeyIIFNAME, h.port())
		to := ifname(expr.MetaKeyOIFNAME, h.port())
		if wrong.Loss > 0 {
			lost := lose(wrong.Loss)
			r.from, r.to = append(r.from, with(from, lost...)), append(r.to, with(to, lost...))
		}
		if wrong.NoEtcd {
			for i := 1; i <= f.state.EtcdMembers; i++ {
				for _, v6 := range []bool{false, true} {
					etcd := memberAddr(v6, i).Addr()
					r.from = append(r.from, with(from, dropAddr(etcd, false)...))
					r.to = append(r.to, with(to, dropAddr(etcd, true)...))
				}
			}
		}
		for at, side := range sides {
			value := byte(at + 1)
			if side == wrong.Side {
				r.from = append(r.from, with(from, setMark(value)...), with(from, setDSCP(value, false)...), with(from, setDSCP(value, true)...))
				continue
			}
			r.to = append(r.to, with(to, dropMark(value)...), with(to, dropDSCP(value, false)...), with(to, dropDSCP(value, true)...))
		}
	}
	return r
}

// filter replaces the rules of a wire atomically.
func (w wire) filter(rules wireRules) error {
	fd, err := netns.GetFromPath(w.ns.path)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", w.ns.path, err)
	}
	defer fd.Close()
	conn, err := nftables.New(nftables.WithNetNSFd(int(fd)))
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamilyBridge, Name: filterTable}
	conn.AddTable(table) // so that there is one to delete
	conn.DelTable(table)
	if len(rules.from)+len(rules.to) > 0 {
		conn.AddTable(table)
		for _, c := range []struct {
			name  string
			hook  *nftables.ChainHook
			rules [][]expr.Any
		}{{"from-hosts", nftables.ChainHookPrerouting, rules.from}, {"to-hosts", nftables.ChainHookPostrouting, rules.to}} {
			accept := nftables.ChainPolicyAccept
			chain := conn.AddChain(&nftables.Chain{
				Name: c.name, Table: table, Type: nftables.ChainTypeFilter,
				Hooknum: c.hook, Priority: nftables.ChainPriorityFilter, Policy: &accept,
			})
			for _, rule := range c.rules {
				conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule})
			}
		}
	}
	if err := conn.Flush(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write the faults of %s: %w", w.bridge, err)
	}
	return nil
}

const reg = 1

func with(head []expr.Any, rest ...expr.Any) []expr.Any { return slices.Concat(head, rest) }

func ifname(key expr.MetaKey, name string) []expr.Any {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return []expr.Any{&expr.Meta{Key: key, Register: reg}, equal(data...)}
}

func equal(data ...byte) *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: data} }

func drop() *expr.Verdict { return &expr.Verdict{Kind: expr.VerdictDrop} }

// lose drops packets at random.
func lose(percent float64) []expr.Any {
	return []expr.Any{
		&expr.Numgen{Register: reg, Modulus: lossModulus, Type: unix.NFT_NG_RANDOM},
		&expr.Byteorder{SourceRegister: reg, DestRegister: reg, Op: expr.ByteorderHton, Len: 4, Size: 4},
		&expr.Cmp{Op: expr.CmpOpLt, Register: reg, Data: binary.BigEndian.AppendUint32(nil, uint32(percent*lossModulus/100))},
		drop(),
	}
}

// ofFamily matches IPv4 or IPv6 packets.
func ofFamily(v6 bool) []expr.Any {
	protocol := uint16(unix.ETH_P_IP)
	if v6 {
		protocol = unix.ETH_P_IPV6
	}
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: reg}, equal(binary.BigEndian.AppendUint16(nil, protocol)...)}
}

// dropAddr drops packets to or from an address.
func dropAddr(a netip.Addr, from bool) []expr.Any {
	offset, size := uint32(16), uint32(4) // of the destination in IPv4's header
	if a.Is6() {
		offset, size = 24, 16
	}
	if from {
		offset -= size
	}
	return with(ofFamily(a.Is6()),
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		equal(a.AsSlice()...), drop())
}

func setMark(side byte) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: reg, Data: binary.NativeEndian.AppendUint32(nil, uint32(side))},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg, SourceRegister: true},
	}
}

func dropMark(side byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg},
		equal(binary.NativeEndian.AppendUint32(nil, uint32(side))...), drop(),
	}
}

// dscp returns the position of the six bits in the first two bytes of a header: IPv4 has them in the second byte, IPv6
// between version and flow label.
func dscp(v6 bool) (shift int, mask uint16) {
	if v6 {
		return 6, 0x3f << 6
	}
	return 2, 0x3f << 2
}

func firstBytes(v6 bool) []expr.Any {
	return with(ofFamily(v6), &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Len: 2})
}

func bits(keep, set uint16) *expr.Bitwise {
	return &expr.Bitwise{
		SourceRegister: reg, DestRegister: reg, Len: 2,
		Mask: binary.BigEndian.AppendUint16(nil, keep), Xor: binary.BigEndian.AppendUint16(nil, set),
	}
}

func setDSCP(side byte, v6 bool) []expr.Any {
	shift, mask := dscp(v6)
	write := &expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: reg, Base: expr.PayloadBaseNetworkHeader, Len: 2}
	if !v6 {
		write.CsumType, write.CsumOffset = expr.CsumTypeInet, 10
	}
	return with(firstBytes(v6), bits(^mask, uint16(side)<<shift), write)
}

func dropDSCP(side byte, v6 bool) []expr.Any {
	shift, mask := dscp(v6)
	return with(firstBytes(v6), bits(mask, 0), equal(binary.BigEndian.AppendUint16(nil, uint16(side)<<shift)...), drop())
}
