// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// contents are what the kernel holds under our table's name.
type contents struct {
	there  bool
	flags  uint64
	chains map[string]readChain
	rules  map[string][]installed // by chain
	sets   map[string]shape       // named ones
	others bool                   // named counters, flow tables and the like, of which we have none
}

// readChain is a chain in the kernel; hook is "" where it has none.
type readChain struct{ hook string }

// hookKey tells hooks apart.
func hookKey(typ string, at uint32, priority int32, policy uint64) string {
	return fmt.Sprintf("%s %d %d %d", typ, at, priority, policy)
}

func chainHook(c *table.Chain) string {
	if c.Hook == (table.Hook{}) {
		return ""
	}
	at, priority := hookOf(c.Hook)
	return hookKey(c.Hook.Type, at, priority, verdictAccept)
}

// generation is the number of the ruleset, which grows with every transaction of
// anybody's.
func (s *socket) generation() (uint32, error) {
	g := uint32(0)
	err := s.ask(unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, nil, func(_ uint16, body []byte) {
		g = uint32(number(attr(body, unix.NFTA_GEN_ID)))
	})
	if err != nil {
		return 0, fmt.Errorf("read the generation of the ruleset: %w", err)
	}
	return g, nil
}

// readTable reads all but the elements of sets.
func (s *socket) readTable() (contents, error) {
	t := contents{chains: make(map[string]readChain), rules: make(map[string][]installed)}
	name := appendString(nil, attrTable, TableName)
	err := s.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK, name, func(_ uint16, body []byte) {
		t.there = true
		t.flags = number(attr(body, unix.NFTA_TABLE_FLAGS))
	})
	if errors.Is(err, unix.ENOENT) {
		return t, nil
	}
	if err != nil {
		return t, fmt.Errorf("read table %s: %w", TableName, err)
	}
	for range maxTries { // they are read in no time
		clear(t.chains)
		err = s.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, name, func(_ uint16, body []byte) {
			if text(attr(body, attrTable)) == TableName {
				t.chains[text(attr(body, unix.NFTA_CHAIN_NAME))] = parseChain(body)
			}
		})
		if !errors.Is(err, errInterrupted) {
			break
		}
	}
	if err != nil {
		return t, fmt.Errorf("read the chains of table %s: %w", TableName, err)
	}
	err = s.readRules("", func(chain string, r installed) { t.rules[chain] = append(t.rules[chain], r) })
	if err != nil {
		return t, err
	}
	if t.sets, err = s.readSets(); err != nil {
		return t, err
	}
	for _, kind := range [...]int{unix.NFT_MSG_GETOBJ, unix.NFT_MSG_GETFLOWTABLE} {
		err = s.ask(kind, unix.NLM_F_DUMP, name, func(_ uint16, body []byte) {
			t.others = t.others || text(attr(body, attrTable)) == TableName
		})
		if err != nil {
			return t, fmt.Errorf("read what else is in table %s: %w", TableName, err)
		}
	}
	return t, nil
}

// readSets reads what sets there are, without those that live and die with their rule.
func (s *socket) readSets() (map[string]shape, error) {
	sets := make(map[string]shape)
	err := s.ask(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, appendString(nil, attrTable, TableName), func(_ uint16, body []byte) {
		kind := parseShape(body)
		if text(attr(body, attrTable)) == TableName && kind.flags&unix.NFT_SET_ANONYMOUS == 0 {
			sets[text(attr(body, attrName))] = kind
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the sets of table %s: %w", TableName, err)
	}
	return sets, nil
}

func parseChain(body []byte) readChain {
	hook := attr(body, unix.NFTA_CHAIN_HOOK)
	if hook == nil {
		return readChain{}
	}
	return readChain{hookKey(
		text(attr(body, unix.NFTA_CHAIN_TYPE)),
		uint32(number(attr(hook, unix.NFTA_HOOK_HOOKNUM))),
		int32(number(attr(hook, unix.NFTA_HOOK_PRIORITY))),
		number(attr(body, unix.NFTA_CHAIN_POLICY)),
	)}
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
			s.counts = text(attr(data, unix.NFTA_EXPR_NAME)) == "counter"
		}
	}
	if s.dataType == unix.NFT_DATA_VERDICT {
		s.dataSize = 0 // the kernel's own business
	}
	return s
}

// readRules reads the rules of a chain in order, "" = of all chains.
func (s *socket) readRules(chain string, fn func(chain string, r installed)) error {
	body := appendString(nil, attrTable, TableName)
	if chain != "" {
		body = appendString(body, attrName, chain)
	}
	err := s.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, body, func(_ uint16, body []byte) {
		if !isText(attr(body, attrTable), TableName) {
			return
		}
		in := chain
		if at := attr(body, attrName); in == "" || !isText(at, in) {
			in = text(at)
		}
		fn(in, parseRule(body))
	})
	if err != nil {
		return fmt.Errorf("read the rules of table %s: %w", TableName, err)
	}
	return nil
}

func parseRule(body []byte) installed {
	var r installed
	for kind, data := range attrs(body) {
		switch kind {
		case unix.NFTA_RULE_HANDLE:
			r.handle = number(data)
		case unix.NFTA_RULE_USERDATA:
			copy(r.hash[:], udata(data, udataHash))
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

// readElements reads all elements of a set, with keys as the desired state has them.
func (s *socket) readElements(def *table.Set, fn func(key, data string)) error {
	body := appendString(appendString(nil, attrTable, TableName), attrName, def.Name)
	err := s.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, body, func(_ uint16, body []byte) {
		parseElements(def, body, fn)
	})
	if err != nil {
		return fmt.Errorf("read the elements of set %s: %w", def.Name, err)
	}
	return nil
}

// maxAsked is how many elements are asked for at once. Each is an answer of its
// own, and all must fit into the buffer that anyone gets.
const maxAsked = 100

// find asks for elements of a set, maxAsked at most; the kernel stops at the first
// that it doesn't have.
func find(def *table.Set, elements []rawElement, fn func(key, data string)) *request {
	body := appendString(appendString(nil, attrTable, TableName), attrName, def.Name)
	body = appendElements(body, &table.Set{Key: def.Key}, withoutData(elements))
	return &request{kind: unix.NFT_MSG_GETSETELEM, flags: unix.NLM_F_ACK, body: body, fn: func(_ uint16, body []byte) {
		parseElements(def, body, fn)
	}}
}

func withoutData(elements []rawElement) []rawElement {
	out := make([]rawElement, len(elements))
	for i, e := range elements {
		out[i] = rawElement{key: e.key, end: e.end}
	}
	return out
}

func parseElements(def *table.Set, body []byte, fn func(key, data string)) {
	for _, e := range attrs(attr(body, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
		key, data, end := "", "", endStart
		for kind, value := range attrs(e) {
			switch kind {
			case unix.NFTA_SET_ELEM_KEY:
				key = string(attr(value, unix.NFTA_DATA_VALUE))
			case unix.NFTA_SET_ELEM_DATA:
				data = parseData(def, value)
			case unix.NFTA_SET_ELEM_USERDATA:
				if def.Data == "" {
					data = text(udata(value, udataComment))
				}
			case unix.NFTA_SET_ELEM_FLAGS:
				if number(value)&unix.NFT_SET_ELEM_INTERVAL_END != 0 {
					end = endEnd
				}
			}
		}
		if def.Interval {
			key += end
		}
		fn(key, data)
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
