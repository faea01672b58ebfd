// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/agent/report"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
)

// What the identity's problems are called: by what a person would change.
const (
	problemName = "NODENAME"
	problemKeys = "the host's addresses in etcd"
)

const (
	// requestTimeout bounds one request to etcd.
	requestTimeout = 10 * time.Second
	// leastPause and mostPause are between tries while etcd does not serve.
	leastPause = 500 * time.Millisecond
	mostPause  = 10 * time.Second
)

func problemAddress(family int) string { return [...]string{"IP", "IP6"}[family] }

// turn does what the notes ask for, and says after how long to come again; 0 =
// when there is another note.
func (i *Keeper) turn(ctx context.Context) (again time.Duration) {
	n := i.notes()
	if !n.synced {
		return 0
	}
	named, free, again := i.turnName(ctx, n)
	if !n.linked || !named && !free {
		return again
	}
	f := i.find(ctx, n)
	again = sooner(again, f.again)
	if !i.adopt(f.own, n.conflicts, n.stale) {
		return again
	}
	f.refuse(n.conflicts, free)
	takesBack := n.conflicts.any() || free && n.stale != [2]bool{}
	if free {
		f.takeBack(n.stale)
	}
	as := i.as
	if takesBack && (free || !f.own[0].Addr.IsValid() && !f.own[1].Addr.IsValid()) {
		as = 0
	}
	want := wantedKeys(i.host, f, as)
	i.tellAddresses(f.errs)
	i.tells.Health.Set("identity", n.conflicts.text())
	change := want.change(n.stored)
	if free && (!takesBack || change.Empty()) {
		// The others must not find this host alive while etcd says that it has an address
		// that is another's: they would send to this one what is for that one, which had it later.
		i.tells.Report.Permit(report.Permission{Snapshot: n.snapshot}, n.revision, true)
		return again
	}
	if !n.ready || n.revision < n.awaits || ctx.Err() != nil {
		return again
	}
	if !change.Empty() {
		seen, done := ctx, func() {}
		if f.moves(n.stored, i.host) {
			seen, done = i.whileSeen(ctx, n.sight)
		}
		defer done()
		i.keys.run(func() error { return i.write(seen, f.own, change) })
		if seen.Err() != nil {
			return leastPause // what it said is of the past
		}
		i.tell(problemKeys, i.keys.err)
		return sooner(again, i.keys.after())
	}
	i.tell(problemKeys, nil)
	if n.conflicts.any() && !f.own[0].Addr.IsValid() && !f.own[1].Addr.IsValid() || n.wished < n.awaits {
		return again
	}
	return sooner(again, i.turnTunnels(ctx, n))
}

// adopt notes what was found, and says whether want has judged that, and to this
// conflicts and what is stale.
func (i *Keeper) adopt(own [2]plan.Identity, known conflicts, stale [2]bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.note.own != own {
		i.note.own, i.note.judged = own, false
	}
	if !i.note.judged {
		i.found.Send()
	}
	return i.note.judged && i.note.conflicts.equal(known) && i.note.stale == stale // else there is another note
}

// write changes the host's keys in etcd.
func (i *Keeper) write(ctx context.Context, own [2]plan.Identity, change model.Change) error {
	addrs := said(change)
	i.say(addrs)
	revision, err := i.commit(ctx, change)
	if err != nil {
		return fmt.Errorf("write the host's addresses: %w", err)
	}
	i.keep(change, revision)
	for _, a := range addrs {
		i.stood[familyOf(a)] = a // somebody's hand may be in etcd before it is seen there
	}
	i.log.Info("the host's addresses are in etcd", "ipv4", shown(own[0]), "ipv6", shown(own[1]), "revision", revision)
	return nil
}

// said are the addresses that a change writes.
func said(change model.Change) []netip.Addr {
	var all []netip.Addr
	for _, p := range change.Puts {
		if text, ok := p.Value.(model.Text); ok {
			if a, err := netip.ParseAddr(string(text)); err == nil {
				all = append(all, a)
			}
		}
	}
	return all
}

// say notes addresses before they are written: no answer may come.
func (i *Keeper) say(addrs []netip.Addr) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, a := range addrs {
		if !slices.Contains(i.note.said, a) {
			i.note.said = append(i.note.said, a)
		}
	}
}

// commit makes a change; nothing more is changed until the watch has shown it.
func (i *Keeper) commit(ctx context.Context, change model.Change) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	revision, err := i.store.Commit(ctx, change)
	if err == nil {
		i.await(revision)
	}
	return revision, err
}

// keep notes what was written, which the watch has yet to tell.
func (i *Keeper) keep(change model.Change, revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.note.revision < revision {
		for _, p := range change.Puts {
			path := p.Key.Path()
			i.note.stored[path] = model.Entry{Path: path, Key: p.Key, Value: p.Value, Revision: revision}
		}
		for _, k := range change.Deletes {
			delete(i.note.stored, k.Path())
		}
	}
	// What was said before and isn't there any more may be said by others.
	i.note.said = slices.DeleteFunc(i.note.said, func(a netip.Addr) bool {
		return storedAddress(i.note.stored, i.host, familyOf(a)) != a
	})
}

func (i *Keeper) await(revision int64) {
	i.mu.Lock()
	i.note.awaits = max(i.note.awaits, revision)
	i.mu.Unlock()
}

// shown is an identity for the log.
func shown(own plan.Identity) string {
	switch {
	case !own.Addr.IsValid():
		return "none"
	case own.Link == "":
		return own.Addr.String() + " (no link has it)"
	}
	return own.Addr.String() + " on " + own.Link
}

func (i *Keeper) tellAddresses(errs [2]error) {
	for f, err := range errs {
		i.tell(problemAddress(f), err)
	}
}

// tell says how it stands with something of the host: once, and when that is over.
func (i *Keeper) tell(what string, err error) {
	switch before, after := i.tells.Problems.Note(problems.Host, what, err); {
	case after == before:
	case after == "":
		i.log.Info("the host is in order again", "what", what)
	default:
		i.log.Warn("the host is not in order", "what", what, "reason", after)
	}
}

// effort is something to be done in etcd, again and again until that works.
type effort struct {
	backoff time.Duration // 0 = it worked last time
	err     error         // of the last time
}

func (e *effort) run(do func() error) {
	before := e.err
	e.err = do()
	for _, kind := range []error{store.ErrUnavailable, store.ErrAuth} {
		if errors.Is(e.err, kind) && errors.Is(before, kind) {
			e.err = before // how long it tried, which it says, is never the same, and nothing new
		}
	}
	_, faster := errors.AsType[*store.ConflictError](e.err)
	_, nowhere := errors.AsType[*ipam.NoPoolError](e.err)
	switch {
	case e.err == nil:
		e.backoff = 0
	case faster: // what somebody else wrote is on its way here
		e.err, e.backoff = nil, leastPause
	case nowhere: // that may be meant so: no pool is for this host
		e.err, e.backoff = nil, nowherePause
	default:
		e.backoff = min(max(2*e.backoff, leastPause), mostPause)
	}
}

// after is when to try again, 0 = not.
func (e *effort) after() time.Duration { return e.backoff }

// sooner is the lesser of two times, where 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// familyOf is 0 for IPv4, 1 for IPv6.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
