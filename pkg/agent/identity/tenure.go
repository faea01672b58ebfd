// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/agent/report"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// turnName does what is to be done about the host's name. named: it is the host's
// own. free: nobody has it, and whether the host may have its addresses is asked first.
func (i *Keeper) turnName(ctx context.Context, n note) (named, free bool, again time.Duration) {
	tell := i.tells.Report
	i.mu.Lock()
	was := i.tenure.held
	e := i.evidence(n)
	stands := i.tenure.judge(e)
	t := i.tenure
	var since time.Duration
	switch stands {
	case nameClaim:
		if !t.claiming {
			i.log.Info("the host's name is held by what may be its own former life: whoever else has it is given time to object", "time", i.objection)
		}
		i.tenure.claiming, i.tenure.claimed, i.tenure.over, i.tenure.since = true, t.status.Lease, t.status.Revision, time.Time{}
	case nameAwait:
		if t.since.IsZero() {
			i.tenure.since = i.now()
		}
		since = i.now().Sub(i.tenure.since)
	case nameRefused:
		i.tenure.refused = true
	}
	i.mu.Unlock()
	over := report.Permission{Revision: t.status.Revision, Snapshot: n.snapshot}
	switch stands {
	case nameOurs:
		i.own(n, t, over)
		return true, false, 0
	case nameDefend:
		i.log.Warn("another host claims this one's name: it is told that this one lives")
		i.naming.Set(report.ClaimedByAnother)
		over.Lease = e.alive
		tell.Permit(over, n.revision, true)
	case nameTake:
		if was {
			tell.Permit(over, n.revision, true) // somebody deleted it, or the lease has ended
			return true, false, 0
		}
		i.pause()
		return i.take(ctx, n, t, over)
	case nameClaim:
		i.former = effort{}
		i.pause()
		tell.Permit(over, n.revision, true)
	case nameAwait:
		i.pause()
		tell.Permit(over, n.revision, false)
		if left := i.objection - since; left > 0 {
			return false, false, left
		}
		return false, false, i.end(ctx, t.claimed)
	case nameRefused:
		i.refuse(n, t)
	}
	return false, false, 0
}

// evidence is what is known now. i.mu is held.
func (i *Keeper) evidence(n note) evidence {
	e := evidence{isOwn: i.life.isOwn, isFormer: i.life.isFormer, silent: i.tells.Report.Params().ReportInterval == 0, known: n.seen}
	e.alive, e.wrote = i.tells.Report.Standing()
	// Another's status may be of before anything was written; then nothing speaks for it.
	any, all := false, true
	for family := range i.methods {
		if a := storedAddress(n.stored, i.host, family); a.IsValid() {
			any, all = true, all && i.hasOwn(n, family, a)
		}
	}
	e.address = any && all
	return e
}

// hasOwn says whether an address is the host's by its links, or because it was told so.
func (i *Keeper) hasOwn(n note, family int, a netip.Addr) bool {
	if hasAddress(n.links.Links, a) || n.own[family].Addr.Addr() == a {
		return true
	}
	m := i.methods[family]
	if m.Kind != plan.MethodAddress {
		return false
	}
	id, err := m.Choose(plan.Surroundings{Links: n.links.Links}, family == 1)
	return err == nil && id.Addr.Addr() == a
}

// pause has nothing done in the name until more is known.
func (i *Keeper) pause() { i.naming.Set(report.NotNamed) }

// own has the name used: it is the host's.
func (i *Keeper) own(n note, t tenure, over report.Permission) {
	i.tell(problemName, nil)
	silent := i.tells.Report.Params().ReportInterval == 0
	theirs := t.status.Exists() && !i.life.isTaken(t.status.Lease) // by a former process of this host
	i.tells.Report.Permit(over, n.revision, theirs || silent)
	if t.status.Exists() && !theirs {
		err := i.life.settle()
		if err != nil && !i.unsettled {
			i.log.Warn("what proves that the host's status is its own is not on disk: the next agent waits for whoever else has the name to object", "reason", err)
		}
		i.unsettled = err != nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.tenure.questioned(i.life.isOwn) { // else that was heard meanwhile
		i.naming.Set("")
	}
}

// take has a name that is free become the host's. One that was another's may have his
// addresses yet: nobody is to take them for this host's when that lives.
func (i *Keeper) take(ctx context.Context, n note, t tenure, over report.Permission) (named, free bool, again time.Duration) {
	i.tell(problemName, nil)
	i.tells.Health.Set("identity", "")
	switch {
	case !t.refused && n.linked:
		return false, true, 0
	case !t.refused && n.ready:
		return false, false, 0 // the router is about to say what it knows
	case !t.refused, !n.ready:
		i.tells.Report.Permit(over, n.revision, true)
		return false, false, 0
	}
	change := refusedKeys(i.host).change(n.stored)
	if change.Empty() {
		i.tells.Report.Permit(over, n.revision, true)
		return false, false, 0
	}
	if n.revision < n.awaits || ctx.Err() != nil {
		return false, false, 0
	}
	i.keys.run(func() error {
		revision, err := i.commit(ctx, change)
		if err == nil {
			i.keep(change, revision)
		}
		return err
	})
	i.tell(problemKeys, i.keys.err)
	return false, false, max(i.keys.after(), time.Millisecond)
}

// end has the lease of a former life end, and says after how long to try again, 0 = not. Why it failed is said once.
func (i *Keeper) end(ctx context.Context, claimed int64) (again time.Duration) {
	before := i.former.err
	i.former.run(func() error { return i.confirm(ctx, claimed) })
	if err := i.former.err; err != nil && ctx.Err() == nil && problems.Reason(err) != problems.Reason(before) {
		i.log.Warn("the host's former status could not be ended, trying again", "err", err)
	}
	return i.former.after()
}

// confirm ends the lease of a former life, when nobody has objected: what lives and
// has not heard of the claim can write nothing under it any more.
func (i *Keeper) confirm(ctx context.Context, claimed int64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stands, err := i.stands(ctx)
	if err != nil || !stands {
		return err
	}
	if claimed != 0 {
		if err := i.store.Revoke(ctx, claimed); err != nil {
			return err
		}
	}
	// An objection that came in between went with its lease.
	if stands, err = i.stands(ctx); err != nil || !stands {
		return err
	}
	i.mu.Lock()
	i.tenure.claiming = false
	i.mu.Unlock()
	i.log.Info("the host has its name again: nobody else lives who has it")
	i.wake.Send()
	return nil
}

// stands says whether etcd has the status that this process wrote, now.
func (i *Keeper) stands(ctx context.Context) (bool, error) {
	key := model.StatusKey{Host: i.host}
	s, err := i.store.Read(ctx, model.KeyRange(key))
	if err != nil {
		return false, fmt.Errorf("read the host's status: %w", err)
	}
	e, ok := s.Get(key)
	return ok && i.life.isTaken(e.Lease), nil
}

// refuse has nothing done in a name that is another host's.
func (i *Keeper) refuse(n note, t tenure) {
	err := &namesakeError{name: i.host, objected: t.objected}
	for family := range i.methods {
		if a := storedAddress(n.stored, i.host, family); a.IsValid() && !err.addr.IsValid() {
			err.addr = a
		}
	}
	if t.objected {
		if err := i.life.settle(); err != nil {
			i.log.Warn("leases of another host's status stay on disk", "reason", err)
		}
	}
	i.tell(problemName, err)
	i.tells.Health.Set("identity", err.Error())
	i.naming.Set(err.Error())
	i.tells.Report.Withhold()
}
