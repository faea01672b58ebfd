// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/controllers/invalid"
	"github.com/calico-go/calico/pkg/controllers/owned"
	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kubepolicy"
)

// tenants changes policies, without an API and an etcd.
type tenants struct {
	*networkPolicies
	acted []string // how upon which policy
}

func newTenants() *tenants {
	log := slog.New(slog.DiscardHandler)
	c := &controllers{
		cfg: Config{Enabled: map[string]bool{Policies: true}, NamespacePolicyLimit: 10_000}, log: log, invalid: invalid.New(log, nil, problems.New(log)),
	}
	c.owned = owned.New(owned.Config{Config: writer.Config{Problems: problems.New(log)}, Kinds: c.owns()})
	return &tenants{networkPolicies: newNetworkPolicies(c)}
}

func (n *tenants) set(namespace, name string, size int, created time.Time) {
	as := func(how string) func() translation {
		return func() translation {
			n.acted = append(n.acted, how+" "+namespace+"/"+name)
			return translation{about: corev1.ObjectReference{Kind: kindNetworkPolicy, Namespace: namespace, Name: name}}
		}
	}
	kept := networkPolicy{name: objectName{namespace, name}, created: created, size: size, whole: as("whole"), isolating: as("isolating")}
	n.later(kept.name, told{&kept, func() { n.take(kept) }})
}

func (n *tenants) remove(namespace, name string) {
	n.later(objectName{namespace, name}, told{nil, func() {
		n.owned.Remove(writer.Object{Kind: kindNetworkPolicy, Namespace: namespace, Name: name})
	}})
}

// done returns what was acted upon since the last call.
func (n *tenants) done() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.acted
	n.acted = nil
	return all
}

// TestChurn: while large policies of a namespace change without end, it has one turn per second, and another namespace's policy is
// acted upon at once.
func TestChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTenants()
		change := func() {
			n.remove("a", "many")
			time.Sleep(10 * time.Millisecond)
			n.set("a", "many", 8000, time.Now())
			time.Sleep(10 * time.Millisecond)
		}
		for range 500 { // 10 s
			change()
		}
		n.turns.Wait()
		if acted := n.done(); len(acted) < 5 || len(acted) > 14 {
			t.Errorf("500 changes within 10 s were acted upon %d times", len(acted))
		}
		for range 10 { // a small one is made and deleted, and doesn't wait
			n.set("b", "deny", 1, time.Now())
			if diff := cmp.Diff([]string{"whole b/deny"}, n.done()); diff != "" {
				t.Errorf("acted upon (-want +got):\n%s", diff)
			}
			time.Sleep(time.Millisecond)
			n.remove("b", "deny")
			synctest.Wait()
			if objects := n.owned.Objects(kindNetworkPolicy); objects != 1 {
				t.Errorf("%d objects are left, want a's", objects)
			}
			time.Sleep(time.Millisecond)
		}
		n.remove("a", "many")
		n.turns.Wait() // as before it is said that all is known
		if objects := n.owned.Objects(kindNetworkPolicy); objects != 0 {
			t.Errorf("%d objects are left", objects)
		}
		time.Sleep(kubepolicy.LongestRest)
		if synctest.Wait(); len(n.told) != 0 {
			t.Errorf("turns of %d namespaces are left", len(n.told))
		}
	})
}

// TestTurn: everything reported within one turn is decided together.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, now := newTenants(), time.Now()
		acted := func(want ...string) {
			t.Helper()
			time.Sleep(2 * kubepolicy.LongestRest)
			if diff := cmp.Diff(want, n.done()); diff != "" {
				t.Errorf("acted upon (-want +got):\n%s", diff)
			}
		}
		n.set("a", "middle", 8000, now)
		acted("whole a/middle")
		n.set("a", "new", 8000, now.Add(time.Minute))
		acted("isolating a/new")
		// While the namespace rests an older policy comes, goes and comes again; the newer goes.
		n.set("a", "new", 8000, now.Add(time.Minute))
		synctest.Wait()
		n.set("a", "old", 8000, now.Add(-time.Minute))
		n.remove("a", "old")
		n.remove("a", "new")
		n.set("a", "old", 8000, now.Add(-time.Minute))
		acted("isolating a/new", "whole a/old")
		if n.reread[objectName{"a", "middle"}] == nil || len(n.reread) != 1 {
			t.Errorf("read again: %v, want the one that is over now", n.reread)
		}
	})
}
