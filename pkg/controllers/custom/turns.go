// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"errors"
	"maps"
	"time"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// turns has each namespace's policies keep within their budget, and rest when they have been written: what a tenant writes doesn't keep the
// agents from processing what others do. Of other kinds, which aren't a tenant's or cost little, there are no turns: nil.
type turns struct {
	*kubepolicy.Budget
	changed map[string]bool          // namespaces
	rests   map[string]time.Duration // how long each is to rest
	until   map[string]time.Time     // those that rest
}

func newTurns(cfg Config) *turns {
	if cfg.Kind.Name != "NetworkPolicy" {
		return nil
	}
	return &turns{kubepolicy.NewBudget(cfg.PolicyLimit, kubepolicy.MeasureSizeOf), map[string]bool{}, map[string]time.Duration{}, map[string]time.Time{}}
}

// set takes in an object.
func (t *turns) set(n name, o Object) {
	if t == nil {
		return
	}
	size := 0 // of what can't be read nothing is in force but what it selects
	if r, err := o.resource(); err == nil {
		puts, _ := resource.Alone(r) // who applies it tells the error
		for _, p := range puts {
			if policy, is := p.Value.(model.Policy); is {
				size += kubepolicy.SizeOf(policy)
			}
		}
	}
	created, _ := time.Parse(time.RFC3339, o.by.Created) // it has been formatted so
	t.Set(n.namespace, n.name, created, size)
	t.changed[n.namespace] = true
}

// remove takes in that an object is gone.
func (t *turns) remove(n name) {
	if t != nil {
		t.Remove(n.namespace, n.name)
		t.changed[n.namespace] = true
	}
}

// decide returns the policies that are newly over or within their budgets.
func (t *turns) decide() (changed []name) {
	if t == nil {
		return nil
	}
	for namespace := range t.changed {
		names, rest := t.Decide(namespace)
		for _, called := range names {
			changed = append(changed, name{namespace, called})
		}
		if t.rests[namespace] = rest; rest == 0 { // it has none
			delete(t.rests, namespace)
		}
	}
	clear(t.changed)
	return changed
}

// rest returns for how long a policy is not to be written yet.
func (t *turns) rest(n name, now time.Time) time.Duration {
	if t == nil {
		return 0
	}
	return t.until[n.namespace].Sub(now)
}

// begin has the namespaces rest whose policies are about to be written.
func (t *turns) begin(written []name, now time.Time) {
	if t == nil {
		return
	}
	maps.DeleteFunc(t.until, func(_ string, until time.Time) bool { return until.Before(now) })
	for _, n := range written {
		t.until[n.namespace] = now.Add(t.rests[n.namespace])
	}
}

// over returns why a policy is not in force, nil if it may be.
func (t *turns) over(n name) error {
	if t == nil || !t.Over(n.namespace, n.name) {
		return nil
	}
	return errors.New(t.Problem(n.namespace, n.name).String())
}
