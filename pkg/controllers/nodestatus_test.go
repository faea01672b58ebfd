// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
	"github.com/calico-go/calico/test/etcd"
)

func TestAgentStatus(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 600e6, time.UTC)
	report := func(after time.Duration, first bool) model.Status {
		return model.Status{Time: began.Add(after).Truncate(time.Second), Uptime: after, FirstUpdate: first}
	}
	live, last := model.StatusKey{Host: "a"}, model.LastStatusKey{Host: "a"}
	v4, v6 := model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4}, model.BGPHostKey{Host: "a", Field: model.BGPHostIPv6}
	speaker := func(state, id string) *resource.SpeakerStatus {
		return &resource.SpeakerStatus{State: state, RouterID: id, LastBootTime: "2026-01-02T03:04:05Z"}
	}
	for name, tt := range map[string]struct {
		stored map[model.Key]any
		was    resource.AgentStatus
		want   resource.AgentStatus
	}{
		"nothing is reported": {map[model.Key]any{v4: model.Text("192.0.2.1")}, resource.AgentStatus{BIRDV4: speaker("Ready", "")}, resource.AgentStatus{}},
		"it is ready":         {map[model.Key]any{live: report(400*time.Millisecond, true), v4: model.Text("192.0.2.1")}, resource.AgentStatus{}, resource.AgentStatus{BIRDV4: speaker("Ready", "192.0.2.1")}},
		"it starts":           {map[model.Key]any{live: report(400*time.Millisecond, false)}, resource.AgentStatus{}, resource.AgentStatus{BIRDV4: speaker("NotReady", "")}},
		"it is gone":          {map[model.Key]any{last: report(400*time.Millisecond, true)}, resource.AgentStatus{}, resource.AgentStatus{BIRDV4: speaker("NotReady", "")}},
		"both families": {
			map[model.Key]any{live: report(400*time.Millisecond, true), v6: model.Text("2001:db8::1")}, resource.AgentStatus{},
			resource.AgentStatus{BIRDV4: speaker("Ready", ""), BIRDV6: speaker("Ready", "")},
		},
		"a later report": {map[model.Key]any{live: report(time.Hour+300*time.Millisecond, true)}, resource.AgentStatus{BIRDV4: speaker("Ready", "")}, resource.AgentStatus{BIRDV4: speaker("Ready", "")}},
		"it started anew": {
			map[model.Key]any{live: model.Status{Time: began.Add(time.Hour).Truncate(time.Second), FirstUpdate: true}}, resource.AgentStatus{BIRDV4: speaker("Ready", "")},
			resource.AgentStatus{BIRDV4: &resource.SpeakerStatus{State: "Ready", LastBootTime: "2026-01-02T04:04:05Z"}},
		},
	} {
		var s model.Snapshot
		for k, v := range tt.stored {
			s.Ranges = append(s.Ranges, []model.Entry{{Path: k.Path(), Key: k, Value: v, Revision: 7}})
		}
		if diff := cmp.Diff(tt.want, agentStatus("a", s, tt.was)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestNodeStatuses: a status is written when it changes, and not while its object asks for no updates.
func TestNodeStatuses(t *testing.T) {
	e := etcd.New(t)
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e.Put(model.StatusKey{Host: "a"}, model.Status{Time: began, FirstUpdate: true})
	patches := map[string]string{}
	k := &nodeStatuses{read: e.Store.Read, problems: problems.New(slog.New(slog.DiscardHandler)), objects: map[string]nodeStatus{}}
	k.loop = reconcile.New(reconcile.Timing{}, k.round)
	k.patch = func(_ context.Context, name string, status map[string]any) error {
		delete(status, "lastUpdated")
		text, err := json.Marshal(status)
		patches[name] = string(text)
		return err
	}
	h := k.handler()
	set := func(name, node string, period any, status map[string]any) {
		spec := map[string]any{"node": node, "classes": []any{"Agent"}}
		if period != nil {
			spec["updatePeriodSeconds"] = period
		}
		h.Set(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": spec, "status": status}})
	}
	round := func(want map[string]string, wantAgain time.Duration) {
		t.Helper()
		clear(patches)
		again, err := k.round(t.Context())
		if err != nil || again != wantAgain {
			t.Errorf("again after %v, %v; want %v", again, err, wantAgain)
		}
		if diff := cmp.Diff(want, patches); diff != "" {
			t.Errorf("patches (-want +got):\n%s", diff)
		}
	}
	round(map[string]string{}, 0)
	set("one", "a", nil, nil)
	set("still", "a", int64(0), nil)
	set("nobody", "b", int64(5), nil)
	const ready = `{"agent":{"birdV4":{"state":"Ready","routerID":"","lastBootTime":"2026-01-02T03:04:05Z"},"birdV6":null}}`
	round(map[string]string{"one": ready, "nobody": `{"agent":{"birdV4":null,"birdV6":null}}`}, 5*time.Second)
	h.Deleted("", "nobody")
	written := map[string]any{"lastUpdated": "2026-01-02T03:04:06Z", "agent": map[string]any{"birdV4": map[string]any{"state": "Ready", "routerID": "", "lastBootTime": "2026-01-02T03:04:05Z"}}}
	set("one", "a", nil, written)
	round(map[string]string{}, 10*time.Second)
	e.Remove(model.StatusKey{Host: "a"})
	round(map[string]string{"one": `{"agent":{"birdV4":null,"birdV6":null}}`}, 10*time.Second)
}
