// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"errors"
	"fmt"

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
	Since   int    // what Mark returned, when what it rests on was read

	sock  *socket
	msgs  []byte
	what  []what // of each message, for errors
	seams []seam // where it may be cut in two
	cut   seam   // where it must be, zero = nowhere
	setID uint32 // of sets that are new
}

// NewBatch begins one.
func (c *Conn) NewBatch() *Batch { return &Batch{sock: &c.sock} }

// Empty says that nothing is to be changed.
func (b *Batch) Empty() bool { return len(b.msgs) == 0 }

type what struct {
	seq      uint32
	op, name string
}

// seam is a place before which nothing depends on what follows, nor is reached by
// any packet.
type seam struct{ at, messages int }

// open begins a message about something named, which close ends.
func (b *Batch) open(kind int, flags uint16, op, name string) int {
	seq := b.sock.next()
	b.what = append(b.what, what{seq, op, name})
	var at int
	b.msgs, at = openMessage(b.msgs, kind, flags, seq)
	return at
}

func (b *Batch) close(at int) { b.msgs = closeMessage(b.msgs, at) }

// MayCut notes that the batch may be cut here.
func (b *Batch) MayCut() { b.seams = append(b.seams, seam{len(b.msgs), len(b.what)}) }

// MustCut has what is in the batch so far be a transaction of its own.
func (b *Batch) MustCut() { b.cut = seam{len(b.msgs), len(b.what)} }

// The numbers of attributes, of linux/netfilter/nf_tables.h. The name of the
// table is the first in messages of every kind.
const (
	attrTable    = 1
	attrName     = 2 // of a set; of the chain in a rule; of the set in elements
	chainComment = 12

	verdictAccept = 1 // NF_ACCEPT
)

func (b *Batch) named(name string) {
	b.msgs = appendString(b.msgs, attrTable, b.sock.table)
	if name != "" {
		b.msgs = appendString(b.msgs, attrName, name)
	}
}

// AddTable adds the table.
func (b *Batch) AddTable() {
	b.Writes++
	at := b.open(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, "add table", b.sock.table)
	b.named("")
	b.close(at)
}

// DeleteTable deletes the table, with all that is in it.
func (b *Batch) DeleteTable() {
	b.Writes++
	at := b.open(unix.NFT_MSG_DELTABLE, 0, "delete table", b.sock.table)
	b.named("")
	b.close(at)
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

// AddChain adds a chain, without its rules.
func (b *Batch) AddChain(c table.Chain) {
	b.Writes++
	m := b.open(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, "add chain", c.Name)
	b.msgs = appendString(b.msgs, attrTable, b.sock.table)
	b.msgs = appendString(b.msgs, unix.NFTA_CHAIN_NAME, c.Name)
	if c.Hook != (table.Hook{}) {
		hook, priority := hookNumbers(c.Hook)
		var at int
		b.msgs, at = openAttr(b.msgs, unix.NFTA_CHAIN_HOOK)
		b.msgs = appendUint32(b.msgs, unix.NFTA_HOOK_HOOKNUM, hook)
		b.msgs = appendUint32(b.msgs, unix.NFTA_HOOK_PRIORITY, uint32(priority))
		b.msgs = closeAttr(b.msgs, at)
		b.msgs = appendUint32(b.msgs, unix.NFTA_CHAIN_POLICY, verdictAccept)
		b.msgs = appendString(b.msgs, unix.NFTA_CHAIN_TYPE, c.Hook.Type)
	}
	if c.Comment != "" {
		text := table.Plain(c.Comment)
		text = text[:min(len(text), table.MaxComment)]
		b.msgs = appendAttr(b.msgs, chainComment, append([]byte{udataComment, byte(len(text) + 1)}, append([]byte(text), 0)...))
	}
	b.close(m)
}

// DeleteChain deletes a chain that is empty.
func (b *Batch) DeleteChain(name string) {
	b.Writes++
	at := b.open(unix.NFT_MSG_DELCHAIN, 0, "delete chain", name)
	b.msgs = appendString(b.msgs, attrTable, b.sock.table)
	b.msgs = appendString(b.msgs, unix.NFTA_CHAIN_NAME, name)
	b.close(at)
}

// FlushChain deletes all rules of a chain.
func (b *Batch) FlushChain(name string) {
	at := b.open(unix.NFT_MSG_DELRULE, 0, "flush chain", name)
	b.named(name)
	b.close(at)
}

// DeleteRule deletes the rule that has the handle.
func (b *Batch) DeleteRule(chain string, handle uint64) {
	b.Writes++
	at := b.open(unix.NFT_MSG_DELRULE, 0, "delete a rule of chain", chain)
	b.named(chain)
	b.msgs = appendUint64(b.msgs, unix.NFTA_RULE_HANDLE, handle)
	b.close(at)
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
		b.add(s.Set, b.setID, elementsOf(s.Set))
		binary.BigEndian.PutUint32(exprs[s.at:], b.setID)
	}
	flags := uint16(unix.NLM_F_CREATE)
	if before == 0 {
		flags |= unix.NLM_F_APPEND
	}
	at := b.open(unix.NFT_MSG_NEWRULE, flags, "add a rule to chain", chain)
	b.named(chain)
	b.msgs = appendAttr(b.msgs, unix.NLA_F_NESTED|unix.NFTA_RULE_EXPRESSIONS, exprs)
	b.msgs = appendAttr(b.msgs, unix.NFTA_RULE_USERDATA, r.userdata)
	if before != 0 {
		b.msgs = appendUint64(b.msgs, unix.NFTA_RULE_POSITION, before)
	}
	b.close(at)
}

