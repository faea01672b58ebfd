// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/calico-go/calico/test/long"
)

// background is what runs while something happens to the agent: streams that
// must lose nothing, and some of which nothing may arrive.
type background struct {
	must, never []*stream
}

// start begins it: from a client to a server, and from a stranger, whom no
// policy knows, to both.
func (r *rig) background(server, client, stranger *place) background {
	r.Helper()
	b := background{}
	for i, a := range server.addrs {
		up, down := r.datagrams(client, server, netip.AddrPortFrom(a, 3000))
		b.must = append(b.must, r.pings(client, a), up, down, r.transfer(client, server, netip.AddrPortFrom(a, 3000), i == 0))
		b.never = append(b.never, r.forbidden(stranger, server, netip.AddrPortFrom(a, uint16(6000+i))))
	}
	r.flows("before", b.must...)
	r.nothing("before", b)
	return b
}

// nothing checks that what must not pass hasn't.
func (r *rig) nothing(when string, b background) {
	r.Helper()
	for _, s := range b.never {
		if n := s.leaked(); n != 0 {
			r.Errorf("%s: %s: %d of %d passed", when, s.name, n, s.sent.Load())
		}
	}
}

// whole ends it and checks that nothing is lost.
func (r *rig) whole(when string, b background) {
	r.Helper()
	for _, s := range b.must {
		if lost := r.complete(s); lost != 0 {
			r.Errorf("%s: %s: %d of %d are lost", when, s.name, lost, s.sent.Load())
		}
	}
	r.nothing(when, b)
	if !r.Failed() {
		r.Logf("%s: of %d echo requests each was answered; of %d datagrams that must not pass none did", when, b.must[0].sent.Load()+b.must[4].sent.Load(), b.never[0].sent.Load()+b.never[1].sent.Load())
	}
}

// population is a server that its clients may talk to, and a stranger that may not.
func (r *rig) population() (server, client, stranger *place) {
	r.Helper()
	server, client = r.pod("server", [2]string{"role", "server"}), r.pod("client", [2]string{"role", "client"})
	stranger = r.pod("stranger")
	r.policy("server", `{"selector": "role == 'server'", "types": ["inbound"], "inbound_rules": [{"action": "allow", "src_selector": "role == 'client'"}]}`)
	r.enforced()
	return server, client, stranger
}

// TestRestart kills the agent again and again.
func TestRestart(t *testing.T) {
	long.Test(t)
	const kills = 20
	r := newHostileRig(t)
	server, client, stranger := r.population()
	b := r.background(server, client, stranger)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	start := func(launch func() error) {
		t.Helper()
		if err := launch(); err != nil {
			t.Fatal(err)
		}
	}
	for n := range kills {
		// The server's chains are being changed, as often as not.
		r.policy("churn", fmt.Sprintf(`{"selector": "role == 'server'", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "allow", "protocol": "tcp", "dst_ports": [%d]}, {"action": "deny", "protocol": "tcp", "src_selector": "role == 'r%d'"},
			{"action": "allow", "src_selector": "role == 'client'"}]}`, 100+n, n))
		start(r.host.Agent().Kill)
		start(r.host.Agent().Launch)
		// Another moment each time: before, while and after it takes things over.
		r.pause(b.must[0], random.Int64N(250))
	}
	start(func() error { return r.host.Agent().Wait(r.ctx()) })
	r.enforced() // so that nothing is left to write
	r.nothing("after kills", b)

	start(r.host.Agent().Stop)
	start(func() error { return r.host.Agent().Start(r.ctx()) })
	if n := r.metric("calico_node_firewall_writes_total"); n != 0 {
		t.Errorf("an agent that starts where nothing has changed writes %v times", n)
	}
	r.nothing("after a clean stop", b)
	start(r.host.Agent().Stop)
	r.policy("a-deny", `{"selector": "role == 'server'", "order": 1, "types": ["inbound"], "inbound_rules": [{"action": "deny", "protocol": "tcp", "dst_ports": [80]},
		{"action": "allow", "protocol": "tcp", "dst_ports": [81]}, {"action": "allow", "src_selector": "role == 'client'"}]}`)
	r.probe("a policy that no agent has heard of", expect{client, server, "tcp 80", true}, expect{stranger, server, "tcp 81", false})
	start(func() error { return r.host.Agent().Start(r.ctx()) })
	r.enforced()
	r.probe("a policy from before the start", expect{client, server, "tcp 80", false}, expect{stranger, server, "tcp 81", true}, expect{stranger, server, "tcp 82", false})
	r.whole("20 kills and two restarts", b)
}
