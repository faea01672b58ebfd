// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/table"
)

// Batch is a list of changes that the kernel makes all at once or not at all.
type Batch struct {
	// Writes is how many changes that is, as people count them. Elements that change, and what
	// is flushed, are added by whoever knows.
	Writes int
	// Portion is how many bytes a transaction has at most, where the batch may be cut; 0 =
	// as many as the socket takes.
	Portion int
	Between func() // called after each transaction that others follow; may be nil

	conn  *Conn
	msgs  []netlink.Message
	what  []string // each message is about, for errors
	size  int      // of the messages in bytes
	seams []seam   // where it may be cut in two
	cut   seam     // where it must be, zero = nowhere
	setID uint32   // of sets that are new
}

// NewBatch begins one.
func (c *Conn) NewBatch() *Batch { return &Batch{conn: c} }

// Empty says that nothing is to be changed.
func (b *Batch) Empty() bool { return len(b.msgs) == 0 }

// seam is a place before which nothing depends on what follows, nor is reached by
// any packet.
type seam struct{ size, messages int }

// add appends a message about something in the table.
func (b *Batch) add(kind int, flags netlink.HeaderFlags, op, name string, body []byte) {
	m := message(kind, flags)
	m.Data = append(m.Data, body...)
	b.msgs, b.what = append(b.msgs, m), append(b.what, op+" "+name)
	b.size += unix.SizeofNlMsghdr + len(m.Data)
}

// MayCut notes that the batch may be cut here.
func (b *Batch) MayCut() { b.seams = append(b.seams, seam{b.size, len(b.msgs)}) }

// MustCut has what is in the batch so far be a transaction of its own.
func (b *Batch) MustCut() { b.cut = seam{b.size, len(b.msgs)} }

// AddTable adds the table.
func (b *Batch) AddTable() {
	b.Writes++
	b.add(unix.NFT_MSG_NEWTABLE, netlink.Create, "add table", b.conn.table, b.conn.named(""))
}

// DeleteTable deletes the table, with all that is in it.
func (b *Batch) DeleteTable() {
	b.Writes++
	b.add(unix.NFT_MSG_DELTABLE, 0, "delete table", b.conn.table, b.conn.named(""))
}

// hookNumbers gives numbers to a hook.
func hookNumbers(h table.Hook) (at uint32, priority int32) {
	at = map[string]uint32{
		"prerouting": unix.NF_INET_PRE_ROUTING, "input": unix.NF_INET_LOCAL_IN, "forward": unix.NF_INET_FORWARD,
		"output": unix.NF_INET_LOCAL_OUT, "postrouting": unix.NF_INET_POST_ROUTING,
	}[h.At]
	priority = map[string]int32{"raw": -300, "dstnat": -100, "-100": -100, "filter": 0, "srcnat": 100}[h.Priority]
	return at, priority
}

const (
	chainComment  = 12 // NFTA_CHAIN_USERDATA
	verdictAccept = 1  // NF_ACCEPT
)

// comment is a text with its NUL, as user data has it.
func comment(text string) []byte {
	text = table.Plain(text)
	return append([]byte(text[:min(len(text), table.MaxComment)]), 0)
}

// chain is the beginning of a message about a chain.
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
	b.add(unix.NFT_MSG_NEWCHAIN, netlink.Create, "add chain", c.Name, body)
}

// DeleteChain deletes a chain that is empty.
func (b *Batch) DeleteChain(name string) {
	b.Writes++
	b.add(unix.NFT_MSG_DELCHAIN, 0, "delete chain", name, b.chain(name))
}

// FlushChain deletes all rules of a chain.
func (b *Batch) FlushChain(name string) {
	b.add(unix.NFT_MSG_DELRULE, 0, "flush chain", name, b.conn.named(name))
}

// DeleteRule deletes the rule that has the handle.
func (b *Batch) DeleteRule(chain string, handle uint64) {
	b.Writes++
	b.add(unix.NFT_MSG_DELRULE, 0, "delete a rule of chain", chain, appendUint64(b.conn.named(chain), unix.NFTA_RULE_HANDLE, handle))
}

