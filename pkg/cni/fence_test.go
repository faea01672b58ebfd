// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/test/lab"
)

// TestUnknownOutcome loses the answer to an ADD's commit. The commit comes to
// etcd before the undo, after it, or both: nothing of it may be left.
func TestUnknownOutcome(t *testing.T) {
	l := lab.ForTest(t, lab.Config{NoAgent: true, NoFsync: true})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	resident := newTransacted(t, l, "0")
	if _, err := resident.client.Commit(ctx, resident.change(ctx)); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, host := range []string{"a", "b"} { // a has blocks, b would claim some
		for _, arrives := range []bool{false, true} {
			n++
			s := newTransacted(t, l, fmt.Sprint(n))
			s.node = host
			change := s.change(ctx)
			if arrives {
				if _, err := s.client.Commit(ctx, change); err != nil {
					t.Fatal(err)
				}
			}
			s.undo.push("etcd", func(ctx context.Context) error { return s.release(ctx, s.id, true) })
			s.undo.push("commit of unknown outcome", func(ctx context.Context) error { return s.fence(ctx, change) })
			s.undo.run(s.log)
			_, err := s.client.Commit(ctx, change)
			if _, conflict := errors.AsType[*store.ConflictError](err); !conflict {
				t.Errorf("host %s, arrived %t: the late commit: %v, want a conflict", host, arrives, err)
			}
			dump, _, err := l.Dump(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range ipam.Check(dump) {
				t.Error(v)
			}
			for _, e := range dump {
				if k, ok := e.Key.(model.HandleKey); ok && k.ID != resident.id.handle {
					t.Errorf("host %s, arrived %t: left behind: %s", host, arrives, e.Path)
				}
			}
		}
	}
}

// TestLeaderHangs stops etcd's leader just before an ADD's commit, and another just before
// a DEL's: both go on elsewhere, and what the leader still has in its queue changes nothing.
func TestLeaderHangs(t *testing.T) {
	l := lab.ForTest(t, lab.Config{NoAgent: true, NoFsync: true, EtcdMembers: 3})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client, err := store.Open(ctx, store.Config{Endpoints: l.Members().Sockets()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // etcd may be gone first
	for _, command := range []string{"ADD", "DEL"} {
		s := newTransacted(t, l, "1")
		s.client, s.env.command = client, command
		decided, paused := 0, 0
		work := transaction{first: s.begin(ctx, ipam.FirstRead(s.request(s.id))), decide: func(v *view) (model.Change, error) {
			plan := ipam.NewPlan(v.ipam)
			if command == "DEL" {
				_, err := plan.Release(s.id.handle, s.started)
				return plan.Change(), err
			}
			_, err := plan.Assign(s.request(s.id))
			return plan.Change(), err
		}, before: func(*view) error {
			if decided++; decided > 1 {
				return nil
			}
			var err error
			if paused, err = l.Members().Leader(ctx); err != nil {
				return err
			}
			return l.Members().Pause(paused)
		}}
		start := time.Now()
		if _, err := s.transact(ctx, work); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		t.Logf("%s: decided %d times, %v", command, decided, time.Since(start).Round(time.Millisecond))
		_, there := handles(t, l)[s.id.handle]
		if there != (command == "ADD") {
			t.Errorf("after %s the handle is there: %t", command, there)
		}
		if err := l.Members().Resume(paused); err != nil {
			t.Fatal(err)
		}
		if err := l.Members().Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if got := len(handles(t, l)); got > 1 || (got == 1) != there {
			t.Errorf("after %s and all of the leader's queue: %d handles", command, got)
		}
	}
}

// handles are those in etcd, all of which is sound.
func handles(t *testing.T, l *lab.Lab) map[string]model.Handle {
	t.Helper()
	dump, _, err := l.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range ipam.Check(dump) {
		t.Error(v)
	}
	all := map[string]model.Handle{}
	for _, e := range dump {
		if k, ok := e.Key.(model.HandleKey); ok {
			all[k.ID], _ = e.Value.(model.Handle)
		}
	}
	return all
}

// transacted is a call that has got as far as to its transaction.
type transacted struct {
	*session
	t  *testing.T
	id identity
}

func newTransacted(t *testing.T, l *lab.Lab, cid string) *transacted {
	env := environ{command: "ADD", containerID: cid, ifName: "eth0"}
	s := &session{
		env: env, node: "a", named: true, log: quiet(), locks: newLocks(t.TempDir()), client: l.Etcd(), started: time.Now(),
		conf: &netconf.Config{Name: "net1", DatastoreTimeout: time.Minute},
	}
	s.conf.IPAM.AssignIPv4, s.conf.IPAM.AssignIPv6 = true, true
	return &transacted{s, t, newIdentity("net1", "a", env)}
}

// change is what it would commit.
func (s *transacted) change(ctx context.Context) model.Change {
	s.t.Helper()
	v, request := newView(), s.request(s.id)
	wants := ipam.FirstRead(request)
	for {
		if err := s.read(ctx, v, wants); err != nil {
			s.t.Fatal(err)
		}
		plan := ipam.NewPlan(v.ipam)
		_, err := plan.Assign(request)
		if err == nil {
			return plan.Change()
		}
		need, more := errors.AsType[*ipam.NeedError](err)
		if !more {
			s.t.Fatal(err)
		}
		wants = need.Wants
	}
}
