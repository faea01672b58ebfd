// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/kubepolicy"
)

// The condition of a Namespace whose NetworkPolicies exceed its limit.
const (
	conditionLimit = "NetworkPolicyLimitExceeded"
	reasonOver     = "OverLimit"
	reasonWithin   = "WithinLimit"
)

type objectName struct{ Namespace, Name string }

// networkPolicies turns NetworkPolicies into keys, within the budgets of their namespaces.
type networkPolicies struct {
	*controllers
	rereads *reconcile.Loop // reads policies in reread again
	tells   *reconcile.Loop // writes conditions of namespaces over their limit, while this process leads

	exceeding map[string]string // messages of the conditions that are True; nil: not read yet. Only tell uses it

	waiting sync.Mutex
	told    map[string]map[string]told // the latest by namespace, waiting, at its turn or resting, and by name
	turns   sync.WaitGroup             // counts namespaces that wait

	mu     sync.Mutex
	budget *kubepolicy.Budget
	reread map[objectName]*byte // policies newly over or within the budget, each with a unique mark
}

func newNetworkPolicies(c *controllers) *networkPolicies {
	p := &networkPolicies{
		controllers: c, told: map[string]map[string]told{}, budget: kubepolicy.NewBudget(c.cfg.NamespacePolicyLimit, kubepolicy.MeasureSize), reread: map[objectName]*byte{},
	}
	p.rereads = reconcile.New(retrying, p.readAllAgain)
	p.tells = reconcile.New(retrying, p.tell)
	return p
}

// networkPolicy is what is kept of a policy until the budget is asked.
type networkPolicy struct {
	whole, isolating func() translation
	name             objectName
	created          time.Time
	size             int
}

// keep leaves the translation to take: a policy that the budget has no room for costs little.
func (p *networkPolicies) keep(np *networkingv1.NetworkPolicy, raw kube.Raw) networkPolicy {
	of := func(np *networkingv1.NetworkPolicy) func() translation {
		unknown := kube.Raw{Unknown: raw.Unknown}
		return func() translation { return translate(np, unknown) }
	}
	return networkPolicy{
		whole: of(np), isolating: of(kubepolicy.Isolating(np)), name: objectName{Namespace: np.Namespace, Name: np.Name},
		created: np.CreationTimestamp.Time, size: kubepolicy.Size(np),
	}
}

// told is what the watch has reported of a policy.
type told struct {
	kept *networkPolicy // nil: it is deleted or unreadable
	act  func()
}

// later records the latest report of a policy, and queues its namespace for a turn.
func (p *networkPolicies) later(of objectName, t told) {
	p.waiting.Lock()
	defer p.waiting.Unlock()
	all, known := p.told[of.Namespace]
	if len(all) == 0 {
		p.turns.Add(1)
	}
	if !known {
		all = map[string]told{}
		p.told[of.Namespace] = all
		go p.turn(of.Namespace)
	}
	all[of.Name] = t
}

// turn waits for the namespaces before it, acts, and runs again once the namespace has rested.
func (p *networkPolicies) turn(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting.Lock()
	all := p.told[namespace]
	if p.told[namespace] = map[string]told{}; len(all) == 0 {
		delete(p.told, namespace)
	}
	p.waiting.Unlock()
	if len(all) > 0 {
		time.AfterFunc(p.decide(namespace, all), func() { p.turn(namespace) })
		p.turns.Done()
	}
}

// decide handles what was reported of policies of a namespace once the budget knows all of it, and returns how long the
// namespace rests. Other policies that the budget has newly accepted or excluded are read again, as they are not kept. The
// caller holds mu.
func (p *networkPolicies) decide(namespace string, all map[string]told) time.Duration {
	for name, t := range all {
		if t.kept == nil {
			p.budget.Remove(namespace, name)
		} else {
			p.budget.Set(namespace, name, t.kept.created, t.kept.size)
		}
	}
	changed, rest := p.budget.Decide(namespace)
	for _, name := range changed {
		p.reread[objectName{namespace, name}] = new(byte)
	}
	for name, t := range all {
		delete(p.reread, objectName{namespace, name})
		t.act()
	}
	p.rereads.Wake()
	p.tells.Wake()
	return rest
}

// take turns a policy into a key, as the budget says. The caller holds mu.
func (p *networkPolicies) take(kept networkPolicy) {
	of := kept.name
	if !p.budget.Over(of.Namespace, of.Name) {
		p.controllers.set(kept.whole())
		return
	}
	t := kept.isolating()
	t.problems = append(t.problems, p.budget.Problem(of.Namespace, of.Name).String())
	p.controllers.set(t)
}

