// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// maxElements is how many elements one message carries: its length is of 16 bits,
// and one that is too long is cut without a word.
const maxElements = 500

// The numbers that libnftables gives to types, of nftables' datatype.h.
func typeNumber(t table.Type) uint32 {
	switch t {
	case table.TypeNFProto:
		return 2
	case table.TypeIPv4:
		return 7
	case table.TypeIPv6:
		return 8
	case table.TypeEther:
		return 9
	case table.TypeProtocol:
		return 12
	case table.TypeService:
		return 13
	case table.TypeICMP:
		return 14
	case table.TypeIndex:
		return 20
	case table.TypeICMP6:
		return 29
	case table.TypeICMPCode:
		return 32
	case table.TypeICMP6Code:
		return 33
	case table.TypeFibType:
		return 38
	case table.TypeInterface:
		return 41
	case table.TypeVerdict:
		return unix.NFT_DATA_VERDICT
	}
	return 0
}

// Shape is all that makes a set what it is.
type Shape struct {
	flags, keyType, keySize, dataType, dataSize uint32
	counts                                      bool
}

func ShapeOf(s *table.Set) Shape {
	out := Shape{keySize: uint32(table.KeySize(s.Key)), counts: s.Count}
	for _, t := range s.Key {
		out.keyType = out.keyType<<6 | typeNumber(t)
	}
	if s.Interval {
		out.flags |= unix.NFT_SET_INTERVAL
	}
	if s.Data != "" {
		out.flags |= unix.NFT_SET_MAP
		out.dataType = typeNumber(s.Data)
		if s.Data != table.TypeVerdict {
			out.dataSize = uint32(s.Data.Size())
		}
	}
	return out
}

// verdictOf is that of a verdict map's elements.
func verdictOf(s *table.Set) int {
	if s.Jump {
		return unix.NFT_JUMP
	}
	return unix.NFT_GOTO
}

// Types of user data of a set, of libnftnl's udata.h.
const (
	udataKeyOrder   = 0
	udataSetComment = 7
	orderBig        = 2
	orderHost       = 1
)

const setExpr = 17 // NFTA_SET_EXPR: of every element

// AddSet adds a set, which nothing asks yet, with elements. The batch may be cut between them.
func (b *Batch) AddSet(s table.Set, elements []Element) {
	b.Writes += 1 + len(elements)
	b.set(s, 0)
	b.MayCut()
	for chunk := range slices.Chunk(elements, maxElements) {
		b.AddElements(s, chunk)
		b.MayCut()
	}
}

// set adds a set of a new ID.
func (b *Batch) set(s table.Set, flags uint32) {
	b.setID++
	kind := ShapeOf(&s)
	at := b.open(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, "add set", s.Name)
	b.named(s.Name)
	b.msgs = appendUint32(b.msgs, unix.NFTA_SET_FLAGS, kind.flags|flags)
	b.msgs = appendUint32(b.msgs, unix.NFTA_SET_KEY_TYPE, kind.keyType)
	b.msgs = appendUint32(b.msgs, unix.NFTA_SET_KEY_LEN, kind.keySize)
	b.msgs = appendUint32(b.msgs, unix.NFTA_SET_ID, b.setID)
	if s.Data != "" {
		b.msgs = appendUint32(b.msgs, unix.NFTA_SET_DATA_TYPE, kind.dataType)
		b.msgs = appendUint32(b.msgs, unix.NFTA_SET_DATA_LEN, kind.dataSize)
	}
	if s.Count {
		var at int
		b.msgs, at = openAttr(b.msgs, unix.NLA_F_NESTED|setExpr)
		b.msgs = appendString(b.msgs, unix.NFTA_EXPR_NAME, "counter")
		b.msgs = closeAttr(b.msgs, at)
	}
	order := uint32(orderBig)
	if s.Key[0] == table.TypeInterface || s.Key[0] == table.TypeIndex {
		order = orderHost
	}
	user := binary.NativeEndian.AppendUint32([]byte{udataKeyOrder, 4}, order)
	if s.Comment != "" {
		text := table.Plain(s.Comment)
		text = text[:min(len(text), table.MaxComment)]
		user = append(append(user, udataSetComment, byte(len(text)+1)), append([]byte(text), 0)...)
	}
	b.msgs = appendAttr(b.msgs, unix.NFTA_SET_USERDATA, user)
	b.close(at)
}

