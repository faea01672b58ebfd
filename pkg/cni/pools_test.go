// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// only4 asks for no IPv6 address.
var only4 = map[string]any{"ipam": map[string]any{"type": "calico-ipam", "assign_ipv6": "false"}}

// TestReservation: no pod is given a reserved address, but who has one, or asks for one, has it.
func TestReservation(t *testing.T) {
	r := newRig(t, lab.Config{Pools: []netip.Prefix{prefix("10.1.0.0/28")}})
	var all []lab.Call
	next := func() lab.Call {
		c := call(r.pod(fmt.Sprint("pod", len(all))), r.conf(only4))
		c.ContainerID = fmt.Sprint("c", len(all))
		all = append(all, c)
		return c
	}
	first := next()
	before := addrs(r.add(first))
	trips := r.roundTrips()
	key := model.ReservationKey{Name: "routers"}
	r.put(key, model.Reservation{CIDRs: []netip.Prefix{prefix("10.1.0.0/31"), prefix("10.1.0.8/29"), prefix("10.1.0.9/32")}})
	if again := addrs(r.add(first)); !slices.Equal(again, before) {
		t.Errorf("addresses %v, and before they were reserved %v", again, before)
	}
	for last := 2; last < 8; last++ {
		got, want := addrs(r.add(next())), netip.AddrFrom4([4]byte{10, 1, 0, byte(last)})
		if !slices.Equal(got, []netip.Addr{want}) {
			t.Errorf("addresses %v, want %v", got, want)
		}
		if n := r.roundTrips(); n > trips {
			t.Errorf("%d round trips, without reservations %d", n, trips)
		}
	}
	full := next()
	r.fails(full, 104, "no free IPv4 address: pool 10.1.0.0/28: no room for a new block; some of its addresses are reserved; 1 of its 1 blocks are full")
	r.fails(verb("STATUS", full), 50, "no free IPv4 address: pool 10.1.0.0/28: no room for a new block; some of its addresses are reserved; 1 of its 1 blocks are full")
	full.Args = "IP=10.1.0.9"
	if got := addrs(r.add(full)); !slices.Equal(got, []netip.Addr{netip.MustParseAddr("10.1.0.9")}) {
		t.Errorf("addresses %v", got)
	}
	r.putText(key, `{"cidrs":["10.1.0.0/31","10.1.0.8/33"]}`)
	unlucky := next()
	r.failsLike(unlucky, 110, `which addresses are reserved\? invalid /calico/ipam/v2/reservation/routers: cidrs\[1\]: "10.1.0.8/33": want a CIDR like .*; correct or delete it`)
	r.delete(key)
	r.must(unlucky)
	for _, c := range all {
		r.must(verb("DEL", c))
	}
	r.empty()
}

// TestPoolsForSome: pods are given addresses of the pools for their namespace; those for requests alone they ask for.
func TestPoolsForSome(t *testing.T) {
	r := newRig(t, lab.Config{Pools: []netip.Prefix{prefix("10.1.0.0/26")}})
	pools := []model.Pool{
		{CIDR: prefix("10.1.0.0/26"), IPAM: true, NamespaceSelector: "!has(team)"},
		{CIDR: prefix("10.2.0.0/26"), IPAM: true, NamespaceSelector: `team == "x" && projectcalico.org/name == "default"`},
		{CIDR: prefix("10.3.0.0/26"), IPAM: true, Manual: true},
	}
	for _, p := range pools {
		r.put(model.PoolKey{CIDR: p.CIDR}, p)
	}
	n := 0
	gets := func(annotations map[string]string, pool string) {
		t.Helper()
		stop := r.serve(answer(kubernetes(annotations), nil))
		defer stop()
		c := r.k8s(r.pod(fmt.Sprint("pod", n)), only4)
		n++
		r.must(verb("STATUS", c))
		if got := addrs(r.add(c)); len(got) != 1 || !prefix(pool).Contains(got[0]) {
			t.Errorf("%v: addresses %v, want one of %s", annotations, got, pool)
		}
		r.must(verb("DEL", c))
	}
	labels := model.ProfileLabelsKey{Profile: "k8s_ns.default"}
	stop := r.serve(answer(kubernetes(nil), nil))
	c := r.k8s(r.pod("early"), only4)
	r.must(verb("STATUS", c))
	r.fails(c, 11, "namespace default has no profile in etcd yet, so its labels can't be compared with the namespace_selector of pool 10.1.0.0/26")
	stop()
	r.put(labels, model.Labels{"k8s_ns/label/tier": "web"})
	gets(nil, "10.1.0.0/26")
	r.put(labels, model.Labels{"k8s_ns/label/team": "x"})
	gets(nil, "10.2.0.0/26")
	gets(map[string]string{"cni.projectcalico.org/ipv4pools": `["10.1.0.0-26"]`}, "10.1.0.0/26")
	gets(map[string]string{"cni.projectcalico.org/ipv4pools": `["10.3.0.0/26"]`}, "10.3.0.0/26")
	gets(map[string]string{"cni.projectcalico.org/ipAddrs": `["10.3.0.9"]`}, "10.3.0.9/32")
	r.put(labels, model.Labels{"k8s_ns/label/team": "y"})
	stop = r.serve(answer(kubernetes(nil), nil))
	defer stop()
	r.fails(c, 103, `no IPv4 pool may serve this node: pool 10.1.0.0/26: its namespace_selector !has(team) does not pick namespace default; `+
		`pool 10.2.0.0/26: its namespace_selector team == "x" && projectcalico.org/name == "default" does not pick namespace default; `+
		`pool 10.3.0.0/26: its assignment_mode is Manual, and nothing asks for it`)
	// Another workload has no namespace.
	plain := call(r.pod("plain"), r.conf(only4))
	plain.ContainerID = "plain"
	r.fails(plain, 103, `no IPv4 pool may serve this node: pool 10.1.0.0/26: its namespace_selector !has(team) is for pods of Kubernetes; `+
		`pool 10.2.0.0/26: its namespace_selector team == "x" && projectcalico.org/name == "default" is for pods of Kubernetes; `+
		`pool 10.3.0.0/26: its assignment_mode is Manual, and nothing asks for it`)
	r.empty()
}