// Commit sends the batch, in several transactions where it is too large for one
// or must be cut, or has more than a portion that may be, and reports how many there were. Where generation isn't 0, our table
// must still be as it was at that one, else the error is ErrStale. What the kernel refuses is a RefusedError.
func (b *Batch) Commit(generation uint32) (transactions int, err error) {
	const overhead = 256
	limit := b.sock.sendBuffer(len(b.msgs)+overhead) - overhead
	start, first := 0, 0
	for start < len(b.msgs) {
		end, messages := len(b.msgs), len(b.what)
		if start < b.cut.at {
			end, messages = b.cut.at, b.cut.messages
		}
		for _, most := range [...]int{limit, b.Portion} {
			if most <= 0 || end-start <= most {
				continue
			}
			for _, c := range b.seams {
				if c.at > start && c.at-start <= most {
					end, messages = c.at, c.messages
				}
			}
		}
		if end-start > limit {
			return transactions, fmt.Errorf("a batch of %d bytes is too large for the socket (%d bytes): give CAP_NET_ADMIN, or raise the sysctl net.core.wmem_max", end-start, limit)
		}
		err := b.transact(b.msgs[start:end], b.what[first:messages], generation)
		for try := 1; errors.Is(err, ErrStale) && try < MaxTries; try++ {
			calm := false
			if generation, calm = b.sock.calm(b.Since); !calm {
				break
			}
			err = b.transact(b.msgs[start:end], b.what[first:messages], generation)
		}
		if err != nil {
			return transactions, err
		}
		transactions++
		if generation != 0 {
			generation++
		}
		if start, first = end, messages; start < len(b.msgs) && b.Between != nil {
			b.Between()
		}
	}
	return transactions, nil
}

// MaxTries is how often a change starts anew because somebody else changed the
// ruleset at the same time.
const MaxTries = 10

// A RefusedError is why the kernel refused a transaction, of which it made nothing.
type RefusedError struct{ error }

func (e RefusedError) Unwrap() error { return e.error }

// ErrStale says that the ruleset is no longer what the batch was made for.
var ErrStale = errors.New("the ruleset changed meanwhile")

// transact sends one transaction and waits for the answer.
func (b *Batch) transact(msgs []byte, what []what, generation uint32) error {
	begin := b.sock.next()
	out := frame(make([]byte, 0, len(msgs)+256), unix.NFNL_MSG_BATCH_BEGIN, begin, generation)
	at := len(out)
	out = append(out, msgs...)
	// The last change is acknowledged, after all others were tried.
	for n := at; n < len(out); n += int(binary.NativeEndian.Uint32(out[n:])) {
		at = n
	}
	flags := binary.NativeEndian.Uint16(out[at+6:])
	binary.NativeEndian.PutUint16(out[at+6:], flags|unix.NLM_F_ACK)
	out = frame(out, unix.NFNL_MSG_BATCH_END, b.sock.next(), 0)
	if err := b.sock.send(out); err != nil {
		return err
	}
	return await(b.sock, begin, what)
}

// await reads answers until the last message's.
func await(s *socket, begin uint32, what []what) error {
	last := what[len(what)-1].seq
	var first error
	for {
		in, err := s.receive()
		if err != nil {
			return err
		}
		for h, body := range messages(in) {
			if h.kind != unix.NLMSG_ERROR || h.seq < what[0].seq {
				continue // of a request that was given up
			}
			err := errnoOf(body)
			if err != nil && h.seq == begin {
				if errors.Is(err, unix.ERESTART) {
					return ErrStale
				}
				return fmt.Errorf("begin a transaction: %w", err)
			}
			if err != nil && first == nil {
				first = RefusedError{describe(what, h.seq, err)}
			}
			if h.seq == last {
				return first
			}
		}
	}
}

func describe(what []what, seq uint32, err error) error {
	for _, w := range what {
		if w.seq == seq {
			return fmt.Errorf("%s %s: %w", w.op, w.name, err)
		}
	}
	return err
}

// frame appends the begin or the end of a batch.
func frame(b []byte, kind uint16, seq, generation uint32) []byte {
	at := len(b)
	b, _ = openMessage(b, 0, 0, seq)
	binary.NativeEndian.PutUint16(b[at+4:], kind)
	b[at+headerSize] = unix.AF_UNSPEC
	binary.BigEndian.PutUint16(b[at+headerSize+2:], unix.NFNL_SUBSYS_NFTABLES)
	if generation != 0 {
		b = appendUint32(b, unix.NFNL_BATCH_GENID, generation)
	}
	return closeMessage(b, at)
}
