// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/test/long"
)

// TestBornAgain has a pod made anew by the same name, with the same addresses, and with a
// policy that came between, while the agent stands still. When it goes on it may hear of the
// interface before it hears of the policy: what it knows is of the former container.
func TestBornAgain(t *testing.T) {
	long.Test(t)
	const (
		times = 6
		open  = `{"selector": "all()", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "allow"}]}`
		shut  = `{"selector": "all()", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "deny"}]}`
	)
	r := newHostileRig(t)
	_, stranger := r.company()
	stdin, a := r.toBeBorn()
	call := func(verb string, p *place) {
		t.Helper()
		reply, err := r.host.CNI(r.ctx(), lab.Call{Verb: verb, ContainerID: p.name, Netns: p.ns.Path(), IfName: "eth0", Stdin: stdin,
			Args: fmt.Sprintf("K8S_POD_NAMESPACE=default;K8S_POD_NAME=p;IP=%s,%s", a[0], a[1])})
		if err != nil {
			t.Errorf("%s %s: %v\n%s", verb, p.name, err, reply.Stderr)
		}
	}
	container := func(name string) (*place, *stream) {
		t.Helper()
		ns, err := r.lab.NewNamespace(name)
		if err != nil {
			t.Fatal(err)
		}
		p := &place{name: name, ns: ns, addrs: a}
		return p, r.hear(p)
	}
	var floods []*stream
	for _, to := range a {
		floods = append(floods, r.flood(stranger, to), r.flood(r.outside, to))
	}
	for n := range times {
		r.policy("p", open)
		former, hears := container(fmt.Sprintf("former%d", n))
		call("ADD", former)
		r.until("what everybody may send", func() bool { return hears.sent.Load() > 0 })
		if err := r.host.Agent().Pause(); err != nil {
			t.Fatal(err)
		}
		call("DEL", former)
		r.policy("p", shut)
		next, ear := container(fmt.Sprintf("next%d", n))
		added := make(chan struct{})
		go func() { defer close(added); call("ADD", next) }()
		r.until("the interface", func() bool {
			k, err := next.ns.Kernel()
			return err == nil && len(k.Addrs) > 1
		})
		if err := r.host.Agent().Resume(); err != nil {
			t.Fatal(err)
		}
		<-added
		r.pause(floods[0], 50)
		// The host may always talk to its pods: the ear hears.
		r.flows("from the host", r.flood(r.self, a[0]), ear)
		hears.end()
		ear.end()
		if got := ear.sent.Load(); got != 0 {
			t.Errorf("container %d got %d packets that it must not get", n, got)
		}
		call("DEL", next)
	}
}
