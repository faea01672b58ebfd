// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/garbage"
	"github.com/calico-go/calico/pkg/model"
)

// history is a random history of an API, an etcd, hosts, and two controllers of which one leads.
type history struct {
	*world
	dice        *rand.Rand
	counts      map[string]int
	leader      int
	controllers [2]*controller
	inside      int // a pass: what happens meanwhile
	calm        bool
}

func newHistory(t testing.TB, seed uint64, counts map[string]int) *history {
	h := &history{world: newWorld(t), dice: rand.New(rand.NewPCG(seed, 7)), counts: counts}
	for i := range h.controllers {
		h.start(i)
	}
	for i := range 5 {
		h.join(hostName(i))
	}
	h.meanwhile, h.check = h.interrupt, h.judge
	return h
}

func hostName(i int) string { return fmt.Sprint("n", i) }

func (h *history) start(i int) {
	h.controllers[i] = h.controller(func() bool { return h.leader == i })
}

func (h *history) run(n int) {
	for range n {
		h.event()
	}
}

// interrupt lets things happen between two requests of a controller.
func (h *history) interrupt(*controller) {
	if h.calm || h.inside > 2 || h.dice.IntN(8) != 0 {
		return
	}
	h.event()
}

// some picks an element of a map, always the same for the same dice.
func some[K ~string, V any](h *history, m map[K]V) (v V, ok bool) {
	if len(m) == 0 {
		return v, false
	}
	keys := slices.Sorted(maps.Keys(m))
	return m[keys[h.dice.IntN(len(keys))]], true
}

func (h *history) event() {
	m := h.hosts[hostName(h.dice.IntN(5))]
	c, there := some(h, m.containers)
	pod := garbage.Pod{Namespace: "ns", Name: fmt.Sprint("p", h.dice.IntN(40))}
	switch n := h.dice.IntN(32); {
	case n < 7: // a pod starts; where one of the name is, it is replaced
		if h.nodes[m.name] != "" && m.agent && h.pods[pod] == "" {
			h.world.run(pod, m.name)
		}
	case n == 7 && there: // a pod ends in order
		h.forget(c)
		h.del(m, c)
	case n == 8 && there: // … by force: its container goes on
		h.forget(c)
	case n == 9 && there: // a container dies without a DEL
		h.forget(c)
		delete(m.containers, c.handle)
		if m.agent {
			h.report(m, true)
		}
	case n == 10: // a host is cut off
		h.report(m, false)
	case n == 11: // … is back
		h.report(m, true)
	case n == 12: // a Node is deleted, while its host may live on, or crashes
		delete(h.nodes, m.name)
		if h.dice.IntN(3) > 0 {
			h.crash(m)
		}
	case n == 13:
		if h.nodes[m.name] == "" {
			h.join(m.name)
		}
	case n == 14: // the API deletes pods of Nodes that are gone
		if h.nodes[m.name] == "" {
			for _, c := range m.containers {
				h.forget(c)
			}
		}
	case n == 15:
		h.sync(m.name)
	case n == 16:
		h.apiAway = h.dice.IntN(3) == 0
	case n == 17:
		h.etcdAway = h.dice.IntN(3) == 0
	case n == 18:
		h.leader = h.dice.IntN(2)
	case n == 19: // killed, wherever it is, and started again
		i := h.dice.IntN(2)
		h.controllers[i].killed = true
		h.counts["killed"]++
		h.start(i)
	case n == 20: // what the watches know is old, or nothing
		stale := maps.Clone(h.pods)
		if h.dice.IntN(4) == 0 {
			clear(stale)
		}
		h.controllers[h.dice.IntN(2)].stale = stale
	case n == 27 && h.dice.IntN(4) == 0: // an agent is set to report no endpoints, or to report them again
		m.silent = !m.silent
		if m.agent {
			h.report(m, true)
		}
		h.counts["silent"]++
	case n == 21:
		h.controllers[h.dice.IntN(2)].stale = nil
	case n == 22:
		_, err := Resume(context.Background(), h.controllers[0])
		_ = err // of what isn't blocked, or by one that doesn't lead
	case n < 26:
		h.now = h.now.Add(time.Duration(h.dice.IntN(20)) * time.Minute)
	case n == 26 && h.dice.IntN(4) == 0: // many die at once, or many Nodes
		nodes := h.dice.IntN(2) == 0
		for _, m := range h.hosts {
			if nodes {
				delete(h.nodes, m.name)
			}
			h.crash(m)
		}
	default:
		h.pass(h.dice.IntN(2))
	}
}

