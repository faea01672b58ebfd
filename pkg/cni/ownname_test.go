// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

// TestNamesake has a host go by the name of another that lives: by a copied disk, a slip in the
// network configuration, or one host name for two.
func TestNamesake(t *testing.T) {
	cfg := small()
	cfg.Hosts, cfg.NoAgent, cfg.NoFsync = []string{"a", "b"}, true, true
	l := lab.ForTest(t, cfg)
	victim, r := &rig{t, l, l.Host("b")}, &rig{t, l, l.Host("a")}
	cni, ipam := call(victim.pod("pod"), victim.conf(nil)), call(victim.pod("ipam"), victim.conf(nil))
	cni.Args = k8sArgs
	ipam.Plugin, ipam.ContainerID = "calico-ipam", "c2"
	victim.must(cni)
	victim.must(ipam)
	before := shown(victim)

	name := filepath.Join(r.host.VarDir(), "nodename")
	if err := os.WriteFile(name, []byte("b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	conf := r.conf(map[string]any{"nodename": "", "policy_setup_timeout_seconds": 1})
	next := call(r.pod("next"), conf)
	next.Args, next.ContainerID = k8sArgs, "c3"
	refuse := func(when string, code uint, want string) {
		t.Helper()
		same := verb("DEL", call("", conf))
		same.Args = k8sArgs
		sameIPAM := verb("DEL", ipam)
		sameIPAM.Stdin = conf
		gc := withAttachments(r, lab.Call{Verb: "GC", Stdin: conf})
		gcIPAM := gc
		gcIPAM.Plugin = "calico-ipam"
		for _, c := range []lab.Call{next, same, sameIPAM, gc, gcIPAM} {
			r.failsLike(c, code, want)
			if d := cmp.Diff(before, shown(victim)); d != "" {
				t.Errorf("%s: after %s by its namesake (-before +after):\n%s", when, c.Verb, d)
			}
		}
		// There is nothing to take away.
		never := verb("DEL", call("", conf))
		never.ContainerID = "never-seen"
		r.must(never)
	}

	address := model.BGPHostKey{Host: "b", Field: model.BGPHostIPv4}
	victim.put(address, model.Text(victim.host.IPv4().String()))
	refuse("no agent", 11, "whether node b is this one isn't known: etcd has the address .* of it, and this host hasn't .*")
	r.serve(&agent{ready: &gate.RejectedError{Reason: "not in sync with etcd", Retry: true}})
	refuse("an agent that isn't ready", 11, "whether node b is this one isn't known: etcd has the address .* of it, and this host hasn't .*not in sync with etcd.*")

	// What etcd says doesn't matter where the agent knows.
	if _, err := l.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{address}}); err != nil {
		t.Fatal(err)
	}
	a := &agent{ready: &gate.RejectedError{Reason: "this is the agent of host a, not of b"}}
	r.serve(a)
	refuse("the agent of another", 109, "node b isn't this one: .*this is the agent of host a, not of b")
	a.ready = &gate.RejectedError{Reason: "another host that is called b lives", Retry: true, Name: gate.NameInDoubt}
	refuse("an agent that is refused its name", 11, "whether node b is this one isn't known: .*another host that is called b lives")

	// It is that host, with another address by now.
	victim.put(address, model.Text("172.20.9.9"))
	a.ready = &gate.RejectedError{Reason: "reports to etcd fail", Retry: true, Name: gate.NameOwn}
	for _, c := range []lab.Call{cni, ipam} {
		c.Stdin = conf
		r.must(verb("DEL", c))
	}
	if got := r.handles(); len(got) > 0 {
		t.Errorf("handles %v", got)
	}
}

// TestNameUndecided has a host booted with its pods: they are deleted and made again while the
// agent asks around whether another host has its name.
func TestNameUndecided(t *testing.T) {
	r := newRig(t, small())
	first := call(r.pod("first"), r.conf(nil))
	first.Args = k8sArgs
	r.must(first)
	// Longer than one is asked again that won't know more soon.
	const asks = 3 * time.Second
	programmed := func(context.Context, gate.Request) error { return nil }
	r.serve(&agent{wait: programmed, knows: time.Now().Add(asks)})
	next := call(r.pod("next"), r.conf(nil))
	next.Args, next.ContainerID = k8sArgs, "c2"
	r.must(next)
	for _, link := range r.links() {
		r.sh("ip link del " + link)
	}
	r.serve(&agent{wait: programmed, knows: time.Now().Add(asks)})
	r.must(verb("DEL", next))
	if got := r.handles(); len(got) > 0 {
		t.Errorf("handles %v", got)
	}
}

// TestNameOfNoHost has a network configuration that names the node otherwise than its agent does, as by the
// name with its domain: nothing is written under the wrong name, no block is claimed for it.
func TestNameOfNoHost(t *testing.T) {
	r := newRig(t, small())
	r.agentRan()
	no := &gate.RejectedError{Reason: "this is the agent of host a, not of zz"}
	a := &agent{ready: no, wait: func(_ context.Context, q gate.Request) error {
		if q.Endpoint.Host != "a" {
			return no
		}
		return nil
	}}
	r.serve(a)
	wrong := call(r.pod("wrong"), r.conf(map[string]any{"nodename": "zz", "policy_setup_timeout_seconds": 60}))
	r.fails(wrong, 109, "endpoint /calico/v1/host/zz/workload/cni/c1/endpoint/eth0: the agent refused: this is the agent of host a, not of zz")
	r.must(verb("DEL", wrong))
	if got := shown(r); len(got) > 0 {
		t.Errorf("after an ADD by a wrong name and its DEL etcd has %v", got)
	}
	if a.asked != "zz" {
		t.Errorf("asked whether the agent is ready for host %q", a.asked)
	}

	// One that isn't ready is waited for at the gate, and none is asked where its file has the name.
	a.ready, a.asked = &gate.RejectedError{Reason: "not in sync with etcd", Retry: true}, ""
	right := call(r.pod("right"), r.conf(map[string]any{"policy_setup_timeout_seconds": 60}))
	r.must(right)
	if a.asked != "" {
		t.Errorf("asked whether the agent is ready for host %q", a.asked)
	}
	r.must(verb("DEL", right))
	if err := os.Remove(filepath.Join(r.host.VarDir(), "nodename")); err != nil {
		t.Fatal(err)
	}
	r.must(right)
	if a.asked != "a" {
		t.Errorf("asked whether the agent is ready for host %q", a.asked)
	}
	r.must(verb("DEL", right))

	// Who doesn't wait at the gate isn't refused there.
	a.ready = no
	free := call(r.pod("free"), r.conf(map[string]any{"nodename": "zz", "policy_setup_timeout_seconds": 0}))
	r.must(free)
}

// shown is what etcd has of pods.
func shown(r *rig) (all []string) {
	r.Helper()
	for _, e := range r.sound() {
		switch e.Key.(type) {
		case model.WorkloadEndpointKey, model.HandleKey, model.BlockKey:
			all = append(all, fmt.Sprintf("%s %d", e.Path, e.Revision))
		}
	}
	return all
}
