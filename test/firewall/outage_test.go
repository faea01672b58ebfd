// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"strings"
	"testing"

	"github.com/calico-go/calico/test/long"
)

// TestOutage takes etcd away and brings it back.
func TestOutage(t *testing.T) {
	long.Test(t)
	r := newRig(t)
	server, client, stranger := r.population()
	b := r.background(server, client, stranger)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	holds := func(when string) {
		t.Helper()
		r.probe(when, expect{client, server, "tcp 80", true}, expect{stranger, server, "tcp 80", false}, expect{client, server, "ping", true}, expect{stranger, server, "ping", false})
		r.nothing(when, b)
	}
	want, resyncs := r.listing(), "calico_node_watch_resyncs_total"
	writes := r.metric("calico_node_firewall_writes_total")
	before := r.metric(resyncs)

	must(r.lab.Members().Kill(1))
	r.pause(b.must[0], 500)
	holds("without etcd")
	must(r.lab.Members().Start(r.ctx(), 1))
	r.put(configPath("Nobody"), "knows") // not of the firewall, but the agent must hear of it
	r.enforced()
	holds("with etcd back")
	if n := r.metric("calico_node_firewall_writes_total") - writes; n != 0 {
		t.Errorf("etcd came back as it was, and the agent wrote %v times", n)
	}
	t.Logf("snapshots taken again: %v", r.metric(resyncs)-before)

	// An agent that starts without etcd leaves what there is.
	must(r.lab.Members().Kill(1))
	must(r.host.Agent().Kill())
	must(r.host.Agent().Launch())
	r.until("the agent is there", func() bool {
		reason, err := r.fetch("http://127.0.0.1:9099/readiness")
		return err == nil && strings.Contains(reason, "etcd")
	})
	r.pause(b.must[0], 300)
	holds("an agent that starts without etcd")
	if got := r.listing(); got != want {
		t.Errorf("the table is another:\n%s", got)
	}
	must(r.lab.Members().Start(r.ctx(), 1))
	must(r.host.Agent().Wait(r.ctx()))
	r.enforced()
	holds("the agent and etcd are back")
	if n := r.metric("calico_node_firewall_writes_total"); n != 0 {
		t.Errorf("nothing had changed, and the agent wrote %v times", n)
	}
	if got := r.listing(); got != want {
		t.Errorf("the table is another:\n%s", got)
	}
	r.whole("two outages of etcd", b)
}