// forget deletes a container's pod in the API, if it is still that pod.
func (h *history) forget(c *container) {
	if h.pods[c.pod] == c.uid {
		delete(h.pods, c.pod)
	}
}

// crash ends a host and everything on it.
func (h *history) crash(m *machine) {
	for _, c := range m.containers {
		h.forget(c)
	}
	clear(m.containers)
	h.report(m, false)
}

func (h *history) pass(i int) {
	if h.inside > 1 {
		return
	}
	h.inside++
	defer func() { h.inside-- }()
	r, err := h.controllers[i].Pass(context.Background())
	h.count(r)
	for _, known := range []error{errAway, errKilled, errFenced} {
		if errors.Is(err, known) {
			h.counts[known.Error()]++
			err = nil
		}
	}
	if err != nil {
		h.Fatal(err)
	}
}

func (h *history) count(r Report) {
	h.counts["released"] += r.Released
	h.counts["host"] += r.Hosts
	if r.Blocked != "" {
		h.counts["blocked"]++
	}
}

// judge checks each change of etcd: what lives must keep what it had.
func (h *history) judge(change model.Change) {
	for _, m := range h.hosts {
		if m.agent && slices.Contains(change.Deletes, model.Key(model.HostMetadataKey{Host: m.name})) {
			h.Fatalf("revision %d: %s went, whose agent lives", h.revision, m.name)
		}
		for _, c := range m.containers {
			spec, _ := h.get(c.key).Value.(model.WorkloadEndpoint)
			mine := spec.PodUID == c.uid
			if h.pods[c.pod] != c.uid && !(h.collects && h.reported(m, c)) {
				continue
			}
			if !mine || !h.held(c) || len(spec.Addrs()) != len(c.addrs) {
				h.Fatalf("revision %d: container %s of pod %s, uid %s, lives on %s and lost what it had: %+v", h.revision, c.handle, c.pod, c.uid, m.name, spec)
			}
		}
		if m.agent && !h.get(model.StatusKey{Host: m.name}).Exists() {
			h.Fatalf("revision %d: the status of %s is gone", h.revision, m.name)
		}
	}
}

// reported reports whether the agent of a container saw it run before the last change, or may have without reporting it.
func (h *history) reported(m *machine, c *container) bool {
	spec, _ := h.was(c.key).Value.(model.WorkloadEndpoint)
	return spec.PodUID == c.uid && m.agent && (m.silent || h.was(model.WorkloadStatusKey(c.key)).Value == model.EndpointUp)
}

// settle ends the history: nothing happens any more, and everything dead goes.
func (h *history) settle() {
	h.calm, h.apiAway, h.etcdAway, h.leader = true, false, false, 0
	for _, m := range h.hosts {
		m.silent = false // else what it had stays
		for _, c := range m.containers {
			if h.pods[c.pod] != c.uid { // no kubelet lets it run for long
				delete(m.containers, c.handle)
			}
		}
		if h.nodes[m.name] == "" {
			h.crash(m)
		} else {
			h.report(m, true)
			h.sync(m.name)
		}
	}
	c := h.controllers[0]
	c.stale = nil
	for range 12 {
		r := c.quiet()
		if h.count(r); r.Blocked != "" {
			if _, err := Resume(h.Context(), c); err != nil {
				h.Fatal(err)
			}
		}
		h.now = h.now.Add(garbage.PodGrace)
	}
	living := map[string]bool{}
	for _, m := range h.hosts {
		for handle := range m.containers {
			living[handle] = true
		}
		_, isNode := h.get(model.HostMetadataKey{Host: m.name}).Value.(model.HostMetadata)
		if h.nodes[m.name] == "" && isNode && h.synced(m.name) {
			h.Errorf("host %s is there, and its Node isn't", m.name)
		}
	}
	for _, e := range h.read(model.PrefixRange(model.HandlePrefix())) {
		if handle := e.Key.(model.HandleKey).ID; !living[handle] {
			h.Errorf("handle %s is there, and its pod isn't: %+v", handle, c.quiet().Kept)
		}
	}
	for handle := range living {
		if !h.get(model.HandleKey{ID: handle}).Exists() {
			h.Errorf("handle %s isn't there, and its pod is", handle)
		}
	}
	if h.Failed() {
		h.FailNow()
	}
}

// synced reports whether the Node of a host was ever known.
func (h *history) synced(name string) bool {
	m, _ := h.get(model.HostMetadataKey{Host: name}).Value.(model.HostMetadata)
	return m.Kubernetes.Name != ""
}
