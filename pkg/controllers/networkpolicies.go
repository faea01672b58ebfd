// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/controllers/owned"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/kubepolicy"
)

// The condition of a Namespace that has more of NetworkPolicies than it may have.
const (
	conditionLimit = "NetworkPolicyLimitExceeded"
	reasonOver     = "OverLimit"
	reasonWithin   = "WithinLimit"
)

type objectName struct{ Namespace, Name string }

// networkPolicies makes keys of NetworkPolicies, as far as the budgets of their namespaces go.
type networkPolicies struct {
	*controllers
	rereads, tells mailbox.Signal

	mu       sync.Mutex
	budget   *kubepolicy.Budget
	versions map[objectName]string // that were told of
	reread   map[objectName]bool   // those that are over the budget now, or no longer
}

func newNetworkPolicies(c *controllers) *networkPolicies {
	return &networkPolicies{
		controllers: c, rereads: mailbox.NewSignal(), tells: mailbox.NewSignal(), budget: kubepolicy.NewBudget(c.cfg.NamespacePolicyLimit),
		versions: map[objectName]string{}, reread: map[objectName]bool{},
	}
}

// networkPolicy is what is kept of one until the budget is asked.
type networkPolicy struct {
	whole, isolating func() made
	name             objectName
	version          string
	created          time.Time
	size             int
}

// keep leaves it to set what is made of it: what no budget has room for costs little.
func (p *networkPolicies) keep(np *networkingv1.NetworkPolicy, raw kube.Raw) networkPolicy {
	of := func(np *networkingv1.NetworkPolicy) func() made {
		unknown := kube.Raw{Unknown: raw.Unknown}
		return func() made { return madeOfPolicy(np, unknown) }
	}
	return networkPolicy{
		whole: of(np), isolating: of(kubepolicy.Isolating(np)), name: objectName{Namespace: np.Namespace, Name: np.Name},
		version: np.ResourceVersion, created: np.CreationTimestamp.Time, size: kubepolicy.Size(np),
	}
}

func (p *networkPolicies) set(kept networkPolicy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(kept)
}

// take is set, while mu is held.
func (p *networkPolicies) take(kept networkPolicy) {
	of := kept.name
	p.versions[of] = kept.version
	p.changed(of, p.budget.Set(of.Namespace, of.Name, kept.created, kept.size))
	if !p.budget.Over(of.Namespace, of.Name) {
		p.controllers.set(kept.whole())
		return
	}
	m := kept.isolating()
	m.problems = append(m.problems, p.budget.Problem(of.Namespace, of.Name).String())
	p.controllers.set(m)
}

func (p *networkPolicies) removed(namespace, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := objectName{Namespace: namespace, Name: name}
	delete(p.versions, of)
	p.changed(of, p.budget.Remove(namespace, name))
}

// changed has others be read again that the budget has room for now, or no longer: they are not kept.
func (p *networkPolicies) changed(by objectName, others []string) {
	delete(p.reread, by)
	for _, name := range others {
		p.reread[objectName{Namespace: by.Namespace, Name: name}] = true
		p.rereads.Send()
	}
	p.tells.Send()
}

// watch watches them until the context ends.
func (p *networkPolicies) watch(ctx context.Context) error {
	h := ownedHandler(p.controllers, kindNetworkPolicy)
	deleted := h.Deleted
	handle := kube.Handler[networkPolicy]{
		Set: p.set,
		Deleted: func(namespace, name string) {
			p.removed(namespace, name)
			deleted(namespace, name)
		},
		Synced: h.Synced,
		Bad: func(about corev1.ObjectReference, err error) {
			p.removed(about.Namespace, about.Name)
			p.owned.Hold(owned.Object{Kind: kindNetworkPolicy, Namespace: about.Namespace, Name: about.Name}, kubepolicy.PolicyKey(about.Namespace, about.Name))
			p.invalid.Report(about, err.Error()+": what is in etcd of it stays as it is")
		},
	}
	return kube.WatchRaw(ctx, p.kube, kube.Select{}, p.keep, handler(p.controllers, kindNetworkPolicy, handle))
}

// run reads again what changed is told of, until the context ends; the error is always nil.
func (p *networkPolicies) run(ctx context.Context) error {
	repeat(ctx, p.rereads, func() bool {
		p.mu.Lock()
		due := slices.Collect(maps.Keys(p.reread))
		p.mu.Unlock()
		good := true
		for _, of := range due {
			good = p.readAgain(ctx, of) && good
		}
		return good
	})
	return nil
}

// readAgain reports whether the API has answered. What the watch brings meanwhile has been decided upon already.
func (p *networkPolicies) readAgain(ctx context.Context, of objectName) bool {
	p.mu.Lock()
	before := p.versions[of]
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
		delete(p.reread, of) // the watch is about to tell
	case err != nil:
		return false
	case p.reread[of] && p.versions[of] == before:
		p.take(kept)
	}
	return true
}

// tell has the condition of each Namespace say whether it has too much of them, while this process leads.
func (p *networkPolicies) tell(ctx context.Context) {
	var have map[string]string // messages of the conditions that are True
	told := ""
	repeat(ctx, p.tells, func() bool {
		err := p.tellOnce(ctx, &have)
		if err != nil && err.Error() != told && ctx.Err() == nil {
			told = err.Error()
			p.log.Warn("the condition "+conditionLimit+" of a Namespace can't be read or written, trying again", "err", err)
		}
		return err == nil
	})
}

func (p *networkPolicies) tellOnce(ctx context.Context, have *map[string]string) error {
	if *have == nil {
		all, err := kube.List[corev1.Namespace](ctx, p.kube, kube.Select{})
		if err != nil {
			return err
		}
		*have = map[string]string{}
		for _, ns := range all {
			for _, c := range ns.Status.Conditions {
				if c.Type == conditionLimit && c.Status == corev1.ConditionTrue {
					(*have)[ns.Name] = c.Message
				}
			}
		}
	}
	p.mu.Lock()
	want := p.budget.Exceeded()
	p.mu.Unlock()
	var errs error
	for ns := range *have {
		if want[ns] == "" {
			want[ns] = "" // it is over no longer
		}
	}
	for ns, text := range want {
		if (*have)[ns] == text {
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
			delete(*have, ns)
		default:
			(*have)[ns] = text
		}
	}
	return errs
}
