// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/debugstate"
	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/resource"
)

// node has two sessions and three routes.
func node(began time.Time) Node {
	peer := func(addr string, kind plan.NeighbourKind, state string) debugstate.Peer {
		return debugstate.Peer{Address: netip.MustParseAddr(addr), Kind: string(kind), State: state, Since: began}
	}
	routes := map[netip.Prefix]plan.Route{}
	for _, r := range []plan.Route{
		{Destination: netip.MustParsePrefix("10.0.1.0/26"), Origin: plan.FromBGP, Hops: []plan.Hop{{Gateway: netip.MustParseAddr("192.0.2.2"), Device: "eth0"}}},
		{Destination: netip.MustParsePrefix("10.0.0.0/26"), Origin: plan.FromBlock},
		{Destination: netip.MustParsePrefix("fd00::/122"), Origin: plan.FromHost, Hops: []plan.Hop{{Device: "vxlan.calico"}}},
	} {
		routes[r.Destination] = r
	}
	return Node{
		Version: "1.2.3", Started: began, Unready: func() string { return "" },
		Describe: func(context.Context) (debugstate.Router, plan.State) {
			return debugstate.Router{
				Lacks: map[string]string{"10.0.1.0/26": "why"},
				Peers: []debugstate.Peer{peer("2001:db8::2", plan.FromOwn, bgp.OpenSent), peer("192.0.2.2", plan.FromMesh, bgp.Established)},
			}, plan.State{Routes: routes, Speaker: plan.Speaker{RouterID: netip.MustParseAddr("192.0.2.1")}}
		},
	}
}

func TestStatus(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const at = "2026-01-02T03:04:05Z"
	speaker := resource.SpeakerStatus{State: "Ready", Version: "1.2.3", RouterID: "192.0.2.1", LastBootTime: at}
	for class, want := range map[resource.NodeStatusClass]resource.NodeStatus{
		resource.ClassAgent: {Agent: &resource.AgentStatus{BIRDV4: speaker, BIRDV6: &speaker}},
		resource.ClassBGP: {BGP: &resource.BGPStatus{
			EstablishedV4: 1, NotEstablishedV6: 1,
			PeersV4: []resource.PeerStatus{{PeerIP: "192.0.2.2", Type: "NodeMesh", State: "Established", Since: at}},
			PeersV6: []resource.PeerStatus{{PeerIP: "2001:db8::2", Type: "NodePeer", State: "OpenSent", Since: at}},
		}},
		resource.ClassRoutes: {Routes: &resource.RouteStatus{
			V4: []resource.NodeRoute{
				{Type: "FIB", Destination: "10.0.0.0/26", LearnedFrom: resource.LearnedFrom{SourceType: "Static"}},
				{Type: "RIB", Destination: "10.0.1.0/26", Gateway: "192.0.2.2", Interface: "eth0", LearnedFrom: resource.LearnedFrom{SourceType: "BGPPeer"}},
			},
			V6: []resource.NodeRoute{{Type: "FIB", Destination: "fd00::/122", Interface: "vxlan.calico", LearnedFrom: resource.LearnedFrom{SourceType: "Static"}}},
		}},
	} {
		if diff := cmp.Diff(want, node(began).status(t.Context(), []resource.NodeStatusClass{class})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", class, diff)
		}
	}
}

