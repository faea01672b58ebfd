// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// Contents are what the kernel holds under our table's name.
type Contents struct {
	There   bool
	Chains  map[string]Hook        // by name
	Rules   map[string][]Installed // by chain
	Sets    map[string]Shape       // named ones
	Foreign bool                   // it is dormant, or has what we don't make: named counters, flow tables and the like
}

// Hook tells where a chain in the kernel is entered, and what becomes of what none of its rules
// decides; "" = it is reached by jumps alone.
type Hook string

// HookOf is what a chain has that was written with h.
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

// ReadTable reads all but the elements of sets.
func (c *Conn) ReadTable() (Contents, error) {
	t := Contents{Chains: make(map[string]Hook), Rules: make(map[string][]Installed)}
	name := appendString(nil, attrTable, c.sock.table)
	err := c.sock.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, name, func(_ uint16, body []byte) {
		t.There = true
		t.Foreign = number(attr(body, unix.NFTA_TABLE_FLAGS)) != 0
	})
	if errors.Is(err, unix.ENOENT) {
		return t, nil
	}
	if err != nil {
		return t, fmt.Errorf("read table %s: %w", c.sock.table, err)
	}
	for range MaxTries { // they are read in no time
		clear(t.Chains)
		err = c.sock.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, name, func(_ uint16, body []byte) {
			if text(attr(body, attrTable)) == c.sock.table {
				t.Chains[text(attr(body, unix.NFTA_CHAIN_NAME))] = parseHook(body)
			}
		})
		if !errors.Is(err, ErrInterrupted) {
			break
		}
	}
	if err != nil {
		return t, fmt.Errorf("read the chains of table %s: %w", c.sock.table, err)
	}
	err = c.ReadRules(func(chain string, r Installed) { t.Rules[chain] = append(t.Rules[chain], r) })
	if err != nil {
		return t, err
	}
	if t.Sets, err = c.ReadSets(); err != nil {
		return t, err
	}
	for _, kind := range [...]int{unix.NFT_MSG_GETOBJ, unix.NFT_MSG_GETFLOWTABLE} {
		err = c.sock.ask(kind, unix.NLM_F_DUMP, name, func(_ uint16, body []byte) {
			t.Foreign = t.Foreign || text(attr(body, attrTable)) == c.sock.table
		})
		if err != nil {
			return t, fmt.Errorf("read what else is in table %s: %w", c.sock.table, err)
		}
	}
	return t, nil
}

// ReadSets reads what sets there are, without those that live and die with their rule.
func (c *Conn) ReadSets() (map[string]Shape, error) {
	sets := make(map[string]Shape)
	err := c.sock.ask(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, appendString(nil, attrTable, c.sock.table), func(_ uint16, body []byte) {
		kind := parseShape(body)
		if text(attr(body, attrTable)) == c.sock.table && kind.flags&unix.NFT_SET_ANONYMOUS == 0 {
			sets[text(attr(body, attrName))] = kind
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the sets of table %s: %w", c.sock.table, err)
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

func parseShape(body []byte) Shape {
	var s Shape
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
			s.counts = text(attr(data, unix.NFTA_EXPR_NAME)) == "counter"
		}
	}
	if s.dataType == unix.NFT_DATA_VERDICT {
		s.dataSize = 0 // the kernel's own business
	}
	return s
}

// ReadRules reads the rules of all chains, each chain's in order.
func (c *Conn) ReadRules(fn func(chain string, r Installed)) error { return c.sock.readRules("", fn) }

// readRules reads the rules of a chain in order, "" = of all chains.
func (s *socket) readRules(chain string, fn func(chain string, r Installed)) error {
	body := appendString(nil, attrTable, s.table)
	if chain != "" {
		body = appendString(body, attrName, chain)
	}
	err := s.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, body, func(_ uint16, body []byte) {
		if !isText(attr(body, attrTable), s.table) {
			return
		}
		in := chain
		if at := attr(body, attrName); in == "" || !isText(at, in) {
			in = text(at)
		}
		fn(in, parseRule(body))
	})
	if err != nil {
		return fmt.Errorf("read the rules of table %s: %w", s.table, err)
	}
	return nil
}

// manyChains is how many take longer to read than two threads to meet.
const manyChains = 16

// ReadChains reads the rules of some chains, which are about so many: one chain after the
// other, of many half by one socket and half by another.
func (c *Conn) ReadChains(chains map[string]int) (map[string][]Installed, error) {
	names := slices.Collect(maps.Keys(chains))
	read := make([][]Installed, len(names))
	some := func(s *socket, from, to int) error {
		for i := from; i < to; i++ {
			name := names[i]
			list := make([]Installed, 0, chains[name])
			err := s.readRules(name, func(chain string, r Installed) {
				if chain == name {
					list = append(list, r)
				}
			})
			if err != nil {
				return err
			}
			read[i] = list
		}
		return nil
	}
	half, done := len(names), make(chan error, 1)
	if half >= manyChains {
		half /= 2
		go func() { done <- some(&c.beside, half, len(names)) }()
	} else {
		done <- nil
	}
	err := some(&c.sock, 0, half)
	if err = errors.Join(err, <-done); err != nil {
		return nil, err
	}
	rules := make(map[string][]Installed, len(names))
	for i, name := range names {
		rules[name] = read[i]
	}
	return rules, nil
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

// udata is the entry of a type in user data, nil where there is none.
func udata(b []byte, want byte) []byte {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		if b[0] == want {
			return b[2 : 2+int(b[1])]
		}
		b = b[2+int(b[1]):]
	}
	return nil
}

// Counter is what one rule has counted.
type Counter struct {
	Chain, Comment string
	Packets, Bytes uint64
}

// ReadCounters reads what the rules of a chain have counted, "" = of all chains, in
// order. Rules that don't count are left out. Where the error is ErrInterrupted they
// aren't of one time.
func (c *Conn) ReadCounters(chain string) ([]Counter, error) {
	var out []Counter
	body := appendString(nil, attrTable, c.sock.table)
	if chain != "" {
		body = appendString(body, attrName, chain)
	}
	err := c.sock.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, body, func(_ uint16, body []byte) {
		if one, ok := parseCounter(body); ok && text(attr(body, attrTable)) == c.sock.table {
			out = append(out, one)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the counters of table %s: %w", c.sock.table, err)
	}
	return out, nil
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
