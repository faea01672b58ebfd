// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// Firewall keeps the table of one network namespace as desired. It may be used
// by several goroutines; they take turns.
type Firewall struct {
	cfg Config

	mu         sync.Mutex
	conn       *nfnl.Conn
	desired    *desired
	whole      bool   // compare everything in the next Apply
	started    bool   // what the kernel holds was known once
	remake     bool   // make the table anew in the next Apply
	remade     bool   // that was tried, and nothing has worked since
	generation uint32 // at which the kernel was known to hold what is noted, 0 = none
	since      int    // of the events, when it was read last
	trust      int    // audits since then that believed the events
}

// Open opens the nftables of the calling thread's network namespace.
func Open(cfg Config) (*Firewall, error) {
	conn, err := nfnl.Open(TableName)
	if err != nil {
		return nil, err
	}
	return &Firewall{cfg: cfg, conn: conn, desired: newDesired(), whole: true}, nil
}

// Close releases the sockets. The table stays.
func (f *Firewall) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conn.Close()
}

// Subscribe tells when somebody else changes or removes our table. While nobody
// receives, events become one. It may be called once; the channel is closed when
// the context ends or the Firewall is closed.
func (f *Firewall) Subscribe(ctx context.Context) (<-chan Event, error) {
	if err := f.conn.Join(); err != nil {
		return nil, fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	out := make(chan Event, 1)
	go func() {
		defer close(out)
		f.conn.Listen(ctx, f.cfg.Logger, func() {
			select {
			case out <- Event{}:
			default: // one waits already
			}
		})
	}()
	return out, nil
}

// Configure sets what rules depend on besides policy. It does no I/O.
func (f *Firewall) Configure(s policy.Settings) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.desired.configure(s)
}

// Update folds changes into what is desired. It does no I/O.
func (f *Firewall) Update(c policy.Changes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.desired.update(c)
}

// Audit makes the next Apply compare everything. Where it is certain that nobody else changed our
// table since, that needs no reading.
func (f *Firewall) Audit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.whole = true
}

// portion is how many bytes are written in one transaction where more may be cut: beside 10,000
// sets the kernel takes seconds for them, and lets nobody else change nftables meanwhile.
const portion = 1 << 20

// mostTrust is how many audits in a row believe the events that only others' tables changed. It
// is insurance: nothing is known that they would not tell.
const mostTrust = 30

// Apply writes what differs, and reads it back: in one transaction, which large
// sets and chains that are new and reached by nothing come before, and rules with
// ranges (see stage). The first
// time, after an Audit and after an error it compares all that the kernel holds
// with all that is desired, and removes what isn't.
func (f *Firewall) Apply(ctx context.Context) (Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := Report{}
	err := f.apply(ctx, &r)
	r.Programmed = make(map[string]error, len(f.desired.touched))
	for path := range f.desired.touched {
		r.Programmed[path] = err
		if err == nil {
			r.Programmed[path] = f.desired.problem(path)
		}
	}
	total := f.desired.total
	r.Sets, r.Members, r.Rules = total.sets, total.members, total.rules
	if err != nil {
		f.whole, f.generation = true, 0
		return r, fmt.Errorf("apply policy to nftables: %w", err)
	}
	clear(f.desired.touched)
	return r, nil
}

func (f *Firewall) apply(ctx context.Context, r *Report) error {
	if err := check(f.desired.settings); err != nil {
		return err
	}
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f.try(r)
		switch {
		case err == nil:
			return nil
		case try == nfnl.MaxTries:
			return err
		case errors.Is(err, nfnl.ErrStale), errors.Is(err, nfnl.ErrInterrupted):
			f.cfg.Logger.Debug("the ruleset changed while it was compared; again", "error", err)
		case !f.whole:
			f.cfg.Logger.Warn("change nftables: comparing everything", "error", err)
		case errors.As(err, new(nfnl.RefusedError)) && !f.remade:
			// What stands in the way can't be seen by names and contents: a rule
			// that leads to a chain still does when somebody renamed that.
			f.cfg.Logger.Warn("change nftables: making the table anew", "error", err)
			f.remake, f.remade = true, true
		default:
			f.remake = false
			return err
		}
		f.whole, f.generation = true, 0
	}
}

// try is one attempt.
func (f *Firewall) try(r *Report) error {
	expected := uint32(0)
	if f.whole {
		r.Whole = true
		g, err := f.conn.Generation()
		if err != nil {
			return err
		}
		if !f.started || !f.knows(g) {
			f.since, f.trust = f.conn.Mark(), 0
			if err := f.observe(r); err != nil {
				return err
			}
			again, err := f.conn.Generation()
			if err != nil {
				return err
			}
			if again != g && !f.conn.Quiet(f.since, again) {
				return nfnl.ErrStale
			}
			g = again
			expected = g
		}
		f.generation = g
	}
	return f.write(r, expected)
}

// knows says whether the kernel still holds what is noted, at generation g.
func (f *Firewall) knows(g uint32) bool {
	if f.generation == 0 {
		return false
	}
	if g == f.generation {
		return true
	}
	f.trust++
	return f.trust <= mostTrust && f.conn.Quiet(f.since, g)
}

// write sends what differs and reads it back. expected is the generation that
// the difference rests on, 0 = what was written before.
func (f *Firewall) write(r *Report, expected uint32) error {
	b := f.conn.NewBatch()
	b.Between, b.Since = f.cfg.Between, f.since
	if !f.desired.rebuild { // else there is no table until the end of the batch
		b.Portion = portion
	}
	p, err := f.desired.plan(b)
	if err != nil {
		return err
	}
	if b.Empty() {
		f.desired.settled()
		f.whole, f.started, f.remade = false, true, false
		return nil
	}
	n, err := b.Commit(expected)
	if err != nil {
		return err
	}
	f.remake = false
	r.Writes += b.Writes
	g, err := f.conn.Generation()
	if err != nil {
		return err
	}
	if f.generation == 0 || g != f.generation+uint32(n) && !f.conn.Quiet(f.since, g) {
		g = 0 // somebody else was at it as well: the next audit must look
	}
	if err := f.verify(p); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if p.staged {
		for _, s := range p.after {
			s.there = true
			clear(s.was)
		}
		f.generation = g
		if f.cfg.Between != nil {
			f.cfg.Between()
		}
		return f.write(r, g)
	}
	f.desired.settled()
	f.generation, f.whole, f.started, f.remade = g, false, true, false
	return nil
}

// Table is what is desired, for people.
func (f *Firewall) Table() table.Table {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := table.Table{Name: TableName}
	for _, name := range slices.Sorted(maps.Keys(f.desired.sets)) {
		if s := f.desired.sets[name]; s.wanted {
			t.Sets = append(t.Sets, s.value())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.desired.chains)) {
		if c := f.desired.chains[name]; c.render != nil {
			t.Chains = append(t.Chains, c.render())
		}
	}
	return t
}

// value is the set with its elements.
func (s *set) value() table.Set {
	out := s.def
	if !s.def.Interval {
		for key, data := range s.elems {
			out.Elements = append(out.Elements, table.Element{Key: key, Data: data})
		}
		return out
	}
	for _, key := range slices.Sorted(maps.Keys(s.elems)) { // each start before its end
		raw := s.raw(key, "")
		if raw.End {
			out.Elements[len(out.Elements)-1].End = raw.Key
		} else {
			out.Elements = append(out.Elements, table.Element{Key: raw.Key})
		}
	}
	return out
}
