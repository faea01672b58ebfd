// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestMemberHangs pauses each member of etcd in turn, one of which the agent's watch is on.
// Connections to it stay and get no answer. A pod is added all the same, as the watch moves on.
func TestMemberHangs(t *testing.T) {
	long.Test(t)
	r := New(t, lab.Config{Hosts: []string{"a"}, EtcdMembers: 3})
	h := r.Host("a")
	for i := 1; i <= 3; i++ {
		if err := r.Members().Pause(i); err != nil {
			t.Fatal(err)
		}
		h.Pod(fmt.Sprint("pod", i))
		if err := r.Members().Resume(i); err != nil {
			t.Fatal(err)
		}
		if err := r.Members().Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.Says(h, "etcd watch interrupted", "no answer for 3s")
	r.Counts(h, "calico_node_watch_resyncs_total", Exactly(1))
	r.Counts(h, "calico_node_watch_interrupted", Exactly(0))
}

// TestEtcdReadOnly has etcd take no writes when the lease of a host's status has ended: what
// comes of that, and what to do, is said by the agent that runs and by one that starts.
func TestEtcdReadOnly(t *testing.T) {
	long.Test(t)
	r := New(t, lab.Config{Hosts: []string{"a"}, AgentEnv: []string{"FELIX_REPORTINGINTERVALSECS=1", "FELIX_REPORTINGTTLSECS=5"}})
	h := r.Host("a")
	says := func(parts ...string) {
		t.Helper()
		r.Until("what /readiness says", func() error {
			text, err := fetch(t.Context(), h, "http://127.0.0.1:9099/readiness")
			for _, p := range append(parts, "etcd is read-only", "etcdctl alarm disarm") {
				if !strings.Contains(text, p) {
					return fmt.Errorf("it lacks %q: %s %w", p, text, err)
				}
			}
			return nil
		})
	}
	if err := r.Members().SetReadOnly(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	status := model.StatusKey{Host: "a"}
	snapshot, err := r.Etcd().Read(t.Context(), model.KeyRange(status))
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine it may have run out by itself.
	if entry, ok := snapshot.Get(status); ok {
		if err := r.Etcd().Revoke(t.Context(), entry.Lease); err != nil {
			t.Fatal(err)
		}
	}
	says("reports to etcd fail: the lease of the host's status has ended, so that others may take this host for dead: ")
	if err := h.Agent().Stop(); err != nil {
		t.Fatal(err)
	}
	if err := h.Agent().Launch(); err != nil {
		t.Fatal(err)
	}
	says("it isn't known yet whether another host has this one's name, which takes a write to etcd", "reports to etcd fail: ")
	if err := r.Members().SetReadOnly(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := h.Agent().Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
