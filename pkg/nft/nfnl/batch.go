// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// Batch is a list of changes that the kernel makes all at once or not at all.
type Batch struct {
	// Writes is the number of changes, as people count them. The caller adds changed elements and flushed rules.
	Writes int
	// Portion is the largest transaction in bytes where the batch may be cut; 0 = as large as the socket allows.
	Portion int
	Between func() // called after each transaction except the last; may be nil

	conn  *Conn
	msgs  []byte
	what  []what // subject of each message, for errors
	seams []seam // where the batch may be cut
	cut   seam   // where it must be cut, zero = nowhere
	setID uint32 // ID of the last new set
}

// NewBatch returns an empty batch.
func (c *Conn) NewBatch() *Batch { return &Batch{conn: c} }

// Empty reports whether the batch has no changes.
func (b *Batch) Empty() bool { return len(b.msgs) == 0 }

type what struct {
	seq      uint32
	op, name string
}

// seam is a place before which nothing depends on what follows, and nothing is reached by a packet yet.
type seam struct{ at, messages int }

// add appends a message about something in the table.
func (b *Batch) add(kind int, flags uint16, op, name string, body []byte) {
	seq := b.conn.sock.next()
	b.what = append(b.what, what{seq, op, name})
	b.msgs = appendMessage(b.msgs, b.conn.sock.family, kind, flags, seq, body)
}

// MayCut marks a place where the batch may be cut.
func (b *Batch) MayCut() { b.seams = append(b.seams, seam{len(b.msgs), len(b.what)}) }

// MustCut makes the batch so far a transaction of its own.
func (b *Batch) MustCut() { b.cut = seam{len(b.msgs), len(b.what)} }

// AddTable adds the table.
func (b *Batch) AddTable() {
	b.Writes++
	b.add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, "add table", b.conn.table, b.conn.named(""))
}

// DeleteTable deletes the table, with all that is in it.
func (b *Batch) DeleteTable() {
	b.Writes++
	b.add(unix.NFT_MSG_DELTABLE, 0, "delete table", b.conn.table, b.conn.named(""))
}

// hookNumbers returns the kernel's numbers for a hook.
func hookNumbers(h table.Hook) (at uint32, priority int32) {
	at = map[string]uint32{
		"prerouting": unix.NF_INET_PRE_ROUTING, "input": unix.NF_INET_LOCAL_IN, "forward": unix.NF_INET_FORWARD,
		"output": unix.NF_INET_LOCAL_OUT, "postrouting": unix.NF_INET_POST_ROUTING,
	}[h.At]
	name, before, _ := strings.Cut(h.Priority, " - ")
	place, named := map[string]int{"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "srcnat": 100}[name]
	if !named {
		place, _ = strconv.Atoi(name)
	}
	less, _ := strconv.Atoi(before)
	return at, int32(place - less)
}

const (
	chainComment  = 12 // NFTA_CHAIN_USERDATA
	verdictAccept = 1  // NF_ACCEPT
)

// comment returns a text with its NUL, as user data has it.
func comment(text string) []byte {
	text = table.Plain(text)
	return append([]byte(text[:min(len(text), table.MaxComment)]), 0)
}

// chain begins a message about a chain.
func (b *Batch) chain(name string) []byte {
	return appendString(appendString(nil, attrTable, b.conn.table), unix.NFTA_CHAIN_NAME, name)
}

// AddChain adds a chain, without its rules.
func (b *Batch) AddChain(c table.Chain) {
	b.Writes++
	body := b.chain(c.Name)
	if c.Hook != (table.Hook{}) {
		hook, priority := hookNumbers(c.Hook)
		body = appendNested(body, unix.NFTA_CHAIN_HOOK, func(body []byte) []byte {
			return appendUint32(appendUint32(body, unix.NFTA_HOOK_HOOKNUM, hook), unix.NFTA_HOOK_PRIORITY, uint32(priority))
		})
		body = appendUint32(body, unix.NFTA_CHAIN_POLICY, verdictAccept)
		body = appendString(body, unix.NFTA_CHAIN_TYPE, c.Hook.Type)
	}
	if c.Comment != "" {
		body = appendAttr(body, chainComment, appendUdata(nil, udataComment, comment(c.Comment)))
	}
	b.add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, "add chain", c.Name, body)
}

// DeleteChain deletes an empty chain.
func (b *Batch) DeleteChain(name string) {
	b.Writes++
	b.add(unix.NFT_MSG_DELCHAIN, 0, "delete chain", name, b.chain(name))
}

// FlushChain deletes all rules of a chain.
func (b *Batch) FlushChain(name string) {
	b.add(unix.NFT_MSG_DELRULE, 0, "flush chain", name, b.conn.named(name))
}

// DeleteRule deletes the rule with the handle.
func (b *Batch) DeleteRule(chain string, handle uint64) {
	b.Writes++
	b.add(unix.NFT_MSG_DELRULE, 0, "delete a rule of chain", chain, appendUint64(b.conn.named(chain), unix.NFTA_RULE_HANDLE, handle))
}

