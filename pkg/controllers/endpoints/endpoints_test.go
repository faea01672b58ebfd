// SPDX-License-Identifier: Apache-2.0

package endpoints_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/controllers/endpoints"
	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
	"github.com/calico-go/calico/test/keeper"
)

// world is a keeper of endpoints beside an etcd.
type world struct {
	*etcd.Server
	*endpoints.Keeper
	*keeper.Running

	mu       sync.Mutex
	restored []string
}

func newWorld(t *testing.T) *world {
	w := &world{Server: etcd.New(t)}
	w.Keeper = endpoints.New(writer.Config{Etcd: w.Store, Problems: problems.New(slog.New(slog.DiscardHandler)), Reporter: w})
	w.Running = keeper.Run(w.Server, w.Keeper, endpoints.Prefix)
	return w
}

func (w *world) Wrote(writer.Object, time.Duration) {}

func (w *world) Failed(of writer.Object, k model.Key, err error) {
	w.Errorf("%v: %s: %v", of, k.Path(), err)
}

func (w *world) Restored(of writer.Object, k model.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restored = append(w.restored, fmt.Sprint(of, " ", k.Path()))
}

func key(endpoint string) model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: "a", Orchestrator: "k8s", Workload: "shop.web", Endpoint: endpoint}
}

func written(uid string) model.WorkloadEndpoint {
	return model.WorkloadEndpoint{
		State: model.StateActive, Name: "cali0", MAC: model.MAC{2}, ProfileIDs: []string{"k8s_ns.shop"}, Labels: map[string]string{"calico/k8s_ns": "shop"},
		IPv4Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}, ContainerID: "0a1b", PodUID: uid, MTU: 1450,
	}
}

var spec = endpoints.Spec{
	Labels: map[string]string{"calico/k8s_ns": "shop", "app": "web"}, Profiles: []string{"k8s_ns.shop", "ksa.shop.till"},
	Ports: []model.EndpointPort{{Name: "http", Protocol: model.ProtocolTCP, Port: 80}},
}

func (w *world) holds(k model.Key, want model.WorkloadEndpoint) {
	w.Helper()
	w.Until(k.Path(), func() bool {
		got, ok := w.Get(k).(model.WorkloadEndpoint)
		return ok && got.Equal(want)
	})
}

// Endpoints of a pod get what is theirs, whichever comes first; those of another pod of that name don't.
func TestEndpoints(t *testing.T) {
	w := newWorld(t)
	full := func(uid string) model.WorkloadEndpoint {
		e := written(uid)
		e.Labels, e.Ports, e.ProfileIDs = spec.Labels, spec.Ports, spec.Profiles
		return e
	}
	w.Put(key("eth0"), written("1"))
	w.Put(key("net1"), written("mirror"))
	w.Put(key("net2"), written("2"))
	w.Put(key("net3"), written(""))
	w.Set(endpoints.NewPod("shop", "web", []string{"1", "mirror"}, spec))
	w.holds(key("eth0"), full("1"))
	w.holds(key("net1"), full("mirror"))

	// Another writer's change is undone; what isn't the pod's stays.
	changed := full("1")
	changed.Labels, changed.ContainerID = map[string]string{"app": "other"}, "2c3d"
	w.Settle()
	w.Put(key("eth0"), changed)
	changed.Labels = spec.Labels
	w.holds(key("eth0"), changed)

	// A pod comes again under its name.
	w.Set(endpoints.NewPod("shop", "web", []string{"2"}, spec))
	w.holds(key("net2"), full("2"))
	w.Put(key("eth0"), written("1"))
	w.Keeper.Remove("shop", "web")
	w.Set(endpoints.NewPod("shop", "web", []string{"2"}, endpoints.Spec{Labels: map[string]string{"calico/k8s_ns": "shop"}}))
	bare := written("2")
	bare.ProfileIDs = nil
	w.holds(key("net2"), bare)
	w.holds(key("eth0"), written("1"))
	w.holds(key("net3"), written(""))
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff([]string{"{Pod shop web 1} " + key("eth0").Path()}, w.restored); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
}

// An endpoint that is gone is not made again, and no longer counts as a user of its profiles.
func TestGone(t *testing.T) {
	w := newWorld(t)
	w.Put(key("eth0"), written("1"))
	w.Put(key("eth1"), written("1"))
	w.Until("it is known", func() bool { return w.Uses("k8s_ns.shop") && !w.Uses("k8s_ns.other") })
	w.Server.Remove(key("eth0"))
	w.Set(endpoints.NewPod("shop", "web", []string{"1"}, spec))
	e := written("1")
	e.Labels, e.Ports, e.ProfileIDs = spec.Labels, spec.Ports, spec.Profiles
	w.holds(key("eth1"), e)
	if got := w.Get(key("eth0")); got != nil {
		t.Errorf("an endpoint that is gone: %v", got)
	}
	w.Server.Remove(key("eth1"))
	w.Until("its profiles are of no use", func() bool { return !w.Uses("k8s_ns.shop") && !w.Uses("ksa.shop.till") })
}
