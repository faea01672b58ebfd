// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// ledger is what etcd's history says of every block: who held what, from which
// revision on.
type ledger map[netip.Prefix][]page

// page is a block from a revision on, until the next page.
type page struct {
	revision int64
	holders  []string // by ordinal, "" = free; nil: there is no such block
	borrowed int      // how many of them are used by hosts that the block is not of
}

// note takes what is stored under a path from a revision on. What is no block
// is not for the ledger.
func (l ledger) note(revision int64, path string, e model.Entry) {
	key, err := model.ParseKey(path)
	k, ok := key.(model.BlockKey)
	if err != nil || !ok {
		return
	}
	p := page{revision: revision}
	if b, ok := e.Value.(model.Block); ok {
		p.holders = make([]string, len(b.Allocations))
		for i, a := range b.Allocations {
			if a != model.Free {
				p.holders[i] = b.Attributes[a].HandleID
				if b.Attributes[a].Secondary["node"] != b.Affinity {
					p.borrowed++
				}
			}
		}
	}
	l[k.CIDR] = append(l[k.CIDR], p)
}

// held are the addresses that each handle had at any time.
func (l ledger) held() takings {
	out := make(takings)
	for cidr, pages := range l {
		for _, p := range pages {
			addr := cidr.Addr()
			for _, h := range p.holders {
				if h != "" && !slices.Contains(out[h], addr) {
					out[h] = append(out[h], addr)
				}
				addr = addr.Next()
			}
		}
	}
	return out
}

// fullSometime reports whether the block had no free address at any revision
// from one to another, both included.
func (l ledger) fullSometime(cidr netip.Prefix, from, to int64) bool {
	pages := l[cidr]
	for i, p := range pages {
		over := i+1 < len(pages) && pages[i+1].revision <= from
		if p.revision <= to && !over && p.holders != nil && !slices.Contains(p.holders, "") {
			return true
		}
	}
	return false
}

// maxBorrowed is how many addresses of one block were borrowed at once.
func (l ledger) maxBorrowed() int {
	most := 0
	for _, pages := range l {
		for _, p := range pages {
			most = max(most, p.borrowed)
		}
	}
	return most
}

// tale lists the revisions at which the address came to one of the handles or
// went from it, and how full its block was then.
func (l ledger) tale(addr netip.Addr, handles map[string]bool) []string {
	var out []string
	for cidr, pages := range l {
		if !cidr.Contains(addr) {
			continue
		}
		last := ""
		for _, p := range pages {
			now, used, at := "", 0, cidr.Addr()
			for _, h := range p.holders {
				if at == addr {
					now = h
				}
				if h != "" {
					used++
				}
				at = at.Next()
			}
			if now != last && (handles[now] || handles[last]) {
				who := now
				if who == "" {
					who = "nobody"
				}
				out = append(out, fmt.Sprintf("revision %d: block %s, %d of %d in use: %s has it", p.revision, cidr, used, len(p.holders), who))
			}
			last = now
		}
	}
	return out
}

// story tells why the operations on an address are not linearizable.
func story(addr netip.Addr, ops []operation, l ledger) string {
	few := shrink(ops)
	var b strings.Builder
	fmt.Fprintf(&b, "the history of %s is not linearizable; %d of its %d operations show it:\n", addr, len(few), len(ops))
	named := make(map[string]bool)
	for _, op := range few {
		end := "…"
		if op.end != forever {
			end = fmt.Sprintf("%.3fs", op.end.Seconds())
		}
		fmt.Fprintf(&b, "  %9.3fs – %9s  %s\n", op.begin.Seconds(), end, op)
		named[op.handle] = op.handle != ""
	}
	b.WriteString("in etcd:\n")
	for _, line := range l.tale(addr, named) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}
