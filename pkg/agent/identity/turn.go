// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/retry"
	"github.com/calico-go/calico/pkg/store"
)

// problemKeys is the ledger's name for a failure to write the addresses; problems with the addresses themselves have the name of the
// parameter to change.
const problemKeys = "the host's addresses in etcd"

const (
	// requestTimeout bounds one request to etcd.
	requestTimeout = 10 * time.Second
	// leastPause and mostPause bound the pauses between tries while etcd does not serve.
	leastPause = 500 * time.Millisecond
	mostPause  = 10 * time.Second
)

func problemAddress(family int) string { return [...]string{"IP", "IP6"}[family] }

// turn acts on the notes, and returns after how long to come again; 0 = with the next note.
func (i *Host) turn(ctx context.Context) (again time.Duration) {
	n := i.notes()
	if !n.synced || !n.linked || i.naming.Get() != "" {
		return 0
	}
	f := i.find(ctx, n)
	again = f.again
	if !i.adopt(f.own, n.conflicts) {
		return again
	}
	f.refuse(n.conflicts)
	for family, err := range f.errs {
		i.problems.Tell(problems.Host, problemAddress(family), err)
	}
	i.health.Set("identity", n.conflicts.text())
	i.health.Remark("identity", cmp.Or(problems.Reason(f.apart[0]), problems.Reason(f.apart[1])))
	if !n.ready || n.revision < n.awaits || ctx.Err() != nil {
		return again
	}
	if change := wantedKeys(i.host, f, i.as).change(n.stored); !change.Empty() {
		i.keys.run(func() error { return i.write(ctx, f.own, change, n.sight) })
		i.problems.Tell(problems.Host, problemKeys, i.keys.err)
		return sooner(again, i.keys.again)
	}
	i.problems.Tell(problems.Host, problemKeys, nil)
	if n.conflicts.any() || n.wished < n.awaits {
		return again
	}
	return sooner(again, i.turnTunnels(ctx, n))
}

// adopt records what was found, and reports whether Want has judged it, with the same conflicts.
func (i *Host) adopt(own [2]plan.Identity, known conflicts) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.note.own != own {
		i.note.own, i.note.judged = own, false
	}
	if !i.note.judged {
		i.found.Send()
	}
	return i.note.judged && i.note.conflicts.equal(known) // otherwise there is another note
}

// errOutdated: the host's links have changed since the change was computed.
var errOutdated = errors.New("the host's links have changed")

// write changes the host's keys in etcd. If etcd was away because the host's link was down, the host must not write, once both are back,
// that it has no address: write checks the links again after etcd answers.
func (i *Host) write(ctx context.Context, own [2]plan.Identity, change model.Change, sight int) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := i.store.Read(ctx, model.KeyRange(model.ReadyKey{})); err != nil {
		return fmt.Errorf("write the host's addresses: %w", err)
	}
	addrs := said(change)
	if !i.say(addrs, sight) {
		return errOutdated
	}
	revision, err := i.store.Commit(ctx, change)
	if err != nil {
		return fmt.Errorf("write the host's addresses: %w", err)
	}
	i.keep(change, revision)
	i.log.Info("the host's addresses are in etcd", "ipv4", shown(own[0]), "ipv6", shown(own[1]), "revision", revision)
	return nil
}

// said returns the addresses that a change writes.
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

// say records addresses before they are written, as an answer may never come. It reports whether the links are still those of a sight.
func (i *Host) say(addrs []netip.Addr, sight int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.note.sight != sight {
		return false
	}
	for _, a := range addrs {
		i.note.said[familyOf(a)] = a
	}
	return true
}

// keep records what was written and the watch has yet to show. Nothing more is changed until it has.
func (i *Host) keep(change model.Change, revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.note.awaits = max(i.note.awaits, revision)
	if i.note.revision >= revision {
		return
	}
	for _, p := range change.Puts {
		path := p.Key.Path()
		i.note.stored[path] = model.Entry{Path: path, Key: p.Key, Value: p.Value, Revision: revision}
	}
	for _, k := range change.Deletes {
		delete(i.note.stored, k.Path())
	}
}

func (i *Host) await(revision int64) {
	i.mu.Lock()
	i.note.awaits = max(i.note.awaits, revision)
	i.mu.Unlock()
}

// shown formats an identity for the log.
func shown(own plan.Identity) string {
	switch {
	case !own.Addr.IsValid():
		return "none"
	case own.Link == "":
		return own.Addr.String() + " (no link has it)"
	}
	return own.Addr.String() + " on " + own.Link
}

// effort is an operation in etcd that is repeated until it works.
type effort struct {
	backoff retry.Backoff
	again   time.Duration // when to try again, 0 = not
	err     error         // of the last try
}

func newEffort() effort { return effort{backoff: retry.Backoff{First: leastPause, Longest: mostPause}} }

func (e *effort) run(do func() error) {
	before := e.err
	e.err = do()
	for _, kind := range []error{store.ErrUnavailable, store.ErrAuth} {
		if errors.Is(e.err, kind) && errors.Is(before, kind) {
			e.err = before // the error says how long it tried, which always differs and is no news
		}
	}
	_, faster := errors.AsType[*store.ConflictError](e.err)
	_, nowhere := errors.AsType[*ipam.NoPoolError](e.err)
	if e.err != nil && !faster && !nowhere && !errors.Is(e.err, errOutdated) {
		e.again = e.backoff.Next()
		return
	}
	e.backoff.Reset()
	switch {
	case e.err == nil:
		e.again = 0
	case nowhere: // possibly intended: no pool is for this host
		e.err, e.again = nil, nowherePause
	default: // another writer's change is on its way here
		e.err, e.again = nil, leastPause
	}
}

// sooner returns the lesser of two durations, where 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// familyOf returns 0 for IPv4, 1 for IPv6.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