// DeleteSet deletes a set that nothing asks.
func (b *Batch) DeleteSet(name string) {
	b.Writes++
	at := b.open(unix.NFT_MSG_DELSET, 0, "delete set", name)
	b.named(name)
	b.close(at)
}

// FlushSet deletes all elements of a set.
func (b *Batch) FlushSet(name string) {
	at := b.open(unix.NFT_MSG_DELSETELEM, 0, "flush set", name)
	b.named(name)
	b.close(at)
}

// Element is an element as the kernel has it, where each end of a range is one.
type Element struct {
	Key, Data string // as table.Element has them
	End       bool   // of a set of ranges: the key isn't the first of a range, but the first after it
}

// elementsOf are the elements of an anonymous set.
func elementsOf(s table.Set) []Element {
	var out []Element
	for _, e := range s.Elements {
		out = append(out, Element{Key: e.Key, Data: e.Data})
		if s.Interval && e.End != "" {
			out = append(out, Element{Key: e.End, End: true})
		}
	}
	return out
}

// AddElements adds elements to a set that is there.
func (b *Batch) AddElements(s table.Set, elements []Element) { b.add(s, 0, elements) }

// add adds elements to a set that is there, or by its ID to one that the batch adds.
func (b *Batch) add(s table.Set, id uint32, elements []Element) {
	b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, "add elements to set", s, id, elements)
}

// DeleteElements deletes elements of a set.
func (b *Batch) DeleteElements(s table.Set, elements []Element) {
	b.elements(unix.NFT_MSG_DELSETELEM, 0, "delete elements of set", s, 0, elements)
}

func (b *Batch) elements(kind int, flags uint16, op string, s table.Set, id uint32, elements []Element) {
	for len(elements) > 0 {
		n := min(len(elements), maxElements)
		m := b.open(kind, flags, op, s.Name)
		b.named(s.Name)
		if id != 0 {
			b.msgs = appendUint32(b.msgs, unix.NFTA_SET_ELEM_LIST_SET_ID, id)
		}
		b.msgs = appendElements(b.msgs, &s, elements[:n])
		b.close(m)
		elements = elements[n:]
	}
}

// appendElements appends a list of elements.
func appendElements(b []byte, s *table.Set, elements []Element) []byte {
	b, list := openAttr(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, e := range elements {
		var one, part int
		b, one = openAttr(b, unix.NFTA_LIST_ELEM)
		if e.End {
			b = appendUint32(b, unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		}
		b, part = openAttr(b, unix.NFTA_SET_ELEM_KEY)
		b = appendAttr(b, unix.NFTA_DATA_VALUE, []byte(e.Key))
		b = closeAttr(b, part)
		if e.Data != "" && s.Data == "" {
			user := append([]byte{udataComment, byte(len(e.Data) + 1)}, e.Data...)
			b = appendAttr(b, unix.NFTA_SET_ELEM_USERDATA, append(user, 0))
		} else if e.Data != "" {
			b, part = openAttr(b, unix.NFTA_SET_ELEM_DATA)
			if s.Data == table.TypeVerdict {
				var v int
				b, v = openAttr(b, unix.NFTA_DATA_VERDICT)
				code := int32(verdictOf(s))
				b = appendUint32(b, unix.NFTA_VERDICT_CODE, uint32(code))
				b = appendString(b, unix.NFTA_VERDICT_CHAIN, e.Data)
				b = closeAttr(b, v)
			} else {
				b = appendAttr(b, unix.NFTA_DATA_VALUE, []byte(e.Data))
			}
			b = closeAttr(b, part)
		}
		b = closeAttr(b, one)
	}
	return closeAttr(b, list)
}
