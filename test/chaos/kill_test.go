// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
)

var everyLead = flag.Bool("every-lead", false, "go on in every way after each kill, in every scenario")

// TestKill kills calls at every one of their steps, has a runtime go on in
// one way or another, and finds nothing left. Each scenario has a lab of its own; what its etcd
// held is looked at, at every revision, in the end.
func TestKill(t *testing.T) {
	bin := lab.Build(t, lab.BuildOptions{Tags: "killpoints"})
	var kills, revisions atomic.Int64
	play := func(t *testing.T, s scenario) {
		r := newRig(t, s, bin)
		_, from, err := r.lab.Dump(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		kills.Add(r.everywhere(s))
		_, to, err := r.lab.Dump(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		walk(t, r.lab, from, to, bareNetwork)
		revisions.Add(to - from + 1)
	}
	// More at once than t.Parallel would: they wait for the kernel most of the time.
	todo, labs := make(chan scenario), 5
	if testing.Short() {
		labs = 1
	}
	var all sync.WaitGroup
	for range labs {
		all.Go(func() {
			for s := range todo {
				t.Run(s.name, func(t *testing.T) { play(t, s) })
			}
		})
	}
	for _, s := range scenarios() {
		if s.main || !testing.Short() {
			todo <- s
		}
	}
	close(todo)
	all.Wait()
	t.Logf("%d kills; %d revisions of etcd were walked", kills.Load(), revisions.Load())
}

// everywhere kills the scenario's call at each step that it has, once for each
// way to go on, and returns how often.
func (r *rig) everywhere(s scenario) (kills int64) {
	r.begin()
	steps, took := r.learn(s)
	r.Logf("%d steps: %s", len(steps), strings.Join(steps, ", "))
	for i, step := range steps {
		for _, way := range s.leadsAfter(i) {
			what := fmt.Sprintf("killed at %s, then %s", step, way.name)
			if !r.kill(s, step) {
				r.Errorf("%s: the call never came by", what)
			}
			way.do(r)
			r.cleaned(what)
			kills++
			if r.Failed() {
				return kills
			}
		}
	}
	if s.main && !testing.Short() {
		kills += r.anytime(s, took)
	}
	return kills
}

// anytime kills the call from outside, each time a little later. It may get
// through before: then that is what the runtime goes on from.
func (r *rig) anytime(s scenario, took time.Duration) (kills int64) {
	const times = 24
	continuations := leads()
	for i := range times {
		call := s.prepare(r)
		ctx, cancel := context.WithTimeout(r.ctx(), took*time.Duration(i+1)/time.Duration(times))
		reply, _ := r.host.CNI(ctx, call) // killed when ctx ends
		cancel()
		r.turnAway.Store(false)
		if signalOf(reply) == syscall.SIGKILL {
			kills++
		}
		way := continuations[i%len(continuations)]
		way.do(r)
		r.cleaned(fmt.Sprintf("killed at %d/%d of its time, then %s", i+1, times, way.name))
		if r.Failed() {
			break
		}
	}
	return kills
}

// signalOf is the signal that ended the plugin.
func signalOf(reply lab.Reply) syscall.Signal {
	if reply.State == nil {
		return 0 // it was never started
	}
	status, _ := reply.State.Sys().(syscall.WaitStatus)
	return status.Signal()
}

// learn runs the call once and returns its steps, and how long it took.
func (r *rig) learn(s scenario) ([]string, time.Duration) {
	call := s.prepare(r)
	log := filepath.Join(r.dir, "steps")
	call.Env = append(call.Env, "CALICO_STEP_LOG="+log)
	reply, err := r.host.CNI(r.ctx(), call)
	if (err != nil) != s.fails {
		r.Fatalf("%s: %v\n%s", call.Verb, err, reply.Stderr)
	}
	r.turnAway.Store(false)
	for _, c := range r.live {
		r.del(c)
	}
	r.cleaned("not killed")
	return r.logged(log), reply.Took
}

func (r *rig) logged(file string) []string {
	data, err := os.ReadFile(file)
	if err != nil {
		r.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		r.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// kill has the call die at the step, and reports whether it got there.
func (r *rig) kill(s scenario, step string) bool {
	call := s.prepare(r)
	log := filepath.Join(r.dir, "steps")
	call.Env = append(call.Env, "CALICO_STEP_LOG="+log, "CALICO_KILL_STEP="+step)
	reply, err := r.host.CNI(r.ctx(), call)
	r.turnAway.Store(false)
	if err == nil {
		r.Logf("%s succeeds", call.Verb)
	}
	if s.plugin == "" && signalOf(reply) != syscall.SIGKILL {
		r.Logf("%s: %v\n%s", call.Verb, err, reply.Stderr)
		return false
	}
	return slices.Contains(r.logged(log), step)
}

// cleaned waits until nothing of the containers is left, and forgets them. Our
// plugins have done what they do when they end. An agent needs time, and so does
// the kernel to take apart a namespace.
func (r *rig) cleaned(what string) {
	r.Helper()
	look := func() error {
		now, err := take(r.ctx(), r.lab, r.host, r.leases())
		if err != nil {
			return err
		}
		return now.more(r.baseline)
	}
	err := look()
	if err != nil && (r.agent || r.plugin != "") {
		err = eventually.Wait(r.ctx(), "agent and kernel to clean up", look)
	}
	if err != nil {
		r.Errorf("%s: %v", what, err)
	}
	// An IPAM plugin outlives the call that asked it, by a little.
	if err := eventually.Wait(r.ctx(), "nobody to hold a lock", func() error { return locked(r.host) }); err != nil {
		r.Errorf("%s: %v", what, err)
	}
	for _, c := range r.live {
		r.goneFrom(c, what)
	}
	r.live = nil
}

// goneFrom checks that a container's namespace, if it is still there, is as it
// was before the ADD, and removes it.
func (r *rig) goneFrom(c *container, what string) {
	r.Helper()
	if _, err := r.lab.FindNamespace(c.add.ContainerID); err != nil {
		return
	}
	k, err := c.ns.Kernel()
	if err != nil {
		r.Fatal(err)
	}
	if left := k.Lines(); len(left) > 0 {
		r.Errorf("%s: left in the container:\n  %s", what, strings.Join(left, "\n  "))
	}
	r.remove(c.ns)
}
