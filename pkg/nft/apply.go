// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/policy"
)

// Firewall keeps the table of one network namespace as desired. It is safe for concurrent use; calls are serialized.
type Firewall struct {
	cfg Config

	mu         sync.Mutex
	conn       *nfnl.Conn
	desired    *desired
	whole      bool   // compare everything in the next Apply
	started    bool   // what the kernel holds was known once
	remake     bool   // recreate the table in the next Apply
	remade     bool   // the table was recreated, and nothing has worked since
	generation uint32 // of the ruleset when the kernel was known to hold what is noted, 0 = none
	skipped    int    // audits that relied on events since the last full reading

	listening atomic.Bool // events report changes
	tampered  atomic.Bool // others may have changed our table since the last full reading
}

// Open opens the nftables of the calling thread's network namespace.
func Open(cfg Config) (*Firewall, error) {
	conn, err := nfnl.Open(TableName)
	if err != nil {
		return nil, err
	}
	f := &Firewall{cfg: cfg, conn: conn, desired: newDesired(), whole: true}
	if f.desired.interfaces.unbounded = !canBound(); f.desired.interfaces.unbounded {
		cfg.Logger.Warn("the kernel can't count connections: MaxConnectionsPerEndpoint has no effect until nft_connlimit and nft_numgen are loaded and the agent starts again")
	}
	return f, nil
}

// Close releases the sockets. The table stays.
func (f *Firewall) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conn.Close()
	return nil
}

// Subscribe sends an Event when others change or remove our table. Events that aren't received yet merge into one. The channel is closed
// when the context ends.
func (f *Firewall) Subscribe(ctx context.Context) (<-chan Event, error) {
	out := make(chan Event, 1)
	err := f.conn.Listen(ctx, f.cfg.Logger, func() {
		f.tampered.Store(true)
		select {
		case out <- Event{}:
		default: // one is pending already
		}
	}, func() {
		f.listening.Store(false)
		close(out)
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	f.tampered.Store(true) // earlier changes are unknown
	f.listening.Store(true)
	return out, nil
}

// Configure sets what rules depend on besides policy. It does no I/O.
func (f *Firewall) Configure(s policy.Settings) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.desired.configure(s)
}

// Tunnels sets the tunnels, and the hosts between which they run. It does no I/O.
func (f *Firewall) Tunnels(t policy.Tunnels) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.desired.setTunnels(t)
}

// Links sets the indexes of workload interfaces' links, by name; 0 = there is none. It does no I/O. It ignores an interface that no
// endpoint has: call it after the Update that brings one.
//
// Rules match a packet's interface by index if that is known, as that is faster than by name. So withdraw an index as soon as it is no
// longer the link's; a missing one costs only speed.
func (f *Firewall) Links(indexes map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.desired.interfaces.setIndexes(indexes)
}

// Update folds changes into what is desired. It does no I/O.
func (f *Firewall) Update(c policy.Changes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.desired.update(c)
}

// Audit makes the next Apply compare everything. That needs no reading if no ruleset has changed since the last Apply, according to the
// kernel's generation, or only others' tables have, according to events.
func (f *Firewall) Audit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.whole = true
}

