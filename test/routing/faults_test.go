// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// rig is a lab of two hosts, with a pair of pods on the first and one on the second.
type rig struct {
	*Rig
	a, b       *lab.Host
	here, near *lab.Pod // on a
	far        *lab.Pod // on b
	v4         netip.Prefix
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Rig: New(t, lab.Config{Hosts: []string{"a", "b"}}), v4: lab.DefaultPools()[0]}
	r.a, r.b = r.Host("a"), r.Host("b")
	r.here, r.near, r.far = r.a.Pod("here"), r.a.Pod("near"), r.b.Pod("far")
	for _, h := range r.Hosts() {
		r.Established(h, 2)
	}
	r.Reaches(r.here, r.near, r.far)
	return r
}

// on is the rig for a part of the test.
func (r *rig) on(t *testing.T) *rig {
	q, rig := *r, *r.Rig
	rig.TB = t
	q.Rig = &rig
	return &q
}

// local and across are traffic that must not lose a packet.
func (r *rig) local() *Traffic  { r.Helper(); return StartTraffic(r.TB, r.here, r.near, false) }
func (r *rig) across() *Traffic { r.Helper(); return StartTraffic(r.TB, r.here, r.far, false) }

// well waits until nothing is wrong with the routes of a host.
func (r *rig) well(kind string) {
	r.Helper()
	r.Counts(r.a, `calico_node_route_problems{kind="`+kind+`"}`, Exactly(0))
}

func (r *rig) wrong(kind string) {
	r.Helper()
	r.Counts(r.a, `calico_node_route_problems{kind="`+kind+`"}`, AtLeast(1))
	r.Says(r.a, "routes to other hosts are not in order", "kind="+kind)
}

// TestFaults does harm to a network, one after the other: docs/routing.md says what
// comes of each. Local pods talk on throughout.
func TestFaults(t *testing.T) {
	long.Test(t)
	all := newRig(t)
	for _, part := range []struct {
		name string
		test func(*rig)
	}{
		{"a pool overlaps the fabric", poolOverlaps},
		{"a pool is deleted while in use", poolDeleted},
		{"a link flaps", linkFlaps},
		{"etcd is away", etcdAway},
		{"another host has the address", sameAddress},
	} {
		t.Run(part.name, func(t *testing.T) {
			r := all.on(t)
			local := r.local()
			part.test(r)
			local.StopWhole()
		})
	}
}

// A pool over the hosts' own subnet is reported; the routes to the hosts stay, for
// longer than an address that can't be used is waited for, and when an agent starts.
func poolOverlaps(r *rig) {
	across := r.across()
	key := model.PoolKey{CIDR: netip.MustParsePrefix("172.20.0.0/16")}
	before := r.Routes(r.a)
	r.Put(model.Put{Key: key, Value: model.Pool{CIDR: key.CIDR, IPAM: true}})
	r.wrong("pool-overlap")
	if err := r.b.Agent().Stop(); err != nil {
		r.Fatal(err)
	}
	if err := r.b.Agent().Start(r.Context()); err != nil {
		r.Fatal(err)
	}
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if got := r.Routes(r.a); !slices.Equal(got, before) {
			r.Fatalf("routes are %q, before %q", got, before)
		}
	}
	r.Established(r.b, 2)
	// Nor does a pod get the address of a host.
	thief, err := r.a.AddPod(r.Context(), "thief", lab.PodConfig{Args: [][2]string{{"IP", r.b.IPv4().String()}}})
	if err == nil {
		r.Errorf("a pod has the address of host b: %v", thief.Delete(r.Context()))
	} else if !strings.Contains(err.Error(), "host b has it itself") {
		r.Error(err)
	}
	r.Delete(key)
	r.well("pool-overlap")
	r.comesTo(r.a, before)
	across.StopWhole()
}

// comesTo waits until a host has these routes and no others.
func (r *rig) comesTo(h *lab.Host, want []string) {
	r.Helper()
	r.Until("the routes of host "+h.Name(), func() error {
		if diff := cmp.Diff(want, r.Routes(h)); diff != "" {
			return fmt.Errorf("they differ (-want +got):\n%s", diff)
		}
		return nil
	})
}