// watch watches NetworkPolicies until the context ends.
func (p *networkPolicies) watch(ctx context.Context) error {
	h := ownedHandler(p.controllers, kindNetworkPolicy)
	return kube.WatchRaw(ctx, p.kube, kube.Select{}, p.keep, handler(p.controllers, kindNetworkPolicy, kube.Handler[networkPolicy]{
		Set: func(kept networkPolicy) { p.later(kept.name, told{&kept, func() { p.take(kept) }}) },
		Deleted: func(namespace, name string) {
			p.later(objectName{namespace, name}, told{nil, func() {
				h.Deleted(namespace, name)
				p.invalid.Report(corev1.ObjectReference{Kind: kindNetworkPolicy, Namespace: namespace, Name: name})
			}})
		},
		Synced: func() {
			p.turns.Wait()
			h.Synced()
		},
		Bad: func(about corev1.ObjectReference, err error) {
			p.later(objectName{about.Namespace, about.Name}, told{nil, func() {
				p.owned.Hold(writer.Object{Kind: kindNetworkPolicy, Namespace: about.Namespace, Name: about.Name}, kubepolicy.PolicyKey(about.Namespace, about.Name))
				p.invalid.Report(about, err.Error()+": what is in etcd of it stays as it is")
			}})
		},
	}))
}

// readAllAgain reads one of the policies in reread per namespace again.
func (p *networkPolicies) readAllAgain(ctx context.Context) (_ time.Duration, failed error) {
	due := map[string]objectName{}
	p.mu.Lock()
	for of := range p.reread {
		due[of.Namespace] = of
	}
	p.mu.Unlock()
	for _, of := range due {
		failed = cmp.Or(failed, p.readAgain(ctx, of))
	}
	return 0, failed
}

// readAgain reads a policy again. The error is that of the API. If the watch has reported the policy meanwhile, it is already
// handled.
func (p *networkPolicies) readAgain(ctx context.Context, of objectName) error {
	p.mu.Lock()
	mark := p.reread[of]
	p.mu.Unlock()
	np, raw, err := kube.GetRaw[networkingv1.NetworkPolicy](ctx, p.kube, of.Namespace, of.Name)
	var kept networkPolicy
	if err == nil {
		kept = p.keep(np, raw)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.Is(err, os.ErrNotExist):
		delete(p.reread, of) // the watch is about to report it
		p.rereads.Wake()
	case err != nil:
		return err
	case mark != nil && p.reread[of] == mark:
		p.decide(of.Namespace, map[string]told{of.Name: {&kept, func() { p.take(kept) }}})
	}
	return nil
}

// tell writes into the condition of each Namespace whether its policies exceed the limit.
func (p *networkPolicies) tell(ctx context.Context) (time.Duration, error) {
	err := p.tellOnce(ctx)
	if ctx.Err() == nil {
		p.ledger.Tell(problems.Host, "the condition "+conditionLimit+" of Namespaces", err)
	}
	return 0, err
}

// lead runs tell while this process leads.
func (p *networkPolicies) lead(ctx context.Context) {
	p.exceeding = nil    // another process may have led
	_ = p.tells.Run(ctx) // the error is always nil
}

func (p *networkPolicies) tellOnce(ctx context.Context) error {
	if p.exceeding == nil {
		all, err := kube.List[corev1.Namespace](ctx, p.kube, kube.Select{})
		if err != nil {
			return err
		}
		p.exceeding = map[string]string{}
		for _, ns := range all {
			for _, c := range ns.Status.Conditions {
				if c.Type == conditionLimit && c.Status == corev1.ConditionTrue {
					p.exceeding[ns.Name] = c.Message
				}
			}
		}
	}
	p.mu.Lock()
	want := p.budget.Exceeded()
	p.mu.Unlock()
	var errs error
	for ns := range p.exceeding {
		if want[ns] == "" {
			want[ns] = "" // it is no longer over
		}
	}
	for ns, text := range want {
		if p.exceeding[ns] == text {
			continue
		}
		c := corev1.NamespaceCondition{Type: conditionLimit, Status: corev1.ConditionTrue, Reason: reasonOver, Message: text, LastTransitionTime: metav1.Now()}
		if text == "" {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonWithin, "All NetworkPolicies are acted upon."
		}
		err := kube.PatchStatus[corev1.Namespace](ctx, p.kube, "", ns, map[string]any{"status": map[string]any{"conditions": []corev1.NamespaceCondition{c}}})
		switch {
		case err != nil && !errors.Is(err, os.ErrNotExist):
			errs = errors.Join(errs, err)
		case err != nil, text == "":
			delete(p.exceeding, ns)
		default:
			p.exceeding[ns] = text
		}
	}
	return errs
}