// Apply writes the differences and reads them back: in one transaction, preceded by others for large sets and new chains that nothing
// reaches yet, and for rules with ranges (see stage). The first time, after an Audit and after an error it compares all that the kernel
// holds with all that is desired, and removes the rest.
func (f *Firewall) Apply(ctx context.Context) (Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.desired.ruleset.unread {
		f.desired.ruleset.unread = false
		f.distrust()
	}
	r := Report{}
	waited := f.desired.ruleset.later
	err := f.apply(ctx, &r)
	in := f.desired.interfaces
	r.Programmed = make(map[string]error, len(in.toReport))
	for path := range in.toReport {
		r.Programmed[path] = err
		switch {
		case err != nil:
		case f.desired.waiting(path, f.desired.ruleset.later):
			r.Programmed[path] = errWaits
		default:
			r.Programmed[path] = in.problem(path)
			delete(in.toReport, path)
		}
	}
	total := f.desired.ruleset.total
	r.Sets, r.Members, r.Rules = total.sets, total.members, total.rules
	if err != nil {
		f.distrust()
		f.desired.ruleset.later = waited
		return r, fmt.Errorf("apply policy to nftables: %w", err)
	}
	for path := range in.byPath {
		if len(waited) > 0 && f.desired.waiting(path, waited) && !f.desired.waiting(path, f.desired.ruleset.later) {
			r.InForce = append(r.InForce, path)
		}
	}
	r.More = len(f.desired.ruleset.later) > 0
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
			// Names and contents don't show what stands in the way: a rule that leads to a chain still does after someone renamed the
			// chain.
			f.cfg.Logger.Warn("change nftables: making the table anew", "error", err)
			f.remake, f.remade = true, true
		default:
			f.remake = false
			return err
		}
		f.distrust()
	}
}

// distrust makes the next try read everything.
func (f *Firewall) distrust() {
	f.whole, f.generation = true, 0
	f.tampered.Store(true)
}

// maxSkipped is how many consecutive audits may rely on events that say that only others' tables changed: a full reading is expensive
// beside kube-proxy, which changes its own every few seconds. An event that is still under way causes another audit when it arrives.
const maxSkipped = 30

// known reports whether the kernel still holds what was noted at the generation. An event outweighs an equal generation: this process
// counts its own transactions, and another's may have come between two of them.
func (f *Firewall) known(generation uint32) bool {
	if !f.started || f.tampered.Load() {
		return false
	}
	if generation == f.generation {
		return true
	}
	if !f.listening.Load() || f.skipped == maxSkipped {
		return false
	}
	f.skipped++
	return true
}

// try makes one attempt.
func (f *Firewall) try(r *Report) error {
	if !f.whole {
		return f.begin(r, 0)
	}
	r.Whole = true
	g, err := f.conn.Generation()
	if err != nil {
		return err
	}
	if f.known(g) {
		return f.begin(r, 0)
	}
	f.skipped = 0
	f.tampered.Store(false)
	if err := f.observe(r); err != nil {
		return err
	}
	again, err := f.conn.Generation()
	if err != nil {
		return err
	}
	if again != g {
		return nfnl.ErrStale
	}
	f.generation = g
	return f.begin(r, g)
}

// begin writes all but what waits for another Apply. The first time nothing waits, so that the firewall is complete afterwards.
func (f *Firewall) begin(r *Report, expected uint32) error {
	if f.started {
		if err := f.desired.ruleset.choose(); err != nil {
			return err
		}
	}
	return f.write(r, expected)
}

// portion is how many bytes one transaction may have if the batch can be cut: beside 10,000 sets the kernel takes seconds for them, and
// delays everyone else's changes meanwhile.
const portion = 1 << 20

// write sends the differences and reads them back. expected is the generation that the differences are based on, 0 = what was written
// before.
func (f *Firewall) write(r *Report, expected uint32) error {
	rs := f.desired.ruleset
	b := f.conn.NewBatch()
	b.Between = f.cfg.Between
	if !rs.rebuild { // otherwise there is no table until the end of the batch
		b.Portion = portion
	}
	p, err := rs.plan(b)
	if err != nil {
		return err
	}
	if b.Empty() {
		rs.settled()
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
	if f.generation == 0 || g != f.generation+uint32(n) {
		g = 0 // another program changed a ruleset as well: the next audit must read
	}
	if err := rs.verify(f.conn, p); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	f.generation = g
	if p.staged {
		for _, s := range p.after {
			s.there = true
			clear(s.was)
		}
		if f.cfg.Between != nil {
			f.cfg.Between()
		}
		return f.write(r, g)
	}
	rs.settled()
	f.whole, f.started, f.remade = false, true, false
	return nil
}
