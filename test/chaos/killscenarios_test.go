// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"testing"

	"github.com/calico-go/calico/pkg/lab"
)

// scenario is a call that is killed at each of its steps.
type scenario struct {
	name   string
	plugin string // "" = calico
	agent  bool   // the host has one
	gate   bool   // the test serves the gate
	fails  bool   // the call ends with an error when nobody kills it
	conf   func(*rig, map[string]any)
	// prepare makes containers and calls, and returns the call that is killed.
	prepare func(*rig) lab.Call
	// main: after each kill the runtime goes on in every way; otherwise in two,
	// others after the next. The short form has those alone, and goes on in one.
	main bool
	once bool // ADD can't be repeated after it
}

// leadsAfter are the ways to go on after a kill at the step of that number.
func (s scenario) leadsAfter(step int) []lead {
	all := leads()
	if s.once {
		all = all[:len(all)-1]
	}
	switch {
	case testing.Short():
		return []lead{all[step%len(all)]}
	case s.main || *everyLead:
		return all
	}
	return []lead{all[step%len(all)], all[(step+len(all)/2)%len(all)]}
}

// lead is what a runtime does after a call that was killed. In the end none of
// the containers is to be left.
type lead struct {
	name string
	do   func(*rig)
}

func eachContainer(do func(*rig, *container)) func(*rig) {
	return func(r *rig) {
		for _, c := range r.live {
			do(r, c)
		}
	}
}

func leads() []lead {
	return []lead{
		{"DEL twice", eachContainer((*rig).del)},
		{"GC", func(r *rig) {
			// It leaves alone what a call is at work on. That is what an IPAM plugin
			// is which outlives the call that asked it.
			r.until("an IPAM plugin that ends", func() error { return locked(r.host) })
			if r.plugin != "" {
				// What another main plugin has made goes with the container.
				eachContainer(func(r *rig, c *container) { r.remove(c.ns) })(r)
			}
			r.must(r.gcCall())
		}},
		{"namespace gone, DEL", eachContainer(func(r *rig, c *container) {
			r.remove(c.ns)
			r.del(c)
		})},
		{"ADD again, DEL", func(r *rig) {
			r.must(r.live[len(r.live)-1].add)
			for _, c := range r.live {
				r.del(c)
			}
		}},
	}
}

// add is the ADD of a container that nobody has seen before.
func add(r *rig) lab.Call { return r.container("").add }

// added is a verb for a container that is there.
func added(verb string) func(*rig) lab.Call {
	return func(r *rig) lab.Call {
		c := r.container("")
		r.must(c.add)
		return c.verb(verb)
	}
}

const podArgs = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web"

// replaced is the ADD of a pod's new sandbox while the old one is still there.
func replaced(r *rig) lab.Call {
	r.must(r.container(podArgs).add)
	return r.container(podArgs).add
}

// turnedAway is an ADD that the agent does not let through.
func turnedAway(r *rig) lab.Call {
	call := add(r)
	r.turnAway.Store(true)
	return call
}

// collected is a GC that has two containers to take away.
func collected(r *rig) lab.Call {
	for range 2 {
		r.must(r.container("").add)
	}
	return r.gcCall()
}

// relinked is the ADD again of a container that is to have another MTU.
func relinked(r *rig) lab.Call {
	c := r.container("")
	r.must(c.add)
	call := c.add
	call.Stdin = r.withMTU(1400)
	return call
}

// hostLocal has another plugin give the addresses.
func hostLocal(r *rig, conf map[string]any) {
	conf["ipam"] = map[string]any{"type": "host-local", "dataDir": r.dir, "ranges": []any{
		[]any{map[string]any{"subnet": "10.8.0.0/24"}}, []any{map[string]any{"subnet": "fd08::/64"}},
	}}
}

// behind has calico-ipam serve another main plugin.
func behind(plugin string) func(*rig, map[string]any) {
	return func(_ *rig, conf map[string]any) {
		conf["name"], conf["type"] = bareNetwork, plugin
		ipam := map[string]any{}
		for k, v := range conf {
			ipam[k] = v
		}
		for k, v := range conf["ipam"].(map[string]any) {
			ipam[k] = v
		}
		conf["ipam"] = ipam
		conf["bridge"], conf["isGateway"] = "br0", true
	}
}

func scenarios() []scenario {
	return []scenario{
		{name: "ADD", main: true, agent: true, prepare: add},
		{name: "DEL", main: true, agent: true, prepare: added("DEL")},
		{name: "ADD that is undone", main: true, gate: true, fails: true, prepare: turnedAway},
		{name: "ADD of a new sandbox", prepare: replaced},
		{name: "ADD again", prepare: added("ADD")},
		{name: "ADD again with another MTU", prepare: relinked},
		{name: "GC", prepare: collected},
		{name: "ADD with host-local", conf: hostLocal, prepare: add},
		{name: "DEL with host-local", conf: hostLocal, prepare: added("DEL")},
		{name: "ADD with host-local that is undone", gate: true, fails: true, conf: hostLocal, prepare: turnedAway},
		{name: "ADD with host-local of a new sandbox", conf: hostLocal, prepare: replaced},
		{name: "ADD with host-local again", conf: hostLocal, prepare: added("ADD")},
		{name: "GC with host-local", conf: hostLocal, prepare: collected},
		{name: "ADD of ptp", plugin: "ptp", conf: behind("ptp"), prepare: add},
		{name: "DEL of ptp", once: true, plugin: "ptp", conf: behind("ptp"), prepare: added("DEL")},
		{name: "ADD of bridge", once: true, plugin: "bridge", conf: behind("bridge"), prepare: add},
		{name: "DEL of bridge", once: true, plugin: "bridge", conf: behind("bridge"), prepare: added("DEL")},
	}
}
