// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// This file and encodestatement.go encode values for the kernel.

// Hash identifies the content of a rule. It is kept in the rule's user data, so that a rule that was read can be compared with the wanted
// one.
type Hash [8]byte

// Rule is a rule as it is sent.
type Rule struct {
	Hash     Hash
	exprs    []byte // attributes of NFTA_RULE_EXPRESSIONS
	userdata []byte
	sets     []anonymous
}

// Ranges reports whether the rule has a set of ranges of its own.
func (r *Rule) Ranges() bool {
	return slices.ContainsFunc(r.sets, func(s anonymous) bool { return s.Interval })
}

// anonymous is a set that exists only with its rule.
type anonymous struct {
	table.Set
	at int // where in exprs its 4-byte ID belongs
}

// The kernel refuses a rule with more expressions (NFT_RULE_MAXEXPRS), or one that takes more memory (12 bits of struct nft_rule), and with
// it the whole transaction.
const (
	maxExpressions = 128
	maxRuleSize    = 1<<12 - 1
)

// expressionSize returns how many bytes an expression takes in the kernel at most.
func expressionSize(x expr.Any) int {
	switch x.(type) {
	case *expr.Meta, *expr.Payload, *expr.Counter, *expr.Ct:
		return 16
	case *expr.Lookup:
		return 56
	}
	return 64
}

// Fits reports whether the kernel accepts a rule of these statements.
func Fits(do ...table.Statement) bool {
	e := encoder{}
	for _, s := range do {
		e.encode(s)
	}
	return e.fits()
}

func (e *encoder) fits() bool { return e.count <= maxExpressions && e.size <= maxRuleSize }

// EncodeRule encodes a rule. An error is a bug of the caller.
func EncodeRule(r table.Rule) (*Rule, error) {
	e := encoder{}
	for _, s := range r.Do {
		e.encode(s)
	}
	if e.err == nil && !e.fits() {
		e.err = fmt.Errorf("%d expressions of %d bytes: the kernel takes %d of %d", e.count, e.size, maxExpressions, maxRuleSize)
	}
	if e.err != nil {
		return nil, fmt.Errorf("rule %s: %w", r, e.err)
	}
	out := e.out
	h := sha256.New()
	h.Write(out.exprs)
	for _, s := range out.sets {
		fmt.Fprint(h, s.at, s.Key, s.Interval)
		for _, el := range s.Elements {
			fmt.Fprintf(h, "%q %q,", el.Key, el.End)
		}
	}
	h.Write([]byte(r.Comment))
	copy(out.Hash[:], h.Sum(nil))
	if r.Comment != "" {
		out.userdata = appendUdata(nil, udataComment, append([]byte(r.Comment), 0))
	}
	out.userdata = appendUdata(out.userdata, udataHash, out.Hash[:])
	return &out, nil
}

// encoder encodes the expressions of one rule.
type encoder struct {
	out              Rule
	family, protocol byte          // what the packet is known to be
	ether            bool          // the packet is known to have an Ethernet header
	loaded           []table.Field // what the registers hold, in order, if known
	count, size      int           // of expressions, and of their memory in the kernel
	err              error
}

// The registers: one of 16 bytes, or for concatenations, the same one in pieces of 4 bytes and those that follow.
const (
	register   = unix.NFT_REG_1
	register32 = 8 // NFT_REG32_00
)

// add appends one expression.
func (e *encoder) add(x expr.Any) {
	if e.err != nil {
		return
	}
	b, err := expr.Marshal(unix.NFPROTO_INET, x)
	if err != nil {
		e.err = err
		return
	}
	e.out.exprs = appendAttr(e.out.exprs, unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, b)
	e.count++
	e.size += expressionSize(x)
	if _, ok := x.(*expr.Lookup); !ok {
		e.loaded = nil
	}
}

// lookup appends a lookup in an anonymous set, whose ID is its last 4 bytes.
func (e *encoder) lookup(x *expr.Lookup, s table.Set) {
	x.SetName = "__set%d"
	e.add(x)
	e.out.sets = append(e.out.sets, anonymous{s, len(e.out.exprs) - 4})
}

// need ensures that a field exists before it is loaded.
func (e *encoder) need(f table.Field) {
	if f.Family != 0 && e.family != f.Family {
		e.family = f.Family
		e.add(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register})
		e.add(&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{f.Family}})
	}
	if f.From == table.FromLink && !e.ether {
		e.ether = true
		e.add(&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: register})
		e.add(&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_ETHER)})
	}
	if f.Protocol != 0 && e.protocol != f.Protocol {
		e.protocol = f.Protocol
		e.add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register})
		e.add(&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{f.Protocol}})
	}
}

// load puts a field into a register.
func (e *encoder) load(f table.Field, into uint32) {
	e.loadPart(f, into, f.Type.Size())
}

func (e *encoder) loadPart(f table.Field, into uint32, size int) {
	payload := func(base expr.PayloadBase) {
		e.add(&expr.Payload{DestRegister: into, Base: base, Offset: f.Offset, Len: uint32(size)})
	}
	switch f.From {
	case table.FromInName:
		e.add(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: into})
	case table.FromInIndex:
		e.add(&expr.Meta{Key: expr.MetaKeyIIF, Register: into})
	case table.FromOutName:
		e.add(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: into})
	case table.FromNFProto:
		e.add(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: into})
	case table.FromL4Proto:
		e.add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: into})
	case table.FromLink:
		payload(expr.PayloadBaseLLHeader)
	case table.FromNetwork:
		payload(expr.PayloadBaseNetworkHeader)
	case table.FromTransport:
		payload(expr.PayloadBaseTransportHeader)
	case table.FromConn:
		e.add(&expr.Ct{Register: into, Key: expr.CtKeyDSTIP, OptDirection: true, Direction: expr.CtDirOriginal})
	case table.FromCaller:
		e.add(&expr.Ct{Register: into, Key: connSource(f.Type), OptDirection: true, Direction: expr.CtDirOriginal})
	case table.FromAnswerer:
		e.add(&expr.Ct{Register: into, Key: connSource(f.Type), OptDirection: true, Direction: expr.CtDirReply})
	case table.FromFib:
		e.add(&expr.Fib{Register: into, FlagDADDR: true, ResultADDRTYPE: true})
	case table.FromFibSource, table.FromFibOut:
		e.add(&expr.Fib{Register: into, FlagSADDR: true, FlagOIF: f.From == table.FromFibOut, ResultADDRTYPE: true})
	}
}

func connSource(t table.Type) expr.CtKey {
	if t == table.TypeIPv6 {
		return expr.CtKeySRCIP6
	}
	return expr.CtKeySRCIP
}

// loadAll loads fields into consecutive registers, unless they are there: a rule may look up the same ones in many sets.
func (e *encoder) loadAll(fields []table.Field) uint32 {
	for _, f := range fields {
		e.need(f)
	}
	if len(fields) == 1 {
		e.load(fields[0], register)
		return register
	}
	if slices.Equal(e.loaded, fields) {
		return register32
	}
	at := uint32(register32)
	for _, f := range fields {
		e.load(f, at)
		at += uint32(f.Type.Padded() / 4)
	}
	e.loaded = fields
	return register32
}
