// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// maxElements is how many elements one message carries: its length has 16 bits, and one that is too long is cut off silently.
const maxElements = 500

// typeNumber returns libnftables' number of a type, from nftables' datatype.h.
func typeNumber(t table.Type) uint32 {
	switch t {
	case table.TypeNFProto:
		return 2
	case table.TypeVNI:
		return 4
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

// shape is what can't be changed about a set.
type shape struct {
	flags, keyType, keySize, dataType, dataSize uint32
	counts, bounds                              bool
}

// ShapeOf returns the shape that a set has when it is written.
func ShapeOf(s *table.Set) shape {
	out := shape{keySize: uint32(table.KeySize(s.Key)), counts: s.Count, bounds: s.Bounds}
	for _, t := range s.Key {
		out.keyType = out.keyType<<6 | typeNumber(t)
	}
	if s.Interval {
		out.flags |= unix.NFT_SET_INTERVAL
	}
	if s.Timeout || s.Expires > 0 {
		out.flags |= unix.NFT_SET_TIMEOUT
	}
	if s.Expires > 0 {
		out.flags |= unix.NFT_SET_EVAL
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

// verdictOf returns the verdict of a verdict map's elements.
func verdictOf(s *table.Set) int {
	if s.Jump {
		return unix.NFT_JUMP
	}
	return unix.NFT_GOTO
}

// The byte order of a set's key, from libnftnl's udata.h.
const (
	orderHost = 1
	orderBig  = 2
)

const setExpr = 17 // NFTA_SET_EXPR: of every element

// AddSet adds a set that nothing refers to yet, with elements. The batch may be cut between them.
func (b *Batch) AddSet(s table.Set, elements []Element) {
	b.Writes += 1 + len(elements)
	b.set(s, 0)
	b.MayCut()
	for chunk := range slices.Chunk(elements, maxElements) {
		b.AddElements(s, chunk)
		b.MayCut()
	}
}

// set adds a set with a new ID.
func (b *Batch) set(s table.Set, flags uint32) {
	b.setID++
	kind := ShapeOf(&s)
	body := appendUint32(b.conn.named(s.Name), unix.NFTA_SET_FLAGS, kind.flags|flags)
	body = appendUint32(body, unix.NFTA_SET_KEY_TYPE, kind.keyType)
	body = appendUint32(body, unix.NFTA_SET_KEY_LEN, kind.keySize)
	body = appendUint32(body, unix.NFTA_SET_ID, b.setID)
	if s.Data != "" {
		body = appendUint32(body, unix.NFTA_SET_DATA_TYPE, kind.dataType)
		body = appendUint32(body, unix.NFTA_SET_DATA_LEN, kind.dataSize)
	}
	if s.Expires > 0 {
		body = appendUint64(body, unix.NFTA_SET_TIMEOUT, uint64(s.Expires.Milliseconds()))
		body = appendNested(body, unix.NFTA_SET_DESC, func(b []byte) []byte { return appendUint32(b, unix.NFTA_SET_DESC_SIZE, table.MaxAdded) })
	}
	if s.Count {
		body = appendNested(body, setExpr, func(b []byte) []byte { return appendString(b, unix.NFTA_EXPR_NAME, "counter") })
	}
	if s.Bounds {
		body = appendNested(body, setExpr, connlimit("0"))
	}
	order := uint32(orderBig)
	if s.Key[0] == table.TypeInterface || s.Key[0] == table.TypeIndex {
		order = orderHost
	}
	user := appendUdata(nil, udataKeyOrder, binary.NativeEndian.AppendUint32(nil, order))
	if s.Comment != "" {
		user = appendUdata(user, udataSetComment, comment(s.Comment))
	}
	b.add(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, "add set", s.Name, appendAttr(body, unix.NFTA_SET_USERDATA, user))
}

const (
	connlimitCount = 1 // NFTA_CONNLIMIT_COUNT
	connlimitFlags = 2 // NFTA_CONNLIMIT_FLAGS
	connlimitOver  = 1 // it matches if there are more
)

// connlimit appends an expression that counts connections, with its bound.
func connlimit(most string) func([]byte) []byte {
	n, _ := strconv.ParseUint(most, 10, 32)
	return func(b []byte) []byte {
		b = appendString(b, unix.NFTA_EXPR_NAME, "connlimit")
		return appendNested(b, unix.NFTA_EXPR_DATA, func(b []byte) []byte {
			return appendUint32(appendUint32(b, connlimitCount, uint32(n)), connlimitFlags, connlimitOver)
		})
	}
}

// DeleteSet deletes a set that nothing refers to.
func (b *Batch) DeleteSet(name string) {
	b.Writes++
	b.add(unix.NFT_MSG_DELSET, 0, "delete set", name, b.conn.named(name))
}

// FlushSet deletes all elements of a set.
func (b *Batch) FlushSet(name string) {
	b.add(unix.NFT_MSG_DELSETELEM, 0, "flush set", name, b.conn.named(name))
}

// Element is an element of the kernel's, where each end of a range is one.
type Element struct {
	Key, Data string // as in table.Element
	End       bool   // in a set of ranges: the key is the first after a range, not the first of one
	// Timeout is how long the kernel keeps an element of a set with timeouts.
	Timeout time.Duration
}

// elementsOf returns the elements of an anonymous set.
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

// AddElements adds elements to an existing set.
func (b *Batch) AddElements(s table.Set, elements []Element) {
	b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, "add elements to set", s, 0, elements)
}

// DeleteElements deletes elements of a set.
func (b *Batch) DeleteElements(s table.Set, elements []Element) {
	b.elements(unix.NFT_MSG_DELSETELEM, 0, "delete elements of set", s, 0, elements)
}

// elements sends elements of an existing set, or with an ID those of one that the batch adds.
func (b *Batch) elements(kind int, flags uint16, op string, s table.Set, id uint32, elements []Element) {
	for chunk := range slices.Chunk(elements, maxElements) {
		body := b.conn.named(s.Name)
		if id != 0 {
			body = appendUint32(body, unix.NFTA_SET_ELEM_LIST_SET_ID, id)
		}
		b.add(kind, flags, op, s.Name, appendElements(body, &s, chunk))
	}
}

// appendElements appends a list of elements.
func appendElements(b []byte, s *table.Set, elements []Element) []byte {
	return appendNested(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(b []byte) []byte {
		for _, e := range elements {
			b = appendNested(b, unix.NFTA_LIST_ELEM, func(b []byte) []byte { return appendElement(b, s, e) })
		}
		return b
	})
}

func appendElement(b []byte, s *table.Set, e Element) []byte {
	if e.End {
		b = appendUint32(b, unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	if e.Timeout > 0 {
		b = appendUint64(b, unix.NFTA_SET_ELEM_TIMEOUT, uint64(e.Timeout.Milliseconds()))
	}
	value := func(data string) func([]byte) []byte {
		return func(b []byte) []byte { return appendAttr(b, unix.NFTA_DATA_VALUE, []byte(data)) }
	}
	b = appendNested(b, unix.NFTA_SET_ELEM_KEY, value(e.Key))
	switch {
	case e.Data == "":
		return b
	case s.Bounds:
		return appendNested(b, unix.NFTA_SET_ELEM_EXPR, connlimit(e.Data))
	case s.Data == "":
		return appendAttr(b, unix.NFTA_SET_ELEM_USERDATA, appendUdata(nil, udataComment, append([]byte(e.Data), 0)))
	case s.Data != table.TypeVerdict:
		return appendNested(b, unix.NFTA_SET_ELEM_DATA, value(e.Data))
	}
	return appendNested(b, unix.NFTA_SET_ELEM_DATA, func(b []byte) []byte {
		return appendNested(b, unix.NFTA_DATA_VERDICT, func(b []byte) []byte {
			b = appendUint32(b, unix.NFTA_VERDICT_CODE, uint32(int32(verdictOf(s))))
			return appendString(b, unix.NFTA_VERDICT_CHAIN, e.Data)
		})
	})
}