// AddRule adds a rule before the one with a handle, 0 = at the end.
func (b *Batch) AddRule(chain string, r *Rule, before uint64) {
	b.Writes++
	exprs := r.exprs
	if len(r.sets) > 0 {
		exprs = append([]byte(nil), exprs...)
	}
	for _, s := range r.sets {
		s.Name = "__set%d"
		b.set(s.Set, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT)
		b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, "add elements to set", s.Set, b.setID, elementsOf(s.Set))
		binary.BigEndian.PutUint32(exprs[s.at:], b.setID)
	}
	flags := uint16(unix.NLM_F_CREATE)
	body := appendAttr(b.conn.named(chain), unix.NLA_F_NESTED|unix.NFTA_RULE_EXPRESSIONS, exprs)
	body = appendAttr(body, unix.NFTA_RULE_USERDATA, r.userdata)
	if before != 0 {
		body = appendUint64(body, unix.NFTA_RULE_POSITION, before)
	} else {
		flags |= unix.NLM_F_APPEND
	}
	b.add(unix.NFT_MSG_NEWRULE, flags, "add a rule to chain", chain, body)
}

// MaxTries is how many times a change is tried if others change the ruleset at the same time.
const MaxTries = 10

// A RefusedError is why the kernel refused a transaction, with no effect.
type RefusedError struct{ error }

func (e RefusedError) Unwrap() error { return e.error }

// ErrStale says that the ruleset is no longer the one that the batch was made for.
var ErrStale = errors.New("the ruleset changed meanwhile")

// Commit sends the batch and returns the number of transactions. There are several if it is too large for one, must be cut, or exceeds
// Portion and may be cut. Unless generation is 0, the rulesets must still be at that generation, else the error is ErrStale. If the kernel
// refuses, the error is a RefusedError.
func (b *Batch) Commit(generation uint32) (transactions int, err error) {
	const overhead = 256
	limit := b.conn.sock.sendBuffer(len(b.msgs)+overhead) - overhead
	for from := (seam{}); from.at < len(b.msgs); {
		to := seam{len(b.msgs), len(b.what)}
		if from.at < b.cut.at {
			to = b.cut
		}
		for _, most := range [...]int{limit, b.Portion} {
			if most <= 0 || to.at-from.at <= most {
				continue
			}
			for _, c := range b.seams {
				if c.at > from.at && c.at-from.at <= most {
					to = c
				}
			}
		}
		if to.at-from.at > limit {
			return transactions, fmt.Errorf("a batch of %d bytes is too large for the socket (%d bytes): give CAP_NET_ADMIN, or raise the sysctl net.core.wmem_max", to.at-from.at, limit)
		}
		if err := b.transact(b.msgs[from.at:to.at], b.what[from.messages:to.messages], generation); err != nil {
			return transactions, err
		}
		transactions++
		if generation != 0 {
			generation++
		}
		if from = to; from.at < len(b.msgs) && b.Between != nil {
			b.Between()
		}
	}
	return transactions, nil
}

// transact sends one transaction and waits for the answer.
func (b *Batch) transact(msgs []byte, what []what, generation uint32) error {
	sock := &b.conn.sock
	begin := sock.next()
	out := appendFrame(make([]byte, 0, len(msgs)+256), unix.NFNL_MSG_BATCH_BEGIN, begin, generation)
	last := len(out)
	out = append(out, msgs...)
	// The kernel acknowledges the last change, after it has tried all others.
	for n := last; n < len(out); n += int(binary.NativeEndian.Uint32(out[n:])) {
		last = n
	}
	flags := binary.NativeEndian.Uint16(out[last+6:])
	binary.NativeEndian.PutUint16(out[last+6:], flags|unix.NLM_F_ACK)
	out = appendFrame(out, unix.NFNL_MSG_BATCH_END, sock.next(), 0)
	if err := sock.send(out); err != nil {
		return err
	}
	return await(sock, begin, what)
}

// await reads answers until the last message's.
func await(s *socket, begin uint32, what []what) error {
	first, last := what[0].seq, what[len(what)-1].seq
	var refused error
	for {
		in, err := s.receive()
		if err != nil {
			return err
		}
		for h, body := range messages(in) {
			if h.kind != unix.NLMSG_ERROR || h.seq < first {
				continue // the answer to an abandoned request
			}
			err := errnoOf(body)
			switch {
			case h.seq == begin && errors.Is(err, unix.ERESTART):
				return ErrStale
			case h.seq == begin && err != nil:
				return fmt.Errorf("begin a transaction: %w", err)
			case err != nil && refused == nil && h.seq <= last:
				w := what[min(int(h.seq-first), len(what)-1)]
				refused = RefusedError{fmt.Errorf("%s %s: %w", w.op, w.name, err)}
			}
			if h.seq == last {
				return refused
			}
		}
	}
}

// appendFrame appends the begin or the end of a batch.
func appendFrame(b []byte, kind uint16, seq, generation uint32) []byte {
	at := len(b)
	b = appendMessage(b, unix.AF_UNSPEC, 0, 0, seq, nil)
	binary.NativeEndian.PutUint16(b[at+4:], kind)
	binary.BigEndian.PutUint16(b[at+headerSize+2:], unix.NFNL_SUBSYS_NFTABLES)
	if generation != 0 {
		b = appendUint32(b, unix.NFNL_BATCH_GENID, generation)
		binary.NativeEndian.PutUint32(b[at:], uint32(len(b)-at))
	}
	return b
}