// The blocks of a pool that was deleted are nobody's business any more but those of
// the pods that have them: these talk on, on their host.
func poolDeleted(r *rig) {
	key := model.PoolKey{CIDR: r.v4}
	before := map[*lab.Host][]string{r.a: r.Routes(r.a), r.b: r.Routes(r.b)}
	r.Delete(key)
	r.wrong("no-pool")
	for h, other := range map[*lab.Host]*lab.Host{r.a: r.b, r.b: r.a} {
		// All else stays: what leads to its own pods, and the other family's.
		r.comesTo(h, slices.DeleteFunc(slices.Clone(before[h]), func(line string) bool {
			return strings.Contains(line, " via "+other.IPv4().String()+" ")
		}))
	}
	r.Reaches(r.here, r.near)
	r.Put(model.Put{Key: key, Value: model.Pool{CIDR: key.CIDR, IPAM: true}})
	r.well("no-pool")
	for h, routes := range before {
		r.comesTo(h, routes)
	}
	r.Reaches(r.here, r.far)
}

// A link that flaps takes its own packets with it, and nothing else: the routes stay
// until the session's hold time, and all is well when it stays up.
func linkFlaps(r *rig) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	before := r.Routes(r.a)
	flapped := make(chan error, 1)
	go func() { flapped <- r.a.FlapLink(ctx, time.Second) }()
	r.wrong("flapping-link")
	cancel()
	if err := eventually.Receive(r.TB, "the link joined", flapped); err != nil {
		r.Fatal(err)
	}
	r.Reaches(r.here, r.far)
	r.comesTo(r.a, before)
	for _, h := range r.Hosts() {
		r.Established(h, 2)
	}
}

// Without etcd everything stays as it was, for as long as it takes.
func etcdAway(r *rig) {
	across := r.across()
	before := r.Routes(r.a)
	if err := r.Members().Kill(1); err != nil {
		r.Fatal(err)
	}
	r.Says(r.a, "etcd watch interrupted, trying again")
	r.Counts(r.a, "calico_node_watch_interrupted", Exactly(1))
	if got := r.Routes(r.a); !slices.Equal(got, before) {
		r.Errorf("routes are %q, before %q", got, before)
	}
	if err := r.Members().Start(r.Context(), 1); err != nil {
		r.Fatal(err)
	}
	if err := r.Members().Wait(r.Context()); err != nil {
		r.Fatal(err)
	}
	r.Says(r.a, "etcd watch is back")
	r.Counts(r.a, "calico_node_watch_interrupted", Exactly(0))
	late := r.b.Pod("late")
	r.Reaches(r.here, late)
	across.StopWhole()
	if err := late.Delete(r.Context()); err != nil {
		r.Error(err)
	}
}

// A host that comes with the address of another, which lives, is told so and
// announces nothing; it tries again, and takes it when it is free.
func sameAddress(r *rig) {
	if err := r.a.Agent().Stop(); err != nil {
		r.Fatal(err)
	}
	key := func(host string) model.Key { return model.BGPHostKey{Host: host, Field: model.BGPHostIPv4} }
	ours := r.a.IPv4().String()
	r.Delete(key("a"), model.StatusKey{Host: "a"})
	r.Put(
		model.Put{Key: model.HostMetadataKey{Host: "ghost"}, Value: model.HostMetadata{}},
		model.Put{Key: model.StatusKey{Host: "ghost"}, Value: model.Status{Time: time.Now(), FirstUpdate: true}},
		model.Put{Key: key("ghost"), Value: model.Text(ours)},
	)
	if err := r.a.Agent().Launch(); err != nil {
		r.Fatal(err)
	}
	r.Says(r.a, `"not in order" what=IP`, "ghost", ours)
	r.Counts(r.a, `calico_node_host_problems{what="IP"}`, Exactly(1))
	r.Until("the host isn't ready", func() error {
		body, err := fetch(r.Context(), r.a, "http://127.0.0.1:9099/readiness")
		if err == nil && !strings.Contains(body, "ghost") {
			err = errors.New(body)
		}
		return err
	})
	r.Delete(key("ghost"), model.StatusKey{Host: "ghost"}, model.HostMetadataKey{Host: "ghost"})
	r.Says(r.a, `"in order again" what=IP`)
	for _, h := range r.Hosts() {
		r.Established(h, 2)
	}
	r.Reaches(r.here, r.far)
}
