// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// ReadElements reads all elements of a set. If the set doesn't exist, the error is os.ErrNotExist.
func (c *Conn) ReadElements(def *table.Set, fn func(Element)) error {
	err := c.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, c.named(def.Name), func(body []byte) { parseElements(def, body, fn) })
	if err != nil {
		return fmt.Errorf("read the elements of set %s: %w", def.Name, err)
	}
	return nil
}

// maxAsked is how many elements are requested at once: all answers must fit into a receive buffer of the size that any process gets.
const maxAsked = 50

// Lookup requests one element of a set.
type Lookup struct {
	Set *table.Set
	Key string
	End bool // see Element
	// There says whether the kernel has it, Data its value.
	There bool
	Data  string
}

// Find answers lookups.
func (c *Conn) Find(lookups []*Lookup) error {
	for chunk := range slices.Chunk(lookups, maxAsked) {
		if err := c.find(chunk); err != nil {
			return fmt.Errorf("read elements of sets: %w", err)
		}
	}
	return nil
}

func (c *Conn) find(lookups []*Lookup) error {
	requests := make([]*request, len(lookups))
	for i, l := range lookups {
		body := appendElements(c.named(l.Set.Name), l.Set, []Element{{Key: l.Key, End: l.End}})
		requests[i] = &request{kind: unix.NFT_MSG_GETSETELEM, body: body, fn: func(body []byte) {
			parseElements(l.Set, body, func(e Element) { l.There, l.Data = true, e.Data })
		}}
	}
	err := c.sock.exchange(requests)
	for _, r := range requests {
		if !errors.Is(r.err, os.ErrNotExist) {
			err = errors.Join(err, r.err)
		}
	}
	return err
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
			case unix.NFTA_SET_ELEM_EXPR:
				if def.Bounds {
					out.Data = strconv.FormatUint(number(attr(attr(value, unix.NFTA_EXPR_DATA), connlimitCount)), 10)
				}
			case unix.NFTA_SET_ELEM_FLAGS:
				out.End = number(value)&unix.NFT_SET_ELEM_INTERVAL_END != 0
			}
		}
		fn(out)
	}
}

// parseData returns the data of a map's element: for a verdict map, the chain, or for another verdict a text that is never wanted.
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
