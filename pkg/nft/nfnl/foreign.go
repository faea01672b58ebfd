// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/fate"
	"github.com/calico-go/calico/pkg/nft/table"
)

// ForeignRule is a rule of another program's table, whoever added the rule.
type ForeignRule struct {
	fate.Rule
	Installed
}

// BaseChain is a chain with a hook.
type BaseChain struct {
	Table, Name string
	Hook        string // as nft calls it
	Drops       bool   // its policy drops what no rule decides
	Dormant     bool   // the table is dormant: it does nothing
}

// BaseChains lists the base chains of all tables of the family.
func (c *Conn) BaseChains() (list []BaseChain, err error) {
	hooks := [...]string{unix.NF_INET_PRE_ROUTING: "prerouting", unix.NF_INET_LOCAL_IN: "input", unix.NF_INET_FORWARD: "forward",
		unix.NF_INET_LOCAL_OUT: "output", unix.NF_INET_POST_ROUTING: "postrouting"}
	dormant := map[string]bool{}
	err = c.ask(unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, nil, func(body []byte) {
		dormant[text(attr(body, attrTable))] = number(attr(body, unix.NFTA_TABLE_FLAGS))&unix.NFT_TABLE_F_DORMANT != 0
	})
	if err != nil {
		return nil, fmt.Errorf("list the tables of others: %w", err)
	}
	err = c.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, nil, func(body []byte) {
		hook := attr(body, unix.NFTA_CHAIN_HOOK)
		if n := number(attr(hook, unix.NFTA_HOOK_HOOKNUM)); hook != nil && n < uint64(len(hooks)) {
			name, drops := text(attr(body, unix.NFTA_CHAIN_NAME)), number(attr(body, unix.NFTA_CHAIN_POLICY)) != verdictAccept
			inTable := text(attr(body, attrTable))
			list = append(list, BaseChain{inTable, name, hooks[n], drops, dormant[inTable]})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the chains of others: %w", err)
	}
	return list, nil
}

// ReadForeign reads the rules of a chain in order.
func (c *Conn) ReadForeign(inTable, chain string) (rules []ForeignRule, err error) {
	err = c.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, appendString(appendString(nil, attrTable, inTable), attrName, chain), func(body []byte) {
		if text(attr(body, attrTable)) != inTable || text(attr(body, attrName)) != chain {
			return
		}
		r := ForeignRule{Installed: parseRule(body), Rule: parseForeign(attr(body, unix.NFTA_RULE_EXPRESSIONS), c.sock.family)}
		r.Comment = cmp.Or(text(udata(attr(body, unix.NFTA_RULE_USERDATA), udataComment)), r.Comment)
		rules = append(rules, r)
	})
	if err != nil {
		return nil, fmt.Errorf("read the rules of chain %s of table %s: %w", chain, inTable, err)
	}
	return rules, nil
}

// Attributes of linux/netfilter/nf_tables_compat.h: the name of an iptables extension, and its data.
const (
	attrExtension     = 1
	attrExtensionInfo = 3
)