// TestMost: of a large cluster the status has as much as the definition of its kind and etcd let through, and says how much there is.
func TestMost(t *testing.T) {
	of := node(time.Time{})
	of.Describe = func(context.Context) (r debugstate.Router, s plan.State) {
		s.Routes = map[netip.Prefix]plan.Route{}
		for _, at := range []netip.Addr{netip.MustParseAddr("192.168.128.0"), netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:1000")} {
			for range resource.MostInNodeStatus + 1 {
				s.Routes[netip.PrefixFrom(at, at.BitLen())] = plan.Route{Origin: plan.FromBGP, Hops: []plan.Hop{{Gateway: at, Device: "a-long-interface"}}}
				r.Peers = append(r.Peers, debugstate.Peer{Address: at, Kind: string(plan.FromGlobal), State: bgp.Established, Since: time.Now()})
				at = at.Next()
			}
		}
		return r, s
	}
	s := of.status(t.Context(), []resource.NodeStatusClass{resource.ClassBGP, resource.ClassRoutes})
	for _, part := range []any{*s.BGP, *s.Routes} {
		v, lists := reflect.ValueOf(part), 0
		for i := range v.NumField() {
			if most := v.Type().Field(i).Tag.Get("most"); most != "" {
				if lists++; strconv.Itoa(v.Field(i).Len()) != most {
					t.Errorf("%s has %d elements, want %s", v.Type().Field(i).Name, v.Field(i).Len(), most)
				}
			}
		}
		if lists != 2 {
			t.Errorf("%s has %d bounded lists", v.Type(), lists)
		}
	}
	if want := resource.MostInNodeStatus + 1; s.BGP.EstablishedV4 != want || s.BGP.EstablishedV6 != want || s.Routes.Omitted != 2 {
		t.Errorf("%d and %d sessions, want %d; %d routes omitted, want 2", s.BGP.EstablishedV4, s.BGP.EstablishedV6, want, s.Routes.Omitted)
	}
	if text, err := json.Marshal(s); err != nil || len(text) > 3<<19 {
		t.Errorf("%d bytes, more than etcd takes: %v", len(text), err)
	}
}

// recorder is an API that passes on objects and takes statuses in, after some refusals.
type recorder struct {
	objects  chan func(Handler)
	statuses map[string][]resource.NodeStatus
	refuse   int
}

func (r *recorder) Watch(ctx context.Context, h Handler) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case tell := <-r.objects:
			tell(h)
		}
	}
}

func (r *recorder) SetStatus(_ context.Context, name string, s resource.NodeStatus) error {
	if r.refuse > 0 {
		r.refuse--
		return errors.New("refused")
	}
	r.statuses[name] = append(r.statuses[name], s)
	return nil
}

// TestKept: the objects for this node are answered, when they come and when something has changed, as often as they say.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &recorder{objects: make(chan func(Handler)), statuses: map[string][]resource.NodeStatus{}, refuse: 1}
		of := node(time.Now())
		var away atomic.Bool
		of.Unready = func() string {
			if away.Load() {
				return "etcd is away"
			}
			return ""
		}
		k := New("a", api, of, problems.New(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = k.Run(ctx) }()
		set := func(name, node string, period int) {
			o := &Object{Spec: resource.CalicoNodeStatus{Node: node, Classes: []resource.NodeStatusClass{resource.ClassAgent}, UpdatePeriodSeconds: &period}}
			api.objects <- func(h Handler) { h(name, o) }
			synctest.Wait()
		}
		expect := func(name string, n int) {
			t.Helper()
			synctest.Wait()
			if len(api.statuses[name]) != n {
				t.Errorf("%s is answered %d times, want %d", name, len(api.statuses[name]), n)
			}
		}
		set("ours", "a", 5)
		set("theirs", "b", 5)
		set("never", "a", 0)
		expect("ours", 1) // the first answer was refused, and another change led to the next
		time.Sleep(time.Minute)
		expect("ours", 1)
		away.Store(true)
		time.Sleep(6 * time.Second)
		expect("ours", 2)
		if s := api.statuses["ours"][1]; s.Agent.BIRDV4.State != "NotReady" || s.LastUpdated <= api.statuses["ours"][0].LastUpdated {
			t.Errorf("%+v", s)
		}
		api.objects <- func(h Handler) { h("ours", nil) }
		away.Store(false)
		time.Sleep(time.Minute)
		expect("ours", 2)
		expect("theirs", 0)
		expect("never", 0)
	})
}
