// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// encode appends the expressions of a statement.
func (e *encoder) encode(s table.Statement) {
	switch s := s.(type) {
	case table.Is:
		e.compare(s)
	case table.HasPrefix:
		e.load(s.Field, register)
		e.add(&expr.Cmp{Op: compareOp(s.Not), Register: register, Data: []byte(s.Prefix)})
	case table.Within:
		e.within(s)
	case table.Between:
		e.need(s.Field)
		e.load(s.Field, register)
		e.add(&expr.Range{Op: compareOp(s.Not), Register: register, FromData: []byte(s.First), ToData: []byte(s.Last)})
	case table.Among:
		from := e.loadAll(s.Fields)
		e.lookup(&expr.Lookup{SourceRegister: from, Invert: s.Not}, table.Set{Key: table.TypesOf(s.Fields), Interval: s.Ranges, Elements: s.Values})
	case table.InSet:
		from := e.loadAll(s.Fields)
		e.add(&expr.Lookup{SourceRegister: from, SetName: s.Set, Invert: s.Not})
	case table.Add:
		e.add(&expr.Dynset{SrcRegKey: e.loadAll(s.Fields), SetName: s.Set, Operation: unix.NFT_DYNSET_OP_ADD})
	case table.Remove:
		e.add(&expr.Dynset{SrcRegKey: e.loadAll(s.Fields), SetName: s.Set, Operation: 2}) // NFT_DYNSET_OP_DELETE
	case table.Exceeds:
		limit := &expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(s.PerHour), Unit: expr.LimitTimeHour, Burst: s.PerHour, Over: true}
		e.add(&expr.Dynset{SrcRegKey: e.loadAll(s.Fields), SetName: s.Set, Operation: unix.NFT_DYNSET_OP_UPDATE, Exprs: []expr.Any{limit}})
	case table.Dispatch:
		e.load(s.Field, register)
		e.add(&expr.Lookup{SourceRegister: register, SetName: s.Map, IsDestRegSet: true, DestRegister: unix.NFT_REG_VERDICT})
	case table.State:
		e.state(s)
	case table.Begins:
		e.add(&expr.Ct{Key: expr.CtKeySTATUS, Register: register})
		e.mask(ctConfirmed, 0)
		e.add(&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: native(0)})
	case table.OneIn:
		e.add(&expr.Numgen{Register: register, Modulus: s.Packets, Type: unix.NFT_NG_RANDOM})
		e.add(&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: native(0)})
	case table.MarkIs:
		e.add(&expr.Meta{Key: expr.MetaKeyMARK, Register: register})
		e.mask(s.Mask, 0)
		e.add(&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: native(s.Value)})
	case table.MarkSet:
		e.add(&expr.Meta{Key: expr.MetaKeyMARK, Register: register})
		e.mask(^(s.Clear | s.Set), s.Set)
		e.add(&expr.Meta{Key: expr.MetaKeyMARK, Register: register, SourceRegister: true})
	default:
		e.action(s)
	}
}

const ctConfirmed = 1 << 3 // IPS_CONFIRMED

// action appends statements other than matches.
func (e *encoder) action(s table.Statement) {
	switch s := s.(type) {
	case table.Count:
		e.add(&expr.Counter{})
	case table.Log:
		l := &expr.Log{Key: 1 << unix.NFTA_LOG_PREFIX, Data: []byte(s.Prefix)}
		if s.Group != 0 {
			l.Key |= 1 << unix.NFTA_LOG_GROUP
			l.Group = s.Group
		}
		e.add(l)
	case table.Verdict:
		e.add(&expr.Verdict{Kind: verdictKind(s.Kind), Chain: s.Chain})
	case table.NoTrack:
		e.add(&expr.Notrack{})
	case table.Masquerade:
		e.add(&expr.Masq{FullyRandom: true})
	case table.Translate:
		e.translate(s)
	case table.TranslateTo:
		e.add(&expr.Immediate{Register: unix.NFT_REG_1, Data: s.To.Addr().AsSlice()})
		e.add(&expr.Immediate{Register: unix.NFT_REG_2, Data: []byte(table.PortBytes(s.To.Port()))})
		e.add(&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(table.FamilyIPv4), RegAddrMin: unix.NFT_REG_1, RegProtoMin: unix.NFT_REG_2})
	case table.Reject:
		e.add(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	default:
		e.err = fmt.Errorf("statement %T is not known", s)
	}
}

func compareOp(not bool) expr.CmpOp {
	if not {
		return expr.CmpOpNeq
	}
	return expr.CmpOpEq
}

func verdictKind(k table.VerdictKind) expr.VerdictKind {
	switch k {
	case table.Accept:
		return expr.VerdictAccept
	case table.Return:
		return expr.VerdictReturn
	case table.Jump:
		return expr.VerdictJump
	case table.Goto:
		return expr.VerdictGoto
	}
	return expr.VerdictDrop
}

// native encodes a number in the host's byte order, which marks and states have.
func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func (e *encoder) mask(mask, xor uint32) {
	e.add(&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: native(mask), Xor: native(xor)})
}

func (e *encoder) compare(s table.Is) {
	e.need(s.Field)
	e.load(s.Field, register)
	e.add(&expr.Cmp{Op: compareOp(s.Not), Register: register, Data: []byte(s.Value)})
	if s.Not {
		return
	}
	switch s.Field.From {
	case table.FromNFProto:
		e.family = s.Value[0]
	case table.FromL4Proto:
		e.protocol = s.Value[0]
	}
}

func (e *encoder) within(s table.Within) {
	e.need(s.Field)
	p := s.Prefix.Masked()
	addr := p.Addr().AsSlice()
	if p.Bits()%8 == 0 && s.Field.From != table.FromConn { // whole bytes need no mask
		e.loadPart(s.Field, register, p.Bits()/8)
		e.add(&expr.Cmp{Op: compareOp(s.Not), Register: register, Data: addr[:p.Bits()/8]})
		return
	}
	mask := make([]byte, len(addr))
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	e.load(s.Field, register)
	e.add(&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(len(addr)), Mask: mask, Xor: make([]byte, len(addr))})
	e.add(&expr.Cmp{Op: compareOp(s.Not), Register: register, Data: addr})
}

func (e *encoder) state(s table.State) {
	var bits uint32
	if s.Invalid {
		bits |= expr.CtStateBitINVALID
	}
	if s.Established {
		bits |= expr.CtStateBitESTABLISHED
	}
	if s.Related {
		bits |= expr.CtStateBitRELATED
	}
	if s.New {
		bits |= expr.CtStateBitNEW
	}
	if s.Untracked {
		bits |= expr.CtStateBitUNTRACKED
	}
	e.add(&expr.Ct{Key: expr.CtKeySTATE, Register: register})
	e.mask(bits, 0)
	e.add(&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: native(0)})
}

func (e *encoder) translate(s table.Translate) {
	from := e.loadAll(s.Fields)
	e.add(&expr.Lookup{SourceRegister: from, SetName: s.Map, IsDestRegSet: true, DestRegister: register})
	n := &expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(s.Fields[0].Family), RegAddrMin: register}
	if s.Destination {
		n.Type = expr.NATTypeDestNAT
	}
	e.add(n)
}
