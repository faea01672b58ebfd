// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"log/slog"
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
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/kube"
)

const (
	// conditionAccepted is the condition of a ClusterNetworkPolicy: all of it is acted upon.
	conditionAccepted = "Accepted"
	conditionPause    = 5 * time.Second
	maxCondition      = 32768 // bytes of a message that the API takes
)

// conditions says in the status of each ClusterNetworkPolicy whether all of it is acted upon.
type conditions struct {
	kube *kube.Client
	log  *slog.Logger
	wake mailbox.Signal

	mu  sync.Mutex
	all map[string]condition // by policy

	told string // why one can't be written; run's own
}

type condition struct {
	version    string // of the object
	have, want []metav1.Condition
}

func newConditions(client *kube.Client, log *slog.Logger) *conditions {
	return &conditions{kube: client, log: log, wake: mailbox.NewSignal(), all: map[string]condition{}}
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
	c.wake.Send()
}

func (c *conditions) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, name)
}

// run writes them until the context ends.
func (c *conditions) run(ctx context.Context) {
	repeat(ctx, c.wake, func() bool { return c.round(ctx) })
}

// repeat calls round now, when it is woken, and after a pause where it could not do all, until the context ends.
func repeat(ctx context.Context, wake mailbox.Signal, round func() bool) {
	for ctx.Err() == nil {
		var again <-chan time.Time
		if !round() {
			again = time.After(conditionPause)
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-again:
		}
	}
}

// round writes those that differ, and reports whether it could.
func (c *conditions) round(ctx context.Context) bool {
	due := map[string]condition{}
	c.mu.Lock()
	for name, o := range c.all {
		if !reflect.DeepEqual(o.have, o.want) {
			due[name] = o
		}
	}
	c.mu.Unlock()
	good, text := true, ""
	for _, name := range slices.Sorted(maps.Keys(due)) {
		o := due[name]
		patch := map[string]any{"metadata": map[string]any{"resourceVersion": o.version}, "status": map[string]any{"conditions": o.want}}
		if err := kube.PatchStatus[v1alpha2.ClusterNetworkPolicy](ctx, c.kube, "", name, patch); err != nil {
			if text == "" && !errors.Is(err, kube.ErrChanged) && !errors.Is(err, os.ErrNotExist) { // the watch is about to tell of these
				text = err.Error()
			}
			good = false
			continue
		}
		c.mu.Lock()
		if now, there := c.all[name]; there && now.version == o.version { // else the watch has told of it already
			now.have = now.want
			c.all[name] = now
		}
		c.mu.Unlock()
	}
	if text != "" && text != c.told && ctx.Err() == nil {
		c.log.Warn("the status of a ClusterNetworkPolicy can't be written, trying again", "err", text)
	}
	c.told = text
	return good
}
