// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// Counters reads what the rules of a chain have counted, "" = of all chains, in
// order. Rules that don't count are left out.
func (f *Firewall) Counters(ctx context.Context, chain string) ([]Counter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Counter
	body := appendString(nil, attrTable, TableName)
	if chain != "" {
		body = appendString(body, attrName, chain)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out = out[:0]
		err := f.sock.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, body, func(_ uint16, body []byte) {
			if c, ok := parseCounter(body); ok && text(attr(body, attrTable)) == TableName {
				out = append(out, c)
			}
		})
		if err == errInterrupted {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the counters of table %s: %w", TableName, err)
		}
		return out, nil
	}
}

func parseCounter(body []byte) (Counter, bool) {
	c := Counter{
		Chain:   text(attr(body, attrName)),
		Comment: text(udata(attr(body, unix.NFTA_RULE_USERDATA), udataComment)),
	}
	for _, e := range attrs(attr(body, unix.NFTA_RULE_EXPRESSIONS)) {
		if text(attr(e, unix.NFTA_EXPR_NAME)) == "counter" {
			data := attr(e, unix.NFTA_EXPR_DATA)
			c.Packets = number(attr(data, unix.NFTA_COUNTER_PACKETS))
			c.Bytes = number(attr(data, unix.NFTA_COUNTER_BYTES))
			return c, true
		}
	}
	return c, false
}
