// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/fate"
	"github.com/calico-go/calico/pkg/nft/table"
)

// ForeignRule is a rule of a table that somebody else made, whoever made the rule.
type ForeignRule struct {
	fate.Rule
	Installed
}

// BaseChain is a chain of a hook.
type BaseChain struct {
	Table, Name string
	Hook        string // as nft calls it
	Drops       bool   // what none of its rules decides
}

// BaseChains lists those of all tables of the family.
func (c *Conn) BaseChains() (list []BaseChain, err error) {
	hooks := [...]string{unix.NF_INET_PRE_ROUTING: "prerouting", unix.NF_INET_LOCAL_IN: "input", unix.NF_INET_FORWARD: "forward",
		unix.NF_INET_LOCAL_OUT: "output", unix.NF_INET_POST_ROUTING: "postrouting"}
	err = c.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, nil, func(body []byte) {
		hook := attr(body, unix.NFTA_CHAIN_HOOK)
		if n := number(attr(hook, unix.NFTA_HOOK_HOOKNUM)); hook != nil && n < uint64(len(hooks)) {
			name, drops := text(attr(body, unix.NFTA_CHAIN_NAME)), number(attr(body, unix.NFTA_CHAIN_POLICY)) != verdictAccept
			list = append(list, BaseChain{text(attr(body, attrTable)), name, hooks[n], drops})
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
		r := ForeignRule{Installed: parseRule(body), Rule: parseForeign(attr(body, unix.NFTA_RULE_EXPRESSIONS))}
		r.Comment = text(udata(attr(body, unix.NFTA_RULE_USERDATA), udataComment))
		rules = append(rules, r)
	})
	if err != nil {
		return nil, fmt.Errorf("read the rules of chain %s of table %s: %w", chain, inTable, err)
	}
	return rules, nil
}

// Attributes of linux/netfilter/nf_tables_compat.h: the name of an extension of iptables.
const attrExtension = 1

// parseForeign takes what it doesn't know for a condition.
func parseForeign(exprs []byte) fate.Rule {
	var r fate.Rule
	loaded := uint64(0) // the key of meta that is in the register, 0 = something else
	may, chooses := fate.Few, false
	for _, e := range attrs(exprs) {
		data := attr(e, unix.NFTA_EXPR_DATA)
		switch kind := text(attr(e, unix.NFTA_EXPR_NAME)); kind {
		case "counter", "log", "last":
		case "meta":
			if loaded = 0; attr(data, unix.NFTA_META_DREG) != nil {
				loaded = number(attr(data, unix.NFTA_META_KEY))
				may = max(may, mayOf(kind, data))
			}
		case "cmp":
			op, value := number(attr(data, unix.NFTA_CMP_OP)), attr(attr(data, unix.NFTA_CMP_DATA), unix.NFTA_DATA_VALUE)
			if loaded != unix.NFT_META_IIFNAME && loaded != unix.NFT_META_OIFNAME || op > unix.NFT_CMP_NEQ {
				r.Conditional = true
				break
			}
			name, _, whole := bytes.Cut(value, []byte{0})
			r.Names = append(r.Names, fate.Name{
				Out: loaded == unix.NFT_META_OIFNAME, Not: op == unix.NFT_CMP_NEQ, Text: string(name), Prefix: !whole,
			})
		case "immediate":
			parseVerdict(&r, attr(attr(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT))
		case "reject":
			r.Verdict = table.Drop
		case "target":
			if text(attr(data, attrExtension)) == "REJECT" {
				r.Verdict = table.Drop
			}
		case "match":
			if name := text(attr(data, attrExtension)); name != "comment" {
				r.Conditional, may = true, max(may, mayOf(name, nil))
			}
		default:
			if kind == "lookup" {
				chooses = chooses || attr(data, unix.NFTA_LOOKUP_DREG) != nil // a verdict
				if loaded == unix.NFT_META_IIFNAME || loaded == unix.NFT_META_OIFNAME {
					may = fate.Named
				}
			}
			loaded, r.Conditional, may = 0, true, max(may, mayOf(kind, data))
		}
	}
	if r.Conditional && (chooses || r.Verdict == table.Accept || r.Target != "") {
		r.May = may
	}
	return r
}

// mayOf is what packets may have all in common of which an expression, or an extension of iptables, reads something.
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
