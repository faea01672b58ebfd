// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

var kindNodeStatus = kube.Custom{Group: "projectcalico.org", Version: "v3", Kind: "CalicoNodeStatus", Resource: "caliconodestatuses"}

// nodeStatus is what is kept of a CalicoNodeStatus.
type nodeStatus struct {
	Spec   resource.CalicoNodeStatus `json:"spec"`
	Status resource.NodeStatus       `json:"status"`
}

// nodeStatuses keeps the statuses of CalicoNodeStatuses as etcd says, while this process leads.
type nodeStatuses struct {
	read     func(context.Context, ...model.Range) (model.Snapshot, error)
	patch    func(ctx context.Context, name string, status map[string]any) error
	problems *problems.Ledger
	loop     *reconcile.Loop

	mu      sync.Mutex
	objects map[string]nodeStatus
}

func newNodeStatuses(c *controllers) *nodeStatuses {
	k := &nodeStatuses{read: c.client.Read, problems: c.ledger, objects: map[string]nodeStatus{}}
	k.patch = func(ctx context.Context, name string, status map[string]any) error {
		return c.kube.PatchCustomStatus(ctx, kindNodeStatus, "", name, map[string]any{"status": status})
	}
	k.loop = reconcile.New(reconcile.Timing{}, k.round)
	return k
}

// all returns the objects by name.
func (k *nodeStatuses) all() map[string]nodeStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.objects)
}

func (k *nodeStatuses) handler() kube.Handler[*unstructured.Unstructured] {
	change := func(how func()) {
		k.mu.Lock()
		defer k.mu.Unlock()
		how()
		k.loop.Wake()
	}
	return kube.Handler[*unstructured.Unstructured]{
		Set: func(u *unstructured.Unstructured) {
			var o nodeStatus
			_ = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o) // the API has checked its form
			change(func() { k.objects[u.GetName()] = o })
		},
		Deleted: func(_, name string) { change(func() { delete(k.objects, name) }) },
		Synced:  func() {},
	}
}

// round brings the statuses up to date, and returns after which time one is to be looked at again.
func (k *nodeStatuses) round(ctx context.Context) (again time.Duration, failed error) {
	for name, o := range k.all() {
		period := 10 * time.Second
		if s := o.Spec.UpdatePeriodSeconds; s != nil {
			period = time.Duration(*s) * time.Second
		}
		if period == 0 {
			continue
		}
		if again == 0 || period < again {
			again = period
		}
		failed = errors.Join(failed, k.keep(ctx, name, o))
	}
	k.problems.Tell(problems.Host, "statuses of CalicoNodeStatuses", failed)
	return again, failed
}

// keep writes an object's status if it isn't what etcd says.
func (k *nodeStatuses) keep(ctx context.Context, name string, o nodeStatus) error {
	node := o.Spec.Node
	snapshot, err := k.read(ctx, model.KeyRange(model.StatusKey{Host: node}), model.KeyRange(model.LastStatusKey{Host: node}),
		model.KeyRange(model.BGPHostKey{Host: node, Field: model.BGPHostIPv4}), model.KeyRange(model.BGPHostKey{Host: node, Field: model.BGPHostIPv6}))
	if err != nil {
		return err
	}
	agent := agentStatus(node, snapshot, o.Status.Agent)
	if reflect.DeepEqual(agent, o.Status.Agent) && o.Status.LastUpdated != "" {
		return nil
	}
	return k.patch(ctx, name, map[string]any{
		"lastUpdated": time.Now().UTC().Format(time.RFC3339), "agent": map[string]any{"birdV4": agent.BIRDV4, "birdV6": agent.BIRDV6}, // nil takes one away
	})
}

// agentStatus returns what etcd says of a node's agent, given what was said before.
func agentStatus(node string, s model.Snapshot, was resource.AgentStatus) resource.AgentStatus {
	entry, lives := s.Get(model.StatusKey{Host: node})
	if !lives {
		entry, _ = s.Get(model.LastStatusKey{Host: node})
	}
	report, is := entry.Value.(model.Status)
	if !is {
		return resource.AgentStatus{}
	}
	boot := report.Time.Add(-report.Uptime).UTC().Truncate(time.Second)
	if was.BIRDV4 != nil { // a report's time has whole seconds
		if before, err := time.Parse(time.RFC3339, was.BIRDV4.LastBootTime); err == nil && boot.Sub(before).Abs() <= 2*time.Second {
			boot = before
		}
	}
	address := func(f model.BGPHostField) string {
		e, _ := s.Get(model.BGPHostKey{Host: node, Field: f})
		text, _ := e.Value.(model.Text)
		return string(text)
	}
	v4 := &resource.SpeakerStatus{State: "NotReady", RouterID: address(model.BGPHostIPv4), LastBootTime: boot.Format(time.RFC3339)}
	if lives && report.FirstUpdate {
		v4.State = "Ready"
	}
	agent := resource.AgentStatus{BIRDV4: v4}
	if address(model.BGPHostIPv6) != "" {
		agent.BIRDV6 = v4
	}
	return agent
}
