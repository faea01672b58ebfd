// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/fate"
	"github.com/calico-go/calico/pkg/nft/table"
)

// FuzzForeign: any rule of others is parsed into conditions that a packet can meet, and is conditional if it has more than these.
func FuzzForeign(f *testing.F) {
	samples, err := os.ReadFile("testdata/iptables-1.8.9.tsv")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(samples)) {
		_, digits, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exprs, err := hex.DecodeString(digits)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(exprs, byte(unix.NFPROTO_IPV4))
	}
	masked := appendExpr(nil, "payload", func(b []byte) []byte { // ip saddr & 255.0.0.0 == 10.1.2.3
		b = appendUint32(appendUint32(b, unix.NFTA_PAYLOAD_DREG, 8), unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER)
		return appendUint32(appendUint32(b, unix.NFTA_PAYLOAD_OFFSET, 12), unix.NFTA_PAYLOAD_LEN, 4)
	})
	value := func(b []byte, kind uint16, v ...byte) []byte {
		return appendNested(b, kind, func(b []byte) []byte { return appendAttr(b, unix.NFTA_DATA_VALUE, v) })
	}
	masked = appendExpr(masked, "bitwise", func(b []byte) []byte {
		return value(appendUint32(appendUint32(b, unix.NFTA_BITWISE_SREG, 8), unix.NFTA_BITWISE_DREG, 8), unix.NFTA_BITWISE_MASK, 255, 0, 0, 0)
	})
	masked = appendExpr(masked, "cmp", func(b []byte) []byte {
		return value(appendUint32(b, unix.NFTA_CMP_SREG, 8), unix.NFTA_CMP_DATA, 10, 1, 2, 3)
	})
	f.Add(masked, byte(unix.NFPROTO_IPV4))
	f.Fuzz(func(t *testing.T, exprs []byte, family byte) {
		r, asked := parseForeign(exprs, family), 0
		for _, e := range attrs(exprs) {
			switch text(attr(e, unix.NFTA_EXPR_NAME)) {
			case "cmp", "lookup", "limit", "fib":
				asked++
			}
		}
		if !r.Conditional && len(r.Is) == 0 && asked > 0 {
			t.Errorf("%+v asks for nothing", r)
		}
		if r.May != 0 && !r.Conditional || r.May < 0 || r.May > fate.Named {
			t.Errorf("%+v", r)
		}
		for _, is := range r.Is {
			if is.Field < fate.InName || is.Field > fate.DstPort || is.Len < 0 || is.Len > 8*len(is.Value) || len(is.Value) == 0 {
				t.Fatalf("%+v", is)
			}
			for i := is.Len; i < 8*len(is.Value); i++ {
				if is.Value[i/8]<<(i%8)&0x80 != 0 {
					t.Fatalf("no packet has %+v: bit %d is masked", is, i)
				}
			}
		}
	})
}

func appendExpr(b []byte, name string, fill func([]byte) []byte) []byte {
	return appendNested(b, unix.NFTA_LIST_ELEM, func(b []byte) []byte {
		return appendNested(appendString(b, unix.NFTA_EXPR_NAME, name), unix.NFTA_EXPR_DATA, fill)
	})
}

// FuzzMessages: whatever a foreign program wrote to a table, everything read is within the messages.
func FuzzMessages(f *testing.F) {
	elements := appendNested(nil, unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(b []byte) []byte {
		return appendNested(b, 1, func(b []byte) []byte {
			b = appendNested(b, unix.NFTA_SET_ELEM_KEY, func(b []byte) []byte { return appendAttr(b, unix.NFTA_DATA_VALUE, []byte{10, 0, 0, 1}) })
			b = appendAttr(b, unix.NFTA_SET_ELEM_USERDATA, appendUdata(nil, udataComment, []byte("x\x00")))
			return appendUint32(b, unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		})
	})
	body := append(appendString(nil, attrTable, "calico"), elements...)
	f.Add(appendMessage(nil, unix.NFPROTO_INET, unix.NFT_MSG_NEWSETELEM, 0, 1, body))
	f.Add(appendMessage(nil, unix.NFPROTO_INET, unix.NFT_MSG_NEWRULE, 0, 1, appendAttr(appendUint64(body, unix.NFTA_RULE_HANDLE, 7), unix.NFTA_RULE_USERDATA, appendUdata(nil, udataHash, make([]byte, 200)))))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Conn{table: "calico"}
		for h, m := range messages(b) {
			if len(m) > len(b)-headerSize {
				t.Fatal(len(m), len(b))
			}
			_ = errnoOf(m)
			c.foreign([]netlink.Message{{Header: netlink.Header{Type: netlink.HeaderType(h.kind), PID: h.port}, Data: m}})
			body := m[min(familySize, len(m)):]
			var again []byte
			for kind, data := range attrs(body) {
				again = appendAttr(again, kind, data)
			}
			if len(again) > len(pad(append([]byte(nil), body...))) {
				t.Fatalf("%x is read as %x", body, again)
			}
			if parseRule(body) != parseRule(again) || parseHook(body) != parseHook(again) || parseShape(body) != parseShape(again) {
				t.Fatalf("%x is not read as %x", body, again)
			}
			for _, set := range []*table.Set{{}, {Data: table.TypeVerdict}, {Bounds: true}} {
				n := 0
				parseElements(set, body, func(e Element) { n += len(e.Key) })
				if n > len(body) {
					t.Fatalf("%d bytes of keys in %d", n, len(body))
				}
			}
		}
	})
}