// AddRule adds a rule before another, 0 = at the end.
func (b *Batch) AddRule(chain string, r *Rule, before uint64) {
	b.Writes++
	exprs := r.exprs
	if len(r.sets) > 0 {
		exprs = append([]byte(nil), exprs...)
	}
	for _, s := range r.sets {
		s.Name = "__set%d"
		b.set(s.Set, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT)
		b.elements(unix.NFT_MSG_NEWSETELEM, netlink.Create, "add elements to set", s.Set, b.setID, elementsOf(s.Set))
		binary.BigEndian.PutUint32(exprs[s.at:], b.setID)
	}
	flags := netlink.Create
	body := appendAttr(b.conn.named(chain), unix.NLA_F_NESTED|unix.NFTA_RULE_EXPRESSIONS, exprs)
	body = appendAttr(body, unix.NFTA_RULE_USERDATA, r.userdata)
	if before != 0 {
		body = appendUint64(body, unix.NFTA_RULE_POSITION, before)
	} else {
		flags |= netlink.Append
	}
	b.add(unix.NFT_MSG_NEWRULE, flags, "add a rule to chain", chain, body)
}

// MaxTries is how often a change starts anew because somebody else changed the
// ruleset at the same time.
const MaxTries = 10

// A RefusedError is why the kernel refused a transaction, of which it made nothing.
type RefusedError struct{ error }

func (e RefusedError) Unwrap() error { return e.error }

// ErrStale says that the ruleset is no longer what the batch was made for.
var ErrStale = errors.New("the ruleset changed meanwhile")

// Commit sends the batch, in several transactions where it is too large for one
// or must be cut, or has more than a portion that may be, and reports how many there were. Where
// generation isn't 0, all rulesets must still be of that one, else the error is ErrStale. What the
// kernel refuses is a RefusedError.
func (b *Batch) Commit(generation uint32) (transactions int, err error) {
	const overhead = 256
	limit := b.conn.sendBuffer(b.size+overhead) - overhead
	for from := (seam{}); from.messages < len(b.msgs); {
		to := seam{b.size, len(b.msgs)}
		if from.messages < b.cut.messages {
			to = b.cut
		}
		for _, most := range [...]int{limit, b.Portion} {
			if most <= 0 || to.size-from.size <= most {
				continue
			}
			for _, c := range b.seams {
				if c.size > from.size && c.size-from.size <= most {
					to = c
				}
			}
		}
		if to.size-from.size > limit {
			return transactions, fmt.Errorf("a batch of %d bytes is too large for the socket (%d bytes): give CAP_NET_ADMIN, or raise the sysctl net.core.wmem_max", to.size-from.size, limit)
		}
		if err := b.transact(from.messages, to.messages, generation); err != nil {
			return transactions, err
		}
		transactions++
		if generation != 0 {
			generation++
		}
		if from = to; from.messages < len(b.msgs) && b.Between != nil {
			b.Between()
		}
	}
	return transactions, nil
}

// sendBuffer makes room for a batch and reports how large one can be.
func (c *Conn) sendBuffer(size int) int {
	have, err := c.sock.WriteBuffer()
	if err == nil && have/2 < size {
		_ = c.sock.SetWriteBuffer(size + size/8 + 4096)
		have, err = c.sock.WriteBuffer()
	}
	if err != nil {
		return 0
	}
	if c.most > 0 {
		return min(c.most, have/2)
	}
	return have / 2
}

// transact sends some messages as one transaction and waits for the answer.
func (b *Batch) transact(from, to int, generation uint32) error {
	all := append([]netlink.Message{frame(unix.NFNL_MSG_BATCH_BEGIN, generation)}, b.msgs[from:to]...)
	// The last change is acknowledged, after all others were tried.
	all[len(all)-1].Header.Flags |= netlink.Acknowledge
	all = append(all, frame(unix.NFNL_MSG_BATCH_END, 0))
	if err := b.conn.sock.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	sent, err := b.conn.sock.SendMessages(all)
	if err != nil {
		return err
	}
	first, last := sent[0].Header.Sequence, sent[len(sent)-2].Header.Sequence
	var refused error
	for {
		answers, err := b.conn.sock.Receive()
		var failed *netlink.OpError
		seq := uint32(0)
		switch {
		case err == nil && len(answers) > 0:
			seq = answers[0].Header.Sequence
		case errors.As(err, &failed) && failed.Sequence != 0:
			seq = failed.Sequence
		case err != nil:
			return err
		}
		n := int(seq - first)
		switch {
		case n < 0 || n >= len(sent): // of a request that was given up
			continue
		case n == 0 && errors.Is(err, unix.ERESTART):
			return ErrStale
		case n == 0 && err != nil:
			return fmt.Errorf("begin a transaction: %w", err)
		case err != nil && refused == nil:
			refused = RefusedError{fmt.Errorf("%s: %w", b.what[from+n-1], err)}
		}
		if seq == last {
			return refused
		}
	}
}

// frame is the begin or the end of a batch.
func frame(kind int, generation uint32) netlink.Message {
	m := netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request}, Data: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}}
	if generation != 0 {
		m.Data = appendUint32(m.Data, unix.NFNL_BATCH_GENID, generation)
	}
	return m
}
