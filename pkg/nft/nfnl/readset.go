// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// ReadElements reads all elements of a set. Where there is none of its name, the error is os.ErrNotExist.
func (c *Conn) ReadElements(def *table.Set, fn func(Element)) error {
	err := c.sock.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, c.sock.set(def), func(_ uint16, body []byte) {
		parseElements(def, body, fn)
	})
	if err != nil {
		return fmt.Errorf("read the elements of set %s: %w", def.Name, err)
	}
	return nil
}

// set names one in a request.
func (s *socket) set(def *table.Set) []byte {
	return appendString(appendString(nil, attrTable, s.table), attrName, def.Name)
}

// ReadCounted reads all elements of a set that count, and how many packets each has counted. Where
// there is none of its name, the error is os.ErrNotExist.
func (c *Conn) ReadCounted(def *table.Set, fn func(key string, packets uint64)) error {
	err := c.sock.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, c.sock.set(def), func(_ uint16, body []byte) {
		for _, e := range attrs(attr(body, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			key := string(attr(attr(e, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE))
			counter := attr(attr(e, unix.NFTA_SET_ELEM_EXPR), unix.NFTA_EXPR_DATA)
			fn(key, number(attr(counter, unix.NFTA_COUNTER_PACKETS)))
		}
	})
	if err != nil {
		return fmt.Errorf("read the elements of set %s: %w", def.Name, err)
	}
	return nil
}

// MaxAsked is how many elements are asked for at once. Each is an answer of its
// own, and all must fit into the buffer that anyone gets.
const MaxAsked = 100

// Question is for elements of a set, MaxAsked at most, and what the kernel said to it.
type Question struct {
	Set      *table.Set
	Elements []Element
	Found    func(Element)
	// Err is os.ErrNotExist where the kernel hasn't one of them: it stops at the first.
	Err error
}

// Ask puts questions, for MaxAsked elements at most together. The error is not of one of them.
func (c *Conn) Ask(questions []*Question) error {
	requests := make([]*request, len(questions))
	for i, q := range questions {
		body := appendElements(c.sock.set(q.Set), &table.Set{Key: q.Set.Key}, withoutData(q.Elements))
		requests[i] = &request{kind: unix.NFT_MSG_GETSETELEM, flags: unix.NLM_F_ACK, body: body, fn: func(_ uint16, body []byte) {
			parseElements(q.Set, body, q.Found)
		}}
	}
	err := c.sock.exchange(requests)
	for i, r := range requests {
		questions[i].Err = r.err
	}
	return err
}

func withoutData(elements []Element) []Element {
	out := make([]Element, len(elements))
	for i, e := range elements {
		out[i] = Element{Key: e.Key, End: e.End}
	}
	return out
}

func parseElements(def *table.Set, body []byte, fn func(Element)) {
	for _, e := range attrs(attr(body, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
		var out Element
		for kind, value := range attrs(e) {
			switch kind {
			case unix.NFTA_SET_ELEM_KEY:
				out.Key = string(attr(value, unix.NFTA_DATA_VALUE))
			case unix.NFTA_SET_ELEM_DATA:
				out.Data = parseData(def, value)
			case unix.NFTA_SET_ELEM_USERDATA:
				if def.Data == "" {
					out.Data = text(udata(value, udataComment))
				}
			case unix.NFTA_SET_ELEM_FLAGS:
				out.End = number(value)&unix.NFT_SET_ELEM_INTERVAL_END != 0
			}
		}
		fn(out)
	}
}

// parseData is the data of an element of a map: of a verdict map the chain to go
// to, and what is never wanted for any other verdict.
func parseData(def *table.Set, b []byte) string {
	v := attr(b, unix.NFTA_DATA_VERDICT)
	if v == nil {
		return string(attr(b, unix.NFTA_DATA_VALUE))
	}
	chain := text(attr(v, unix.NFTA_VERDICT_CHAIN))
	if code := attr(v, unix.NFTA_VERDICT_CODE); len(code) != 4 || int32(binary.BigEndian.Uint32(code)) != int32(verdictOf(def)) {
		return "another verdict, " + chain
	}
	return chain
}