// parseForeign treats what it doesn't know as a condition. In a table of family inet, a rule for one family first checks the family, then
// its addresses.
func parseForeign(exprs []byte, family byte) fate.Rule {
	var r fate.Rule
	registers := map[uint64]loaded{}
	may, chooses := fate.Few, false
	for _, e := range attrs(exprs) {
		data := attr(e, unix.NFTA_EXPR_DATA)
		switch kind := text(attr(e, unix.NFTA_EXPR_NAME)); kind {
		case "counter", "log", "last":
		case "meta", "payload", "ct":
			if to := attr(data, unix.NFTA_META_DREG); to != nil { // otherwise it is written; the number is the same in all of them
				registers[number(to)] = load(kind, data, family)
			}
		case "bitwise":
			registers[number(attr(data, unix.NFTA_BITWISE_DREG))] = registers[number(attr(data, unix.NFTA_BITWISE_SREG))].masked(data)
		case "cmp":
			from := number(attr(data, unix.NFTA_CMP_SREG))
			is, ok := registers[from].compared(data)
			if ok {
				r.Is = append(r.Is, is)
			} else {
				r.Conditional, may = true, max(may, registers[from].may)
			}
			if ok && is.Field == fate.Family && !is.Not {
				family = is.Value[0]
			}
			delete(registers, from)
		case "immediate":
			parseVerdict(&r, attr(attr(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT))
		case "reject":
			r.Verdict = table.Drop
		case "target":
			if text(attr(data, attrExtension)) == "REJECT" {
				r.Verdict = table.Drop
			}
		case "match":
			if name := text(attr(data, attrExtension)); name == "comment" { // iptables-restore makes a match of the rule's comment
				info, _, _ := bytes.Cut(attr(data, attrExtensionInfo), []byte{0})
				r.Comment = string(info)
			} else {
				r.Conditional, may = true, max(may, mayOf(name, nil))
			}
		default:
			chooses = chooses || kind == "lookup" && attr(data, unix.NFTA_LOOKUP_DREG) != nil // to a verdict
			for _, l := range registers {
				if may = max(may, l.may); kind == "lookup" && l.known && l.field <= fate.OutName {
					may = fate.Named
				}
			}
			clear(registers)
			r.Conditional, may = true, max(may, mayOf(kind, data))
		}
	}
	if r.Conditional && (chooses || r.Verdict == table.Accept || r.Verdict == table.Return || r.Target != "") {
		r.May = may
	}
	return r
}

// loaded is what a register holds.
type loaded struct {
	known    bool // the field is known
	field    fate.Field
	mask     net.IPMask // nil = all of it
	may      fate.May   // if it isn't known, or compared otherwise
	link, ct bool       // the index of the incoming interface; the state of the connection
}

func load(kind string, data []byte, family byte) loaded {
	l := loaded{known: true, may: mayOf(kind, data)}
	key := number(attr(data, unix.NFTA_META_KEY)) // ct uses the same number
	base, at, size := number(attr(data, unix.NFTA_PAYLOAD_BASE)), number(attr(data, unix.NFTA_PAYLOAD_OFFSET)), number(attr(data, unix.NFTA_PAYLOAD_LEN))
	v4, v6 := base == unix.NFT_PAYLOAD_NETWORK_HEADER && family == unix.NFPROTO_IPV4, base == unix.NFT_PAYLOAD_NETWORK_HEADER && family == unix.NFPROTO_IPV6
	switch {
	case kind == "ct":
		l.known, l.ct = false, key == unix.NFT_CT_STATE
	case kind == "meta" && key == unix.NFT_META_IIF:
		l.link = true
	case kind == "meta" && key == unix.NFT_META_IIFNAME:
	case kind == "meta" && key == unix.NFT_META_OIFNAME:
		l.field = fate.OutName
	case kind == "meta" && key == unix.NFT_META_NFPROTO:
		l.field = fate.Family
	case kind == "meta" && key == unix.NFT_META_L4PROTO, kind == "payload" && size == 1 && (v4 && at == 9 || v6 && at == 6):
		l.field = fate.Protocol
	case kind == "payload" && (v4 && at == 12 && size <= 4 || v6 && at == 8 && size <= 16):
		l.field = fate.Src
	case kind == "payload" && (v4 && at == 16 && size <= 4 || v6 && at == 24 && size <= 16):
		l.field = fate.Dst
	case kind == "payload" && base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && at == 2 && size == 2:
		l.field = fate.DstPort
	default:
		l.known = false
	}
	return l
}

// masked returns the value after a mask.
func (l loaded) masked(data []byte) loaded {
	mask := attr(attr(data, unix.NFTA_BITWISE_MASK), unix.NFTA_DATA_VALUE)
	const begin = 1<<3 | 1<<6 // NF_CT_STATE_BIT(IP_CT_NEW), NF_CT_STATE_UNTRACKED_BIT
	if l.ct && len(mask) == 4 && binary.NativeEndian.Uint32(mask)&begin != 0 {
		l.may = fate.Any
	}
	l.mask = bytes.Clone(mask)
	_, size := l.mask.Size()
	l.known = l.known && size > 0 && len(bytes.Trim(attr(attr(data, unix.NFTA_BITWISE_XOR), unix.NFTA_DATA_VALUE), "\x00")) == 0
	return l
}

// compared returns the condition that compares the value; false if that is more than a comparison with a value or its beginning.
func (l loaded) compared(data []byte) (fate.Is, bool) {
	op, value := number(attr(data, unix.NFTA_CMP_OP)), attr(attr(data, unix.NFTA_CMP_DATA), unix.NFTA_DATA_VALUE)
	is := fate.Is{Field: l.field, Not: op == unix.NFT_CMP_NEQ, Bits: fate.Text(value)}
	if name, _, whole := bytes.Cut(value, []byte{0}); l.field <= fate.OutName && whole {
		is.Bits = fate.Text(string(name) + "\x00")
	}
	if l.link { // the loopback is always the first
		is.Bits = fate.Text("lo\x00")
		l.known = l.known && len(value) == 4 && binary.NativeEndian.Uint32(value) == 1
	}
	if l.mask != nil {
		is.Len, _ = l.mask.Size()
		for i, b := range value { // a packet never has masked bits
			l.known = l.known && i < len(l.mask) && b&^l.mask[i] == 0
		}
	}
	return is, l.known && op <= unix.NFT_CMP_NEQ && len(value) > 0 && is.Len <= 8*len(is.Value)
}

// mayOf returns the kind of packets that an expression, or an iptables extension, may let pass as a whole.
func mayOf(what string, data []byte) fate.May {
	switch what {
	case "conntrack", "state":
		return fate.Answers
	case "ct":
		switch number(attr(data, unix.NFTA_CT_KEY)) {
		case unix.NFT_CT_STATE:
			return fate.Answers
		case unix.NFT_CT_STATUS:
			return fate.Few
		}
	case "meta":
		switch number(attr(data, unix.NFTA_META_KEY)) {
		case unix.NFT_META_IIFNAME, unix.NFT_META_OIFNAME, unix.NFT_META_IIF, unix.NFT_META_OIF, unix.NFT_META_NFPROTO, unix.NFT_META_L4PROTO, unix.NFT_META_PROTOCOL:
			return fate.Few
		}
	case "payload":
		if at := number(attr(data, unix.NFTA_PAYLOAD_OFFSET)); number(attr(data, unix.NFTA_PAYLOAD_BASE)) != unix.NFT_PAYLOAD_NETWORK_HEADER || at < 12 && at != 8 { // of an address
			return fate.Few
		}
	case "bitwise", "byteorder", "lookup", "range", "limit", "tcp", "udp", "icmp", "icmp6", "multiport":
		return fate.Few
	}
	return fate.Any
}

func parseVerdict(r *fate.Rule, verdict []byte) {
	if verdict == nil {
		return
	}
	switch int32(number(attr(verdict, unix.NFTA_VERDICT_CODE))) {
	case 0: // NF_DROP
		r.Verdict = table.Drop
	case verdictAccept:
		r.Verdict = table.Accept
	case unix.NFT_RETURN:
		r.Verdict = table.Return
	case unix.NFT_JUMP:
		r.Verdict = table.Jump
	case unix.NFT_GOTO:
		r.Verdict = table.Goto
	}
	r.Target = text(attr(verdict, unix.NFTA_VERDICT_CHAIN))
}
