// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// Contents are what the kernel holds of our table.
type Contents struct {
	There   bool
	Chains  map[string]Hook        // by name
	Rules   map[string][]Installed // by chain
	Sets    map[string]shape       // named ones
	Foreign bool                   // it is dormant, or has parts that we don't create: named counters, flow tables and the like
}

// Hook is where packets enter a chain in the kernel, and its policy; "" = it is reached only by jumps.
type Hook string

// HookOf returns the Hook of a chain written with h.
func HookOf(h table.Hook) Hook {
	if h == (table.Hook{}) {
		return ""
	}
	at, priority := hookNumbers(h)
	return newHook(h.Type, at, priority, verdictAccept)
}

func newHook(typ string, at uint32, priority int32, policy uint64) Hook {
	return Hook(fmt.Sprintf("%s %d %d %d", typ, at, priority, policy))
}

// Installed is a rule in the kernel.
type Installed struct {
	Hash   Hash
	Handle uint64
}

// ReadTable reads everything except the elements of sets.
func (c *Conn) ReadTable() (Contents, error) {
	t := Contents{Chains: make(map[string]Hook), Rules: make(map[string][]Installed)}
	name := c.named("")
	err := c.ask(unix.NFT_MSG_GETTABLE, 0, name, func(body []byte) {
		t.There = true
		t.Foreign = number(attr(body, unix.NFTA_TABLE_FLAGS)) != 0
	})
	if errors.Is(err, unix.ENOENT) {
		return t, nil
	}
	if err != nil {
		return t, fmt.Errorf("read table %s: %w", c.table, err)
	}
	err = c.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, name, func(body []byte) {
		if text(attr(body, attrTable)) == c.table {
			t.Chains[text(attr(body, unix.NFTA_CHAIN_NAME))] = parseHook(body)
		}
	})
	if err != nil {
		return t, fmt.Errorf("read the chains of table %s: %w", c.table, err)
	}
	err = c.ReadRules("", func(chain string, r Installed) { t.Rules[chain] = append(t.Rules[chain], r) })
	if err != nil {
		return t, err
	}
	if t.Sets, err = c.readSets(); err != nil {
		return t, err
	}
	for _, kind := range [...]int{unix.NFT_MSG_GETOBJ, unix.NFT_MSG_GETFLOWTABLE} {
		err = c.ask(kind, unix.NLM_F_DUMP, name, func(body []byte) {
			t.Foreign = t.Foreign || text(attr(body, attrTable)) == c.table
		})
		if err != nil {
			return t, fmt.Errorf("read what else is in table %s: %w", c.table, err)
		}
	}
	return t, nil
}

// readSets reads which named sets exist; it skips anonymous ones.
func (c *Conn) readSets() (map[string]shape, error) {
	sets := make(map[string]shape)
	err := c.ask(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, c.named(""), func(body []byte) {
		kind := parseShape(body)
		if text(attr(body, attrTable)) == c.table && kind.flags&unix.NFT_SET_ANONYMOUS == 0 {
			sets[text(attr(body, attrName))] = kind
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the sets of table %s: %w", c.table, err)
	}
	return sets, nil
}

func parseHook(chain []byte) Hook {
	in := attr(chain, unix.NFTA_CHAIN_HOOK)
	if in == nil {
		return ""
	}
	return newHook(
		text(attr(chain, unix.NFTA_CHAIN_TYPE)),
		uint32(number(attr(in, unix.NFTA_HOOK_HOOKNUM))),
		int32(number(attr(in, unix.NFTA_HOOK_PRIORITY))),
		number(attr(chain, unix.NFTA_CHAIN_POLICY)),
	)
}

func parseShape(body []byte) shape {
	var s shape
	for kind, data := range attrs(body) {
		v := uint32(number(data))
		switch kind {
		case unix.NFTA_SET_FLAGS:
			s.flags = v
		case unix.NFTA_SET_KEY_TYPE:
			s.keyType = v
		case unix.NFTA_SET_KEY_LEN:
			s.keySize = v
		case unix.NFTA_SET_DATA_TYPE:
			s.dataType = v
		case unix.NFTA_SET_DATA_LEN:
			s.dataSize = v
		case setExpr:
			name := text(attr(data, unix.NFTA_EXPR_NAME))
			s.counts, s.bounds = name == "counter", name == "connlimit"
		}
	}
	if s.dataType == unix.NFT_DATA_VERDICT {
		s.dataSize = 0 // the kernel's own business
	}
	return s
}

// ReadRules reads the rules of a chain in order; "" = of all chains, each in order.
func (c *Conn) ReadRules(chain string, fn func(chain string, r Installed)) error {
	err := c.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, c.named(chain), func(body []byte) {
		if text(attr(body, attrTable)) == c.table {
			fn(text(attr(body, attrName)), parseRule(body))
		}
	})
	if err != nil {
		return fmt.Errorf("read the rules of table %s: %w", c.table, err)
	}
	return nil
}

func parseRule(body []byte) Installed {
	var r Installed
	for kind, data := range attrs(body) {
		switch kind {
		case unix.NFTA_RULE_HANDLE:
			r.Handle = number(data)
		case unix.NFTA_RULE_USERDATA:
			copy(r.Hash[:], udata(data, udataHash))
		}
	}
	return r
}

// Packets returns how many packets those rules of a chain have counted whose comments are picked, and how many rules that are.
func (c *Conn) Packets(chain string, picked func(comment string) bool) (total uint64, rules int, err error) {
	err = c.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, c.named(chain), func(body []byte) {
		if text(attr(body, attrTable)) != c.table || text(attr(body, attrName)) != chain || !picked(text(udata(attr(body, unix.NFTA_RULE_USERDATA), udataComment))) {
			return
		}
		rules++
		for _, e := range attrs(attr(body, unix.NFTA_RULE_EXPRESSIONS)) {
			if text(attr(e, unix.NFTA_EXPR_NAME)) == "counter" {
				total += number(attr(attr(e, unix.NFTA_EXPR_DATA), unix.NFTA_COUNTER_PACKETS))
			}
		}
	})
	if err != nil {
		return 0, 0, fmt.Errorf("read the counters of chain %s: %w", chain, err)
	}
	return total, rules, nil
}
