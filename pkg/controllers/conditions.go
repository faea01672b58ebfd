// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/calico-go/calico/pkg/controllers/invalid"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/retry"
)

const (
	// conditionAccepted is the condition of a ClusterNetworkPolicy that is applied completely.
	conditionAccepted = "Accepted"
	maxCondition      = 32768 // bytes of a message that the API accepts
)

// retrying sets when a write that the API refused is retried.
var retrying = reconcile.Timing{Retry: retry.Backoff{First: 5 * time.Second, Longest: 5 * time.Second}}

// conditions writes into the status of each ClusterNetworkPolicy whether all of it is applied.
type conditions struct {
	kube     *kube.Client
	problems *problems.Ledger
	loop     *reconcile.Loop

	mu  sync.Mutex
	all map[string]condition // by policy
}

type condition struct {
	version    string // of the object
	have, want []metav1.Condition
}

func newConditions(client *kube.Client, ledger *problems.Ledger) *conditions {
	c := &conditions{kube: client, problems: ledger, all: map[string]condition{}}
	c.loop = reconcile.New(retrying, c.round)
	return c
}

func (c *conditions) set(p *v1alpha2.ClusterNetworkPolicy, problems []string) {
	accepted := metav1.Condition{
		Type: conditionAccepted, Status: metav1.ConditionTrue, Reason: conditionAccepted, ObservedGeneration: p.Generation, Message: "The policy is acted upon.",
	}
	if len(problems) > 0 {
		text := strings.Join(problems, "; ")
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, invalid.Reason, strings.ToValidUTF8(text[:min(len(text), maxCondition)], "")
	}
	want := append([]metav1.Condition(nil), p.Status.Conditions...)
	meta.SetStatusCondition(&want, accepted)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[p.Name] = condition{p.ResourceVersion, p.Status.Conditions, want}
	c.loop.Wake()
}

func (c *conditions) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, name)
}

// run writes the conditions until the context ends.
func (c *conditions) run(ctx context.Context) { _ = c.loop.Run(ctx) } // the error is always nil

// round writes the conditions that differ.
func (c *conditions) round(ctx context.Context) (_ time.Duration, failed error) {
	due := map[string]condition{}
	c.mu.Lock()
	for name, o := range c.all {
		if !reflect.DeepEqual(o.have, o.want) {
			due[name] = o
		}
	}
	c.mu.Unlock()
	var told error
	for _, name := range slices.Sorted(maps.Keys(due)) {
		o := due[name]
		patch := map[string]any{"metadata": map[string]any{"resourceVersion": o.version}, "status": map[string]any{"conditions": o.want}}
		if err := kube.PatchStatus[v1alpha2.ClusterNetworkPolicy](ctx, c.kube, "", name, patch); err != nil {
			if !errors.Is(err, kube.ErrChanged) && !errors.Is(err, os.ErrNotExist) { // the watch is about to report these
				told = cmp.Or(told, err)
			}
			failed = err
			continue
		}
		c.mu.Lock()
		if now, there := c.all[name]; there && now.version == o.version { // else the watch has already reported it
			now.have = now.want
			c.all[name] = now
		}
		c.mu.Unlock()
	}
	if ctx.Err() == nil {
		c.problems.Tell(problems.Host, "the status of ClusterNetworkPolicies", told)
	}
	return 0, failed
}
